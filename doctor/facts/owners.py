"""Who holds GPU memory: the driver's PIDs joined with /proc, where that is allowed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.facts.gpu import GpuProcess, GpuProcesses
from infer_doctor.facts.machine import Identity
from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.registry import probe

ENGINE_NAME = re.compile(r"VLLM::|EngineCore|trtllm|tritonserver|tensorrt_llm", re.I)
"""How engines name their processes (vllm/utils/system_utils.py set_process_title; trtllm-serve)."""

LAUNCHER = re.compile(r"vllm|trtllm|tritonserver|api_server|python|ray|mpirun|orted|slurm", re.I)
"""Words in the command of a process that may have started an engine and still look after it."""


@frozen
class Owner:
    """A process with GPU memory. Without a proof that /proc speaks of the same one, only its PID."""

    gpu: int
    pid: int
    used: int | None
    name: str | None
    age_s: float | None
    orphan: bool
    """An engine's process whose ancestors hold no API server and no launcher."""
    started: int | None = None
    """Its start in ticks after the boot: with the PID it names this process for good."""


@frozen
class GpuOwners:
    """The owners of all memory on all GPUs that the driver lists."""

    owners: tuple[Owner, ...] = field(metadata={"report": False})
    source: str
    gaps: tuple[str, ...] = ()


@probe
def gpu_owners(processes: GpuProcesses, host: Host | None, identity: Identity | None) -> GpuOwners:
    """Follow each PID up to PID 1; a PID counts only where the doctor sees the host's name space."""
    seen: dict[int, Mapping[str, Any] | None] = {}
    clock: tuple[int, float | None] = (1, None)
    if host is not None and identity is not None and processes.processes:
        seen, clock = _ancestors(host, sorted({row.pid for row in processes.processes}))
    owners = [
        _owner(row, seen, clock, initial=identity is not None and identity.initial_pid_namespace)
        for row in processes.processes
    ]
    return GpuOwners(owners=tuple(owners), source=processes.source, gaps=processes.gaps)


def _ancestors(
    host: Host, pids: list[int]
) -> tuple[dict[int, Mapping[str, Any] | None], tuple[int, float | None]]:
    """All processes up to PID 1, with clock ticks a second and the uptime in seconds."""
    seen: dict[int, Mapping[str, Any] | None] = {}
    ticks, uptime = 1, None
    wanted = [*pids, 1]
    while wanted:
        try:
            answer = host.ask("processes", pids=wanted)
        except Unavailable:
            return seen, (ticks, uptime)
        ticks = answer["clock_ticks"]
        uptime = float((answer["uptime"] or "0").split()[0]) or None
        seen |= {int(pid): found for pid, found in answer["processes"].items()}
        parents = {found["ppid"] for found in seen.values() if found}
        wanted = sorted(parents - set(seen) - {0})
    return seen, (ticks, uptime)


def _owner(
    row: GpuProcess,
    seen: Mapping[int, Mapping[str, Any] | None],
    clock: tuple[int, float | None],
    *,
    initial: bool,
) -> Owner:
    found = seen.get(row.pid)
    if found is None or not (initial or found["holds_gpu"]):
        return Owner(
            gpu=row.gpu, pid=row.pid, used=row.used, name=row.name, age_s=None, orphan=False
        )
    ticks, uptime = clock
    age = uptime - found["start_ticks"] / ticks if uptime is not None else None
    name = row.name or " ".join(found["command"][:2]) or found["name"]
    return Owner(
        gpu=row.gpu,
        pid=row.pid,
        used=row.used,
        name=name,
        age_s=age,
        started=found["start_ticks"],
        orphan=bool(ENGINE_NAME.search(name)) and not _looked_after(row.pid, seen),
    )


def _looked_after(pid: int, seen: Mapping[int, Mapping[str, Any] | None]) -> bool:
    """Whether an ancestor, PID 1 included, could be the server or launcher of this process.

    In a container the API server often is PID 1, so a healthy engine has parent 1.
    """
    found = seen.get(pid)
    for _ in range(64):  # deeper than any real tree; a cycle cannot happen but costs nothing
        if found is None or found["ppid"] == 0:
            return False
        found = seen.get(found["ppid"])
        if found is None:
            return True  # not readable: no proof that nobody looks after it
        if LAUNCHER.search(" ".join([found["name"], *found["command"]])):
            return True
    return True
