"""Files and folders. Errors are OSError; the loop turns them into their errno names."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat as modes
from typing import Any

Json = dict[str, Any]


def open_regular(path: str) -> int:
    """Open a regular file without waiting: a FIFO or a device is refused, never read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if modes.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    kind = os.fstat(descriptor).st_mode
    os.close(descriptor)
    if modes.S_ISDIR(kind):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)


def read_bytes(path: str, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes, and whether there were more."""
    descriptor = open_regular(path)
    try:
        parts: list[bytes] = []
        left = limit + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    data = b"".join(parts)
    return data[:limit], len(data) > limit


def read(path: str, limit: int) -> Json:
    """The text of a file; bytes that are not UTF-8 are written as \\xNN."""
    data, truncated = read_bytes(path, limit)
    return {"text": data.decode("utf-8", "backslashreplace"), "truncated": truncated}


def list_folder(path: str) -> Json:
    """The names in a folder, sorted; at most 20,000."""
    names = sorted(os.listdir(path))
    safe = [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in names]
    return {"names": safe[:20_000], "truncated": len(names) > 20_000}


def stat(path: str) -> Json:
    """Kind, mode, owner and size, through links."""
    found = os.stat(path)
    kinds = ((modes.S_ISREG, "file"), (modes.S_ISDIR, "folder"), (modes.S_ISCHR, "device"))
    return {
        "kind": next((name for test, name in kinds if test(found.st_mode)), "other"),
        "mode": modes.S_IMODE(found.st_mode),
        "uid": found.st_uid,
        "size": found.st_size,
        "writable": os.access(path, os.W_OK),
        "executable": os.access(path, os.X_OK),
    }


def real(path: str) -> Json:
    """The path without links; raises OSError when it leads nowhere."""
    return {"path": os.path.realpath(path, strict=True)}


def which(name: str, path: str) -> Json:
    """The first executable of that name in the folders of a PATH, or null."""
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return {"path": candidate}
    return {"path": None}


def space(path: str) -> Json:
    """The file system that holds the path or its nearest existing parent: room, mount, type."""
    while True:
        try:
            room = os.statvfs(path)
            break
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent == path:
                raise
            path = parent
    where = os.path.realpath(path)
    mount = _mount_of(where)
    return {
        "path": path,
        "real": where,
        "device": os.stat(path).st_dev,
        "total": room.f_frsize * room.f_blocks,
        "free": room.f_frsize * room.f_bavail,
        "inodes": room.f_files,
        "inodes_free": room.f_favail,
        "read_only": bool(room.f_flag & os.ST_RDONLY),
        "writable": os.access(path, os.W_OK | os.X_OK),
        "mount": mount["point"] if mount else None,
        "type": mount["type"] if mount else None,
    }


def _mount_of(path: str) -> Json | None:
    """The mount with the longest point above the path; of several on one point the last counts."""
    found: Json | None = None
    for row in mounts()["mounts"]:
        point = row["point"]
        above = path == point or path.startswith(point.rstrip("/") + "/")
        if above and (found is None or len(point) >= len(found["point"])):
            found = row
    return found


def mounts() -> Json:
    """Mount point and type of every mount; what is mounted stays out: it may name hosts."""
    data, _ = read_bytes("/proc/self/mountinfo", 4 << 20)
    rows = []
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 6 or not kind[0]:
            continue
        rows.append({"point": unescape(fields[4]), "type": kind[0], "options": fields[5]})
    return {"mounts": rows}


def unescape(field: str) -> str:
    """A field of mountinfo: spaces and the like are written as \\NNN (proc(5))."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def find(path: str, pattern: str, limit: int) -> Json:
    """Whole ASCII strings in a binary file that match `pattern`; at most `limit` of them."""
    descriptor = open_regular(path)
    try:
        if os.fstat(descriptor).st_size == 0:
            return {"matches": []}
        with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as data:
            matches: list[str] = []
            for match in re.finditer(pattern.encode(), data):
                matches.append(match.group(0).decode("ascii", "replace"))
                if len(matches) == limit:
                    break
            return {"matches": matches}
    finally:
        os.close(descriptor)
