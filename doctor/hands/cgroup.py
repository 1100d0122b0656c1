"""Control groups: the memory files of this process's group and of those above it, as they stand."""

from __future__ import annotations

import os
from typing import Any

from .files import read_bytes, unescape

Json = dict[str, Any]

FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
    2: ("memory.max", "memory.high", "memory.current", "memory.stat"),
}
"""Version of the interface -> files (kernel: admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst)."""

DEPTH = 32
"""Groups above each other that are looked at; Kubernetes with systemd has about six."""


def cgroup() -> Json:
    """{"version": 0 (no memory controller), 1 or 2, "groups": innermost first}.

    Version 1 wins where both are mounted: a controller belongs to one hierarchy only.
    """
    own = [line.split(":", 2) for line in _lines("/proc/self/cgroup") if line.count(":") >= 2]
    mounts = [_mount(line) for line in _lines("/proc/self/mountinfo")]
    for version in (1, 2):
        path = next((row[2] for row in own if _controls_memory(row, version)), None)
        mount = next((m for m in mounts if m is not None and m["version"] == version), None)
        if path is not None and mount is not None:
            groups = _groups(mount["point"], _below(path, mount["root"]), FILES[version])
            return {"version": version, "groups": groups}
    return {"version": 0, "groups": []}


def _lines(path: str) -> list[str]:
    data, _ = read_bytes(path, 4 << 20)
    return data.decode("utf-8", "backslashreplace").splitlines()


def _controls_memory(row: list[str], version: int) -> bool:
    """Whether a line number:controllers:path of /proc/self/cgroup is the one that matters."""
    return "memory" in row[1].split(",") if version == 1 else row[0] == "0"


def _mount(line: str) -> Json | None:
    left, _, right = line.partition(" - ")
    fields, kind = left.split(" "), right.split(" ")
    if len(fields) < 6 or len(kind) < 3:
        return None
    if kind[0] == "cgroup2":
        version = 2
    elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
        version = 1
    else:
        return None
    return {"version": version, "root": unescape(fields[3]), "point": unescape(fields[4])}


def _below(path: str, root: str) -> str:
    """The group's path inside the mount; "" when the mount does not show more than the group.

    In a container the mount's root is the container's own group. In another cgroup name space than
    the mount's the path does not begin with the root, or climbs out with "..".
    """
    inside = path[len(root.rstrip("/")) :] if path.startswith(root.rstrip("/") + "/") else ""
    return "" if path == root or ".." in inside.split("/") else inside.rstrip("/")


def _groups(point: str, inside: str, names: tuple[str, ...]) -> list[Json]:
    rows: list[Json] = []
    while len(rows) < DEPTH:
        folder = point + inside
        rows.append({"folder": folder, "files": {name: _text(folder, name) for name in names}})
        if not inside:
            break
        inside = os.path.dirname(inside).rstrip("/")
    return rows


def _text(folder: str, name: str) -> str | None:
    """The text of a file; null when there is none: the root group of version 2 has no limit."""
    try:
        data, _ = read_bytes(f"{folder}/{name}", 16_384)
    except FileNotFoundError:
        return None
    return data.decode("utf-8", "backslashreplace").strip()
