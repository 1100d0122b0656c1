"""The memory of the host and the limits that control groups put on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.registry import probe

NO_LIMIT = 1 << 62
"""Version 1 writes "no limit" as the largest multiple of a page below 2^63; vLLM draws the line here
(vllm 0.32 utils/cpu_resource_utils.py:65-91)."""


SHM = "/dev/shm"  # noqa: S108 - looked at, never written


@frozen
class HostMemory:
    """/proc/meminfo in bytes. `total` counts what a balloon has taken and may give back."""

    total: int
    available: int | None = field(metadata={"report": False})


@frozen
class MemoryGroup:
    """One control group: its limit (None without), what is used, how much of that is file cache."""

    folder: str
    limit: int | None
    used: int | None = field(metadata={"report": False})
    cache: int = field(metadata={"report": False})

    @property
    def free(self) -> int | None:
        """What is left below the limit when the kernel drops the file cache."""
        if self.limit is None or self.used is None:
            return None
        return max(0, self.limit - max(0, self.used - self.cache))


@frozen
class MemoryGroups:
    """The groups that limit a process started from here, innermost first; none without a controller."""

    groups: tuple[MemoryGroup, ...]
    gaps: tuple[str, ...] = ()

    @property
    def tightest(self) -> MemoryGroup | None:
        """The group with the lowest limit."""
        limited = [group for group in self.groups if group.limit is not None]
        return min(limited, key=lambda group: group.limit or 0, default=None)


@frozen
class SharedMemory:
    """The bytes of /dev/shm; `total` None: there is none."""

    total: int | None
    free: int = field(metadata={"report": False})


@probe
def host_memory(host: Host) -> HostMemory:
    """Parse /proc/meminfo."""
    return parse_meminfo(host.read("/proc/meminfo"))


def parse_meminfo(text: str) -> HostMemory:
    """Rows "Name:  N kB"; raises Unavailable without MemTotal. `Balloon` stands there since Linux 6.16."""
    rows = {name: int(kib) * 1024 for name, kib in re.findall(r"^(\w+): +(\d+) kB$", text, re.M)}
    if "MemTotal" not in rows:
        raise Unavailable("/proc/meminfo has no row MemTotal")
    balloon = rows.get("Balloon", 0)
    available = rows.get("MemAvailable")
    return HostMemory(
        total=rows["MemTotal"] + balloon,
        available=None if available is None else available + balloon,
    )


@probe
def memory_groups(host: Host) -> MemoryGroups:
    """The files of the memory controller, up to the top that is visible from here."""
    found = host.ask("cgroup")
    groups = []
    gaps = []
    for row in found["groups"]:
        try:
            groups.append(parse_group(row["folder"], row["files"], found["version"]))
        except ValueError as error:
            gaps.append(f"{row['folder']}: {error}")
    return MemoryGroups(groups=tuple(groups), gaps=tuple(gaps))


def parse_group(folder: str, files: Mapping[str, Any], version: int) -> MemoryGroup:
    """Raises ValueError when a file holds no number. A missing file is no limit: the root has none."""
    stat: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", files.get("memory.stat") or "", re.M))
    if version == 1:
        limits = [files.get("memory.limit_in_bytes"), stat.get("hierarchical_memory_limit")]
        used, prefix = files.get("memory.usage_in_bytes"), "total_"
    else:
        limits = [files.get("memory.max"), files.get("memory.high")]
        used, prefix = files.get("memory.current"), ""
    numbers = [int(text) for text in limits if text is not None and text != "max"]
    cache = (int(stat.get(f"{prefix}{name}", 0)) for name in ("inactive_file", "active_file"))
    return MemoryGroup(
        folder=folder,
        limit=min((number for number in numbers if number < NO_LIMIT), default=None),
        used=None if used is None else int(used),
        cache=sum(cache),
    )


@probe
def shared_memory(host: Host) -> SharedMemory:
    """statvfs of /dev/shm: what engines themselves ask before they allocate."""
    found = host.ask("space", path=SHM)
    if found["path"] != SHM:
        return SharedMemory(total=None, free=0)
    return SharedMemory(total=found["total"], free=found["free"])
