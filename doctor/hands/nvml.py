"""One reading of NVML through nvidia-ml-py, named after NVML's own getters.

A getter that fails is kept as {"error": ...}: "not supported" is an answer too. A getter that does
not return costs only what comes after it on the same GPU: each GPU is read by a thread of its own
(NVML is thread-safe, https://docs.nvidia.com/deploy/nvml-api/nvml-api-reference.html), and what the
threads have when time is up is the answer. Nothing is set, no CUDA context is made. NVML is not
shut down: that may hang too, and the process ends soon.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Steps = dict[str, Callable[[Any], Any]]

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

GPU_SENSOR = 0
SLOWDOWN = 1
"""NVML_TEMPERATURE_GPU; NVML_TEMPERATURE_THRESHOLD_SLOWDOWN (nvml.h)."""

RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (nvml.h, drivers since 565)."""

MIG_LIMIT = 64
"""No GPU has as many instances: bounds a number that a broken driver gives."""


class _Reader(threading.Thread):
    """Calls `first` and gives its value to one step after the other."""

    def __init__(self, first: Callable[..., Any], steps: Steps, *arguments: Any) -> None:
        super().__init__(daemon=True)
        self._first = functools.partial(first, *arguments)
        self._steps = steps
        self._now = first.__name__
        self._failure: Exception | None = None
        self._found: Json = {}
        self.start()

    def run(self) -> None:
        try:
            value = self._first()
        except Exception as error:
            self._failure = error
            return
        for name, step in self._steps.items():
            self._now = name
            self._found[name] = _ask(step, value)

    def answer(self, deadline: float) -> Json:
        """A value or {"error"} for each step; raises what `first` raised, or TimeoutError."""
        self.join(max(0.0, deadline - time.monotonic()))
        hanging = f"no return from {self._now}"
        if self._failure is not None:
            raise self._failure
        if self.is_alive() and self._now not in self._steps:
            raise TimeoutError(hanging)
        found = dict(self._found)  # while the thread may go on
        return {
            step: found.get(step, {"error": f"TimeoutError: {hanging}"}) for step in self._steps
        }


def nvml(limit_s: float) -> Json:
    """Read the driver and every GPU; {"error": {"code", "message"}} when NVML does not start."""
    deadline = time.monotonic() + limit_s
    library = importlib.import_module("pynvml")
    steps: Steps = {
        "driver": lambda _: library.nvmlSystemGetDriverVersion(),
        "nvml": lambda _: library.nvmlSystemGetNVMLVersion(),
        "cuda_driver": lambda _: library.nvmlSystemGetCudaDriverVersion_v2(),
        "gpus": lambda _: library.nvmlDeviceGetCount(),
    }
    try:
        found = _Reader(library.nvmlInit, steps).answer(deadline)
    except library.NVMLError as error:
        code = getattr(error, "value", None)
        return {"error": {"code": code, "message": _words(error)}}
    if not isinstance(found["gpus"], int):
        words = found["gpus"]["error"]
        if words.startswith("TimeoutError"):
            raise TimeoutError(words)
        return {"error": {"code": None, "message": f"nvmlDeviceGetCount: {words}"}}
    first = library.nvmlDeviceGetHandleByIndex
    readers = [_Reader(first, _steps(library), index) for index in range(found["gpus"])]
    return {**found, "gpus": [_gpu(reader, deadline) for reader in readers]}


def _gpu(reader: _Reader, deadline: float) -> Json:
    try:
        return reader.answer(deadline)
    except Exception as error:
        return {"error": _words(error)}


def _steps(library: Any) -> Steps:
    """What is asked of each GPU."""
    return {
        **{name: functools.partial(_get, library, name) for name in GETTERS},
        **{
            key: functools.partial(_ecc, library, kind, counter)
            for key, (kind, counter) in ECC.items()
        },
        "MemoryInfo_v2": functools.partial(_memory, library),
        "nvlink": functools.partial(_links, library),
        "fabric": functools.partial(_fabric, library),
        "Temperature": functools.partial(_temperature, library),
        "TemperatureSlowdown": functools.partial(_slowdown, library),
        "recovery_action": functools.partial(_recovery, library),
        "mig": functools.partial(_instances, library),
    }


def _get(library: Any, name: str, handle: Any) -> Any:
    return getattr(library, f"nvmlDeviceGet{name}")(handle)


def _ecc(library: Any, kind: int, counter: int, handle: Any) -> Any:
    return library.nvmlDeviceGetTotalEccErrors(handle, kind, counter)


def _memory(library: Any, handle: Any) -> Any:
    return library.nvmlDeviceGetMemoryInfo(handle, library.nvmlMemory_v2)


def _links(library: Any, handle: Any) -> Any:
    links = range(library.NVML_NVLINK_MAX_LINKS)
    return [_ask(library.nvmlDeviceGetNvLinkState, handle, link) for link in links]


def _fabric(library: Any, handle: Any) -> Json:
    info = library.c_nvmlGpuFabricInfoV_t()
    info.version = library.nvmlGpuFabricInfo_v2
    library.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return {"state": info.state, "status": info.status, "healthMask": info.healthMask}


def _temperature(library: Any, handle: Any) -> Any:
    return library.nvmlDeviceGetTemperature(handle, GPU_SENSOR)


def _slowdown(library: Any, handle: Any) -> Any:
    return library.nvmlDeviceGetTemperatureThreshold(handle, SLOWDOWN)


def _recovery(library: Any, handle: Any) -> Any:
    field = library.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION])[0]
    if field.nvmlReturn:
        raise library.NVMLError(field.nvmlReturn)
    return field.value.uiVal


def _instances(library: Any, handle: Any) -> list[Json]:
    """The MIG devices of a partitioned GPU; places may be empty between them."""
    if library.nvmlDeviceGetMigMode(handle)[0] != 1:
        return []
    found = []
    for place in range(min(library.nvmlDeviceGetMaxMigDeviceCount(handle), MIG_LIMIT)):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except library.NVMLError_NotFound:
            continue
        names = ("Name", "UUID", "MemoryInfo")
        found.append(
            {name: _ask(functools.partial(_get, library, name), instance) for name in names}
        )
    return found


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
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
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
