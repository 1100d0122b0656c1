"""Whose socket listens on a port of 127.0.0.1: between its choice and an engine's bind others may take it."""

from __future__ import annotations

import contextlib
import os

from infer_doctor.runs.guard import below

LISTEN = "0A"
"""TCP_LISTEN of the kernel's tcp_states.h, as /proc/net/tcp writes it."""


def _inodes(port: int) -> set[str]:
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        ends = f":{port:04X}"
        found |= {row[9] for row in rows if row[3] == LISTEN and row[1].endswith(ends)}
    return found


def listens(port: int) -> bool:
    """Whether anybody does."""
    return bool(_inodes(port))


def is_below(port: int, root: int) -> bool | None:
    """Whether it is a descendant of this process; None where that cannot be seen."""
    inodes = _inodes(port)
    if not inodes:  # of another network name space
        return None
    hidden = False
    for pid in below(root):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except FileNotFoundError:  # it ended meanwhile
            continue
        except OSError:
            hidden = True
            continue
        for name in names:
            with contextlib.suppress(OSError):  # closed meanwhile
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.removeprefix("socket:[").removesuffix("]") in inodes:
                    return True
    return None if hidden else False
