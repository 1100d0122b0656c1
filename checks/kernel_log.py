"""What the kernel's log tells: Xid events of the driver, processes killed for memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infer_doctor.catalog.xid import MEMORY, RECOVERY_CHANGED, RECOVERY_NOW, Xid, xid
from infer_doctor.facts.chosen import ChosenGpus, left_out
from infer_doctor.facts.gpu import GpuEcc, Gpus
from infer_doctor.facts.gpu_health import GpuRecovery
from infer_doctor.facts.kernel_log import MemoryKill, MemoryKills, XidEvent, XidEvents
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.pci import PciBus
from infer_doctor.fixes.kernel_log import give_memory, handle_xid
from infer_doctor.model import Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.units import age, gib

MILDEST_FIRST = ("info", "warning", "error")

ENGINE_NAMES = ("vllm", "trtllm", "tensorrt", "ray::", "python")
"""Beginnings of the names that engines and their workers give themselves, and Python; any case."""


@check("gpu-xid-logged", severity="error", category="gpu_health", since="0.1")
def xid_logged(
    xids: XidEvents,
    gpus: Gpus | None,
    bus: PciBus | None,
    identity: Identity | None,
    recovery: GpuRecovery | None,
    ecc: GpuEcc | None,
    chosen: ChosenGpus | None,
) -> Iterator[Finding]:
    """The driver logged an error (Xid) of a GPU.

    ## Why it matters
    The engine's own log shows only "CUDA error: unspecified launch failure", "unknown error" or a
    killed worker. The Xid code says whether the program, the GPU, a link or the driver was at fault,
    and whether a restart is enough.

    ## How it decides
    Lines "NVRM: Xid (PCI:...): CODE, ..." in the kernel log since boot, all of one GPU together, by
    NVIDIA's Xid catalogue (catalog/xid.py): what asks for a reset or reboot is an error; a hardware
    fault that cost one process a warning; a fault of the program (13, 31, 43, 45) an info. An error
    becomes a warning where it is over or told elsewhere: the driver was loaded again since; the
    driver says what is to be done now (gpu-reset-needed); gpu-ecc-uncorrected names the memory
    error; gpu-fewer-than-bus names the lost GPU; the engine does not take it. In a container GPUs
    that were not given to it do not count.

    ## Fix safety
    Manual, by NVIDIA's "immediate action": restart the process, reset the GPU, reboot.
    """
    for address in dict.fromkeys(event.address for event in xids.events):
        events = [event for event in xids.events if event.address == address]
        index = _index(address, gpus)
        if index is None and _given_away(gpus, identity):
            continue
        worst = max(events, key=_weight)
        known = xid(worst.code, worst.text)
        over = _over(worst, known, index, events, recovery=recovery, ecc=ecc)
        if over is None and index is None and gpus is not None and _on_bus(address, bus):
            over = "gpu-fewer-than-bus says what is left"
        if over is None and index is not None and left_out(index, chosen):
            over = "the engine does not take this GPU"
        lowered = known.severity == "error" and over is not None
        name = f"GPU {index}" if index is not None else f"GPU at {address}"
        yield Finding(
            about=name,
            message=f"{name}: Xid {worst.code}, {known.words}{_times(events, worst)}"
            f"{_others(events, worst)}{f' ({over})' if lowered else ''}",
            severity="warning" if lowered else known.severity,
            confidence="likely" if known.severity == "error" and not lowered else "certain",
            evidence=tuple(
                Evidence(source=xids.source, excerpt=event.line) for event in _excerpts(events)
            ),
            fixes=handle_xid(worst.code, known.action, index),
        )


def _weight(event: XidEvent) -> tuple[bool, int]:
    """Worst first: of this start of the driver, then by severity; at a tie the first, the cause."""
    return not event.before_load, MILDEST_FIRST.index(xid(event.code, event.text).severity)


def _index(address: str, gpus: Gpus | None) -> int | None:
    if gpus is None:
        return None
    places = {gpu.bus_id.rpartition(".")[0]: gpu.index for gpu in gpus.gpus if gpu.bus_id}
    return places.get(address)


def _given_away(gpus: Gpus | None, identity: Identity | None) -> bool:
    """Whether a GPU that is not listed belongs to somebody else: a container that lists all its own."""
    inside = identity is not None and identity.container is not None
    return inside and gpus is not None and not gpus.gaps


def _on_bus(address: str, bus: PciBus | None) -> bool:
    """Whether gpu-fewer-than-bus speaks of it: on the bus, and bound to the driver."""
    return bus is not None and any(
        device.driver == "nvidia" and device.address.startswith(address) for device in bus.gpus
    )


def _over(
    event: XidEvent,
    known: Xid,
    index: int | None,
    events: Sequence[XidEvent],
    *,
    recovery: GpuRecovery | None,
    ecc: GpuEcc | None,
) -> str | None:
    """Why this is no error of its own any more."""
    if event.before_load:
        return "the driver was loaded again since"
    action = recovery.actions.get(index) if recovery and index is not None else None
    if action is None:
        action = _last_action(events)
    if action == 0:
        return "the driver asks for nothing now"
    if recovery and index in recovery.actions:
        return "gpu-reset-needed says what is to be done"
    counted = {row.index for row in ecc.rows if row.uncorrected} if ecc else set()
    if event.code in MEMORY and index in counted:
        return "gpu-ecc-uncorrected counts it"
    return None


def _last_action(events: Sequence[XidEvent]) -> int | None:
    """What the last Xid 154 says: "... changed from 0x0 (None) to 0x1 (GPU Reset Required)"."""
    for event in reversed(events):
        found = re.search(RECOVERY_NOW, event.text) if event.code == RECOVERY_CHANGED else None
        if found:
            return int(found[1], 16)
    return None


def _times(events: Sequence[XidEvent], worst: XidEvent) -> str:
    """, 3 times, the last 3 min ago; with the process of the last one."""
    same = [event for event in events if event.code == worst.code]
    last = same[-1]
    ago = f"{age(last.age_s)} ago" if last.age_s is not None else ""
    first = same[0].age_s
    words = ""
    if len(same) > 1:
        words = f", {len(same)} times"
        words += f", the first {age(first)} ago" if first is not None else ""
        words += f", the last {ago}" if ago else ""
    elif ago:
        words = f", {ago}"
    if last.pid is not None:
        words += f", by PID {last.pid}{f' ({last.process})' if last.process else ''}"
    return words


def _others(events: Sequence[XidEvent], worst: XidEvent) -> str:
    others = sorted({event.code for event in events} - {worst.code})
    return f"; also Xid {', '.join(map(str, others))}" if others else ""


def _excerpts(events: Sequence[XidEvent]) -> list[XidEvent]:
    """The last line of each code, at most four."""
    last = {event.code: event for event in events}
    return list(last.values())[:4]


@check("host-oom-killed", severity="warning", category="host_ram", since="0.1")
def oom_killed(kills: MemoryKills) -> Iterator[Finding]:
    """The kernel killed a process that looks like an engine because memory ran out.

    ## Why it matters
    The engine ends without a word (exit status -9 or 137); vLLM's server only says that its engine
    core died. It happens while weights are loaded or pinned, and again at the next start.

    ## How it decides
    "Out of memory: Killed process PID (NAME)" in the kernel log since boot, with a name that engines
    or their workers have (VLLM::, vllm, trtllm, ray::); for plain python only an info. "Memory
    cgroup out of memory" means that the limit of a container or service was the bound, not the
    host's memory.

    ## Fix safety
    Manual: more memory, or less to load.
    """
    last: dict[str, MemoryKill] = {}
    for kill in kills.kills:
        if kill.name.lower().startswith(ENGINE_NAMES):
            last[kill.name] = kill
    for name, kill in last.items():
        severity: Severity | None = "info" if name.lower().startswith("python") else None
        held = f" with {gib(kill.rss)}" if kill.rss else ""
        ago = f" {age(kill.age_s)} ago" if kill.age_s is not None else ""
        bound = "its control group's limit" if kill.group else "the host's memory"
        yield Finding(
            about=name,
            message=f"the kernel killed {name} (PID {kill.pid}){held}{ago}: {bound} was used up",
            severity=severity,
            confidence="possible" if severity else "certain",
            evidence=(Evidence(source=kills.source, excerpt=kill.line),),
            fixes=(give_memory(group=kill.group),),
        )
