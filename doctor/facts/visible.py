"""CUDA_VISIBLE_DEVICES as CUDA reads it, and what the installed vLLM makes of it."""

from __future__ import annotations

from infer_doctor.facts.engine import EngineFact, EngineSearch
from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import variable
from infer_doctor.registry import probe

NAME = "CUDA_VISIBLE_DEVICES"


@frozen
class VisibleDevices:
    """The entries of CUDA_VISIBLE_DEVICES, in order; an empty value has none."""

    value: str
    entries: tuple[str, ...]


@frozen
class DeviceIdRules:
    """Whether the installed engine takes a UUID where CUDA does: of vLLM, read from its own source."""

    takes_uuid: bool
    source: str


@probe
def visible_devices(environ: Environ, launch: Launch | None) -> VisibleDevices:
    """Of the launch, else of this machine. Absent when it is not set: then all GPUs are visible."""
    value = variable(launch, NAME) if launch is not None else None
    if value is None and (launch is None or launch.machine == "local"):
        value = environ.variables.get(NAME)
    if value is None:
        raise Absent(f"{NAME} is not set")
    return VisibleDevices(
        value=value, entries=tuple(entry.strip() for entry in value.split(",") if entry.strip())
    )


@probe
def device_id_rules(host: Host, search: EngineSearch, engine: EngineFact | None) -> DeviceIdRules:
    """vLLM turned every entry into an integer until it looked UUIDs up in NVML.

    The look-up stands in platforms/cuda.py (device_control_id_to_physical_device_id, seen in
    0.32.0); before, platforms/interface.py called int() on the entry: "invalid literal for int()
    with base 10: 'GPU-..." (vllm-project/vllm issues 13815, 20939, 41848). Without a vLLM only CUDA
    reads the entries.
    """
    if engine is None and search.gaps:
        raise Unavailable(search.gaps[0])
    if engine is None or engine.name != "vllm":
        return DeviceIdRules(takes_uuid=True, source="CUDA")
    path = f"{engine.package}/platforms/cuda.py"
    text = host.read(path)
    return DeviceIdRules(takes_uuid="nvmlDeviceGetHandleByUUID" in text, source=path)
