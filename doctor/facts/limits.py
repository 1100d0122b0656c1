"""What the kernel lets a process of this session have: locked memory, open files, RDMA."""

from __future__ import annotations

import re
from typing import Any

from infer_doctor.facts.machine import WHOLE_UID_MAP
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

CAP_IPC_LOCK = 14
"""Number of the capability that lifts RLIMIT_MEMLOCK (capabilities(7))."""


@frozen
class Limit:
    """A resource limit as getrlimit(2) gives it; None is unlimited."""

    soft: int | None
    hard: int | None


@frozen
class ProcessLimits:
    """The limits that an engine started from here inherits."""

    memlock: Limit
    nofile: Limit


@frozen
class LockRight:
    """Whether a process started from here may lock memory beyond its limit."""

    unlimited: bool


@frozen
class Rdma:
    """InfiniBand and RoCE devices that this environment may use."""

    devices: tuple[str, ...]


@probe
def process_limits(host: Host) -> ProcessLimits:
    """getrlimit of the doctor's own process."""
    found = host.ask("limits")
    return ProcessLimits(memlock=_limit(found["memlock"]), nofile=_limit(found["nofile"]))


def _limit(pair: Any) -> Limit:
    soft, hard = (None if value == -1 else int(value) for value in pair)
    return Limit(soft=soft, hard=hard)


@probe
def lock_right(host: Host) -> LockRight:
    """CAP_IPC_LOCK in the first user name space: the kernel asks for it there (ib_umem_get)."""
    has = parse_capabilities(host.read("/proc/self/status")) >> CAP_IPC_LOCK & 1
    return LockRight(
        unlimited=bool(has) and host.read("/proc/self/uid_map").split() == WHOLE_UID_MAP
    )


def parse_capabilities(status: str) -> int:
    """The effective capabilities as bits; raises Unavailable when the line is not there."""
    found = re.search(r"^CapEff:\s*([0-9a-f]{16})\s*$", status, re.M)
    if found is None:
        raise Unavailable("/proc/self/status has no line CapEff")
    return int(found[1], 16)


@probe
def rdma(host: Host) -> Rdma:
    """/sys/class/infiniband, and the nodes without which no process can use what is there."""
    devices = _names(host, "/sys/class/infiniband")
    if not devices:
        raise Absent("no RDMA device: /sys/class/infiniband is empty or not there")
    if not any(name.startswith("uverbs") for name in _names(host, "/dev/infiniband")):
        raise Absent("no process can use RDMA here: /dev/infiniband has no uverbs node")
    return Rdma(devices=devices)


def _names(host: Host, folder: str) -> tuple[str, ...]:
    try:
        return host.list(folder)
    except Unavailable as error:
        if error.code == "ENOENT":
            return ()
        raise
