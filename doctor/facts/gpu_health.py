"""The health of each GPU as NVML tells it: one fact for each thing that can be known or not.

An answer "not supported" means that the GPU has no such thing and is no gap; it has no row then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_doctor.facts.gpu import NvmlReading, Rows
from infer_doctor.frozen import frozen
from infer_doctor.registry import probe


@frozen
class RemapRow:
    """Rows of memory that were replaced by spare ones (Ampere and newer)."""

    index: int
    corrected: int
    """Rows replaced after correctable errors."""
    uncorrected: int
    pending: bool
    """A row waits for the next reset."""
    failed: bool
    """A row could not be replaced, at any time."""


@frozen
class GpuRemaps:
    """Row remapping of each GPU that has it."""

    rows: tuple[RemapRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuRetiredPages:
    """Whether pages of memory wait to be retired, by index (GPUs before Ampere)."""

    pending: Mapping[int, bool]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuRecovery:
    """What the driver wants done with each GPU, by index (catalog/health.py: RECOVERY)."""

    actions: Mapping[int, int]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class ClockRow:
    """Why the clocks of a GPU are where they are, and how hot it is (in degrees Celsius)."""

    index: int
    reasons: int
    temperature: int | None
    slowdown_at: int | None


@frozen
class GpuClocks:
    """Clocks event reasons of each GPU."""

    rows: tuple[ClockRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class PcieRow:
    """The PCIe link of a GPU; the maxima are those of the GPU and its slot together.

    `state` is the performance state (0 is the fastest), `utilisation` a percentage: an idle GPU
    lowers the speed of its link.
    """

    index: int
    generation: int
    width: int
    max_generation: int
    max_width: int
    state: int | None
    utilisation: int | None


@frozen
class GpuPcie:
    """The PCIe link of each GPU that tells it."""

    rows: tuple[PcieRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuNvlinks:
    """For each GPU with NVLink, by index: whether each of its links is up."""

    links: Mapping[int, tuple[bool, ...]]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class FabricRow:
    """Registration of a GPU with the NVLink fabric (catalog/health.py: FABRIC_STATES)."""

    index: int
    state: int
    status: int
    """nvmlReturn_t; counts only when the state is "completed"."""
    health: int


@frozen
class GpuFabric:
    """The fabric as each GPU with NVSwitch sees it."""

    rows: tuple[FabricRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class GpuComputeModes:
    """nvmlComputeMode_t of each GPU, by index."""

    modes: Mapping[int, int]
    source: str
    gaps: tuple[str, ...] = ()


@frozen
class MigInstance:
    """One MIG device: what a process sees instead of the GPU."""

    name: str
    uuid: str | None
    total: int | None
    """Bytes of memory."""


@frozen
class MigRow:
    """A GPU that can be partitioned: its mode now, after the next reset, and its instances."""

    index: int
    on: bool
    next_on: bool
    instances: tuple[MigInstance, ...] | None
    """None: not known."""


@frozen
class GpuMig:
    """MIG mode of each GPU that has it."""

    rows: tuple[MigRow, ...]
    source: str
    gaps: tuple[str, ...] = ()


@probe
def gpu_remaps(reading: NvmlReading) -> GpuRemaps:
    """nvmlDeviceGetRemappedRows; not supported before Ampere and with MIG instances."""
    rows = Rows(reading)
    found = [
        RemapRow(
            index=index,
            corrected=values[0],
            uncorrected=values[1],
            pending=values[2] != 0,
            failed=values[3] != 0,
        )
        for index, raw in rows
        if (values := rows.value(index, raw, "RemappedRows", list))
    ]
    return GpuRemaps(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_retired_pages(reading: NvmlReading) -> GpuRetiredPages:
    """nvmlDeviceGetRetiredPagesPendingStatus."""
    rows = Rows(reading)
    found = {
        index: pending != 0
        for index, raw in rows
        if (pending := rows.value(index, raw, "RetiredPagesPendingStatus", int)) is not None
    }
    return GpuRetiredPages(pending=found, source="NVML", gaps=tuple(rows.gaps))


OLD_DRIVER = "NVMLError_InvalidArgument"
"""What a driver says to the number of a field value that it does not know yet."""


@probe
def gpu_recovery(reading: NvmlReading) -> GpuRecovery:
    """Field value NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; drivers before 565 do not know it."""
    rows = Rows(reading)
    found = {}
    for index, raw in rows:
        answer = raw.get("recovery_action")
        if isinstance(answer, dict) and str(answer.get("error", "")).startswith(OLD_DRIVER):
            continue
        action = rows.value(index, raw, "recovery_action", int)
        if action is not None:
            found[index] = action
    return GpuRecovery(actions=found, source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_clocks(reading: NvmlReading) -> GpuClocks:
    """nvmlDeviceGetCurrentClocksThrottleReasons, with the temperature where it is told."""
    rows = Rows(reading)
    found = [
        ClockRow(
            index=index,
            reasons=reasons,
            temperature=number(raw, "Temperature"),
            slowdown_at=number(raw, "TemperatureSlowdown"),
        )
        for index, raw in rows
        if (reasons := rows.value(index, raw, "CurrentClocksThrottleReasons", int)) is not None
    ]
    return GpuClocks(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


def number(raw: Mapping[str, Any], name: str) -> int | None:
    """A value that only illustrates another: its error is no gap."""
    value = raw.get(name)
    return value if isinstance(value, int) else None


@probe
def gpu_pcie(reading: NvmlReading) -> GpuPcie:
    """nvmlDeviceGetCurr/MaxPcieLinkGeneration/Width; zero is what virtual machines say for unknown."""
    rows = Rows(reading)
    found = []
    for index, raw in rows:
        now, width, most, widest = (
            rows.value(index, raw, f"{which}PcieLink{what}", int)
            for which in ("Curr", "Max")
            for what in ("Generation", "Width")
        )
        if not (now and width and most and widest):
            continue
        used = raw.get("UtilizationRates")
        found.append(
            PcieRow(
                index=index,
                generation=now,
                width=width,
                max_generation=most,
                max_width=widest,
                state=number(raw, "PowerState"),
                utilisation=number(used, "gpu") if isinstance(used, dict) else None,
            )
        )
    return GpuPcie(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


NO_SUCH_LINK = ("NVMLError_NotSupported", "NVMLError_InvalidArgument")


@probe
def gpu_nvlinks(reading: NvmlReading) -> GpuNvlinks:
    """nvmlDeviceGetNvLinkState for each link number that NVML knows; a GPU may have fewer."""
    rows = Rows(reading)
    found = {}
    for index, raw in rows:
        links = rows.value(index, raw, "nvlink", list) or ()
        up = tuple(link != 0 for link in links if isinstance(link, int))
        errors = [str(link["error"]) for link in links if isinstance(link, dict)]
        rows.gaps += [
            f"GPU {index}: NvLinkState: {error}"
            for error in dict.fromkeys(errors)
            if not error.startswith(NO_SUCH_LINK)
        ]
        if up:
            found[index] = up
    return GpuNvlinks(links=found, source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_fabric(reading: NvmlReading) -> GpuFabric:
    """nvmlDeviceGetGpuFabricInfoV; state 0, not supported, has no row."""
    rows = Rows(reading)
    found = [
        FabricRow(
            index=index,
            state=fabric["state"],
            status=fabric["status"],
            health=fabric.get("healthMask", 0),
        )
        for index, raw in rows
        if (fabric := rows.value(index, raw, "fabric", dict)) and fabric["state"] != 0
    ]
    return GpuFabric(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_compute_modes(reading: NvmlReading) -> GpuComputeModes:
    """nvmlDeviceGetComputeMode."""
    rows = Rows(reading)
    found = {
        index: mode
        for index, raw in rows
        if (mode := rows.value(index, raw, "ComputeMode", int)) is not None
    }
    return GpuComputeModes(modes=found, source="NVML", gaps=tuple(rows.gaps))


@probe
def gpu_mig(reading: NvmlReading) -> GpuMig:
    """nvmlDeviceGetMigMode (now and pending) and the MIG devices."""
    rows = Rows(reading)
    found = []
    for index, raw in rows:
        mode = rows.value(index, raw, "MigMode", list)
        if mode is None:
            continue
        on = mode[0] == 1
        listed = rows.value(index, raw, "mig", list) if on else []
        found.append(
            MigRow(
                index=index,
                on=on,
                next_on=mode[1] == 1,
                instances=None if listed is None else tuple(map(_instance, listed)),
            )
        )
    return GpuMig(rows=tuple(found), source="NVML", gaps=tuple(rows.gaps))


def _instance(raw: Mapping[str, Any]) -> MigInstance:
    name, uuid, memory = (raw.get(key) for key in ("Name", "UUID", "MemoryInfo"))
    return MigInstance(
        name=name if isinstance(name, str) else "MIG device",
        uuid=uuid if isinstance(uuid, str) else None,
        total=number(memory, "total") if isinstance(memory, dict) else None,
    )
