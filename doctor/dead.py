"""Places that did not answer: nothing more is asked below a mount that hangs."""

from __future__ import annotations

import os

FOLLOWED = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs")
)
"""File systems without a server: reading a link there cannot hang."""

LINKS = 40
"""Links that the kernel follows at most (path_resolution(7))."""


class DeadPlaces:
    """What was silent, by mount where there is one, else by the very path."""

    def __init__(self) -> None:
        self._dead: set[str] = set()

    def add(self, path: str) -> None:
        """Remember a path that did not answer."""
        self._dead |= {path, mount_of(path, mounts()) or path}

    def reason(self, path: str) -> str | None:
        """Why nothing need be asked about the path, or None."""
        if not self._dead:
            return None
        if path in self._dead:
            return "it did not answer before"
        place = mount_of(path, mounts())
        return f"the mount {place} does not answer" if place in self._dead else None


def mounts() -> dict[str, str]:
    """Mount point -> type of file system."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
            rows = [line.split(" ") for line in table]
    except OSError:
        return {}
    return {row[1].replace("\\040", " "): row[2] for row in rows if len(row) > 2}


def mount_of(path: str, mounts: dict[str, str]) -> str | None:
    """The mount with a server that the path leads to, None when it stays on local file systems.

    Links are followed as long as they stand on a local file system, where that cannot hang.
    """
    place, links = "/", 0
    left = path.strip("/").split("/")[::-1]
    while left and path.startswith("/"):
        place = os.path.normpath(os.path.join(place, left.pop()))
        if place in mounts and mounts[place] not in FOLLOWED:
            whole = os.path.normpath(os.path.join(place, *left[::-1]))
            inner = [m for m in mounts if whole == m or whole.startswith(f"{m}/")]
            return max(inner, key=len)
        try:
            target = os.readlink(place)
        except OSError:
            continue
        links += 1
        if links > LINKS:
            break
        left += target.strip("/").split("/")[::-1]
        place = "/" if target.startswith("/") else os.path.dirname(place)
    return None
