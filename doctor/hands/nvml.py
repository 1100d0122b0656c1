"""One reading of NVML through nvidia-ml-py, named after NVML's own getters.

A getter that fails is kept as {"error": ...}: "not supported" is an answer too. Nothing is set, no
CUDA context is made.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

GETTERS = (
    "Name",
    "UUID",
    "MemoryInfo",
    "PciInfo",
    "CudaComputeCapability",
    "ComputeMode",
    "PersistenceMode",
    "MigMode",
    "EccMode",
    "EnforcedPowerLimit",
    "CurrentClocksThrottleReasons",
    "CurrPcieLinkGeneration",
    "CurrPcieLinkWidth",
    "MaxPcieLinkGeneration",
    "MaxPcieLinkWidth",
    "UtilizationRates",
    "RetiredPagesPendingStatus",
    "RemappedRows",
    "ComputeRunningProcesses",
    "GraphicsRunningProcesses",
    "Architecture",
    "VirtualizationMode",
    "GspFirmwareVersion",
    "MinorNumber",
    "PowerState",
    "DisplayActive",
)

ECC = {
    "ecc_uncorrected_volatile": (1, 0),
    "ecc_corrected_volatile": (0, 0),
    "ecc_uncorrected_aggregate": (1, 1),
}
"""Key -> NVML's memory error type (0 corrected, 1 uncorrected) and counter (0 volatile, 1 aggregate)."""


def nvml() -> Json:
    """Read the driver and every GPU; {"error": {"code", "message"}} when NVML does not start."""
    library = importlib.import_module("pynvml")
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        code = getattr(error, "value", None)
        return {"error": {"code": code, "message": _words(error)}}
    try:
        count = library.nvmlDeviceGetCount()
        return {
            "driver": _ask(library.nvmlSystemGetDriverVersion),
            "nvml": _ask(library.nvmlSystemGetNVMLVersion),
            "cuda_driver": _ask(library.nvmlSystemGetCudaDriverVersion_v2),
            "gpus": [_gpu(library, index) for index in range(count)],
        }
    finally:
        library.nvmlShutdown()


def _gpu(library: Any, index: int) -> Json:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
    except library.NVMLError as error:
        return {"error": _words(error)}
    found = {name: _get(library, name, handle) for name in GETTERS}
    total_ecc = library.nvmlDeviceGetTotalEccErrors
    for key, (kind, counter) in ECC.items():
        found[key] = _ask(total_ecc, handle, kind, counter)
    second_form = getattr(library, "nvmlMemory_v2", None)
    found["MemoryInfo_v2"] = _ask(library.nvmlDeviceGetMemoryInfo, handle, second_form)
    found["nvlink"] = [
        _ask(library.nvmlDeviceGetNvLinkState, handle, link)
        for link in range(getattr(library, "NVML_NVLINK_MAX_LINKS", 18))
    ]
    found["fabric"] = _fabric(library, handle)
    return found


def _get(library: Any, name: str, handle: Any) -> Any:
    getter = getattr(library, f"nvmlDeviceGet{name}", None)
    if getter is None:
        return {"error": f"this nvidia-ml-py has no nvmlDeviceGet{name}"}
    return _ask(getter, handle)


def _fabric(library: Any, handle: Any) -> Any:
    kind = getattr(library, "c_nvmlGpuFabricInfoV_t", None)
    if kind is None:
        return {"error": "this nvidia-ml-py has no nvmlDeviceGetGpuFabricInfoV"}
    info = kind()
    if isinstance(version := getattr(library, "nvmlGpuFabricInfo_v2", None), int):
        info.version = version
    failed = _ask(library.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info))
    if isinstance(failed, dict) and "error" in failed:
        return failed
    return {"state": info.state, "status": info.status}


def _ask(getter: Callable[..., Any], *arguments: Any) -> Any:
    """The value as JSON, or {"error": ...}."""
    try:
        return _plain(getter(*arguments))
    except Exception as error:
        # NVMLError for what the GPU or driver refuses, anything from a newer or older nvidia-ml-py
        return {"error": _words(error)}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """Structures as objects, bytes as text, lists as lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, ctypes.Array):
        return [_plain(item) for item in value]
    fields = getattr(value, "_fields_", None)
    if fields:
        return {name: _plain(getattr(value, name)) for name, *_ in fields}
    return {key: _plain(item) for key, item in vars(value).items()}
