"""GPUs as NVML sees them, one fact for each thing that can be known or not known about them.

Source of the names: https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, TypeVar

from infer_doctor.facts.machine import Identity
from infer_doctor.facts.pci import PciBus, proof_of_absence
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

T = TypeVar("T")

NOT_SUPPORTED = ("NVMLError_NotSupported", "NVMLError_NoPermission")
"""Answers that say the GPU (or vGPU) has no such counter: no gap, there is nothing to read."""


@frozen
class NvmlReading:
    """One reading of NVML; `gpus` are raw, in NVML's order."""

    driver: str | None
    cuda_driver: int | None
    """As cuDriverGetVersion: 13000 is CUDA 13.0."""
    gpus: tuple[Mapping[str, Any], ...] = field(metadata={"report": False})


@frozen
class NvmlFailure:
    """NVML did not start: its code (nvmlReturn_t) and words."""

    code: int | None
    message: str


@frozen
class Gpu:
    """Who a GPU is."""

    index: int
    name: str
    uuid: str | None
    bus_id: str | None
    """domain:bus:device.function as sysfs writes it, 0000:00:06.0."""


@frozen
class Gpus:
    """The GPUs the driver offers, in NVML's order (that of the PCI bus)."""

    gpus: tuple[Gpu, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuCapabilities:
    """Compute capability of each GPU by index: (9, 0) for Hopper."""

    capabilities: Mapping[int, tuple[int, int]]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class MemoryRow:
    """Bytes of one GPU. `usable` is what CUDA can give: NVML's total without what it reserves."""

    index: int
    total: int
    usable: int
    used: int
    free: int
    bounds: bool = False
    """The source does not say what the driver reserves: usable and free are upper bounds."""


@frozen
class GpuMemory:
    """The memory of each GPU."""

    rows: tuple[MemoryRow, ...] = field(metadata={"report": False})
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class EccRow:
    """Uncorrected memory errors of one GPU since the driver was loaded; None: no ECC here."""

    index: int
    uncorrected: int | None


@frozen
class GpuEcc:
    """ECC counters of each GPU."""

    rows: tuple[EccRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuProcess:
    """A process with memory on a GPU, by the PID that the driver knows (of the host's name space)."""

    gpu: int
    pid: int
    used: int | None
    name: str | None = None


@frozen
class GpuProcesses:
    """All processes on all GPUs; a container sees no PIDs but its own, often none."""

    processes: tuple[GpuProcess, ...] = field(metadata={"report": False})
    source: str
    gaps: tuple[str, ...] = ()


@probe(slow=True)
def nvml_failure(host: Host, bus: PciBus | None, identity: Identity | None) -> NvmlFailure:
    """The reason why NVML did not start; Absent when it did or when there is no GPU."""
    answer = host.ask("nvml")
    if "error" in answer:
        if proof := proof_of_absence(bus, identity):
            raise Absent(proof)
        return NvmlFailure(code=answer["error"]["code"], message=answer["error"]["message"])
    raise Absent("NVML started")


@probe(slow=True)
def nvml_reading(host: Host, bus: PciBus | None, identity: Identity | None) -> NvmlReading:
    """NVML's answers; raises Unavailable with its words when it does not start."""
    try:
        answer = host.ask("nvml")
    except Unavailable as error:
        raise Unavailable(f"NVML: {error.reason}", error.code) from None
    if "error" in answer:
        if proof := proof_of_absence(bus, identity):
            raise Absent(proof)
        raise Unavailable(f"NVML did not start: {answer['error']['message']}")
    return NvmlReading(
        driver=answer["driver"] if isinstance(answer["driver"], str) else None,
        cuda_driver=answer["cuda_driver"] if isinstance(answer["cuda_driver"], int) else None,
        gpus=tuple(answer["gpus"]),
    )


class Rows:
    """Walks over the GPUs of a reading and keeps what could not be read as gaps."""

    def __init__(self, reading: NvmlReading) -> None:
        self._reading = reading
        self.gaps: list[str] = []

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for index, raw in enumerate(self._reading.gpus):
            if "error" in raw:
                self.gaps.append(f"GPU {index}: {raw['error']}")
            else:
                yield index, raw

    def value(
        self, index: int, raw: Mapping[str, Any], name: str, kind: Callable[[Any], T]
    ) -> T | None:
        """The value, None when the GPU has none; an error becomes a gap."""
        found = raw.get(name)
        if found is None or _failed(found):
            words = found["error"] if found is not None else "not read"
            if not str(words).startswith(NOT_SUPPORTED):
                self.gaps.append(f"GPU {index}: {name}: {words}")
            return None
        return kind(found)


def _failed(value: Any) -> bool:
    return isinstance(value, dict) and "error" in value


@probe
def gpus(reading: NvmlReading) -> Gpus:
    """Name, UUID and bus address of each GPU."""
    rows = Rows(reading)
    found = [
        Gpu(
            index=index,
            name=rows.value(index, raw, "Name", str) or "unknown GPU",
            uuid=rows.value(index, raw, "UUID", str),
            bus_id=rows.value(index, raw, "PciInfo", _bus_id),
        )
        for index, raw in rows
    ]
    return Gpus(gpus=tuple(found), source="NVML", gaps=tuple(rows.gaps))


def _bus_id(info: Mapping[str, Any]) -> str:
    """sysfs's form, 0000:00:06.0, out of NVML's 00000000:00:06.0."""
    domain, _, rest = str(info["busId"]).partition(":")
    return f"{domain[-4:]}:{rest}".lower()


@probe
def gpu_capabilities(reading: NvmlReading) -> GpuCapabilities:
    """nvmlDeviceGetCudaComputeCapability."""
    rows = Rows(reading)
    found = {
        index: capability
        for index, raw in rows
        if (capability := rows.value(index, raw, "CudaComputeCapability", _capability))
    }
    return GpuCapabilities(capabilities=found, source="NVML", gaps=tuple(rows.gaps))


def _capability(value: Any) -> tuple[int, int]:
    return int(value[0]), int(value[1])


@probe
def gpu_memory(reading: NvmlReading) -> GpuMemory:
    """nvmlDeviceGetMemoryInfo; its second form alone tells what the driver reserves."""
    rows = Rows(reading)
    found = []
    for index, raw in rows:
        mode = raw.get("MigMode")
        if isinstance(mode, list) and mode and mode[0] == 1:
            rows.gaps.append(f"GPU {index} is partitioned (MIG): its instances were not read")
            continue
        second = raw.get("MemoryInfo_v2")
        if second and not _failed(second):
            found.append(
                MemoryRow(
                    index=index,
                    total=second["total"],
                    usable=second["total"] - second["reserved"],
                    used=second["used"],
                    free=second["free"],
                )
            )
        elif first := rows.value(index, raw, "MemoryInfo", dict):
            found.append(
                MemoryRow(
                    index=index,
                    total=first["total"],
                    usable=first["total"],
                    used=first["used"],
                    free=first["free"],
                )
            )
    return GpuMemory(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_ecc(reading: NvmlReading) -> GpuEcc:
    """nvmlDeviceGetTotalEccErrors, uncorrected, volatile."""
    rows = Rows(reading)
    found = [
        EccRow(index=index, uncorrected=rows.value(index, raw, "ecc_uncorrected_volatile", int))
        for index, raw in rows
    ]
    return GpuEcc(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_processes(reading: NvmlReading) -> GpuProcesses:
    """nvmlDeviceGetComputeRunningProcesses and ...Graphics..., each PID once a GPU."""
    rows = Rows(reading)
    found: dict[tuple[int, int], GpuProcess] = {}
    for index, raw in rows:
        for name in ("ComputeRunningProcesses", "GraphicsRunningProcesses"):
            for row in rows.value(index, raw, name, list) or ():
                process = GpuProcess(gpu=index, pid=row["pid"], used=row.get("usedGpuMemory"))
                found.setdefault((index, process.pid), process)
    return GpuProcesses(processes=tuple(found.values()), source="NVML", gaps=tuple(rows.gaps))
