"""The device nodes of NVIDIA in /dev and the numbers that the kernel gave the drivers behind them."""

from __future__ import annotations

import os
import stat
from typing import Any

Json = dict[str, Any]

DEVICES = "/dev"
NUMBERS = "/proc/devices"


def device_nodes() -> Json:
    """Each nvidia* character device with its numbers and whether this user may open it, never opened;
    `majors`: name of a driver -> its number now."""
    nodes = []
    for name in sorted(os.listdir(DEVICES)):
        if not name.startswith("nvidia"):
            continue
        path = f"{DEVICES}/{name}"
        try:
            found = os.stat(path)
        except OSError:  # a link that leads nowhere
            continue
        if stat.S_ISCHR(found.st_mode):
            nodes.append(
                {
                    "name": name,
                    "major": os.major(found.st_rdev),
                    "minor": os.minor(found.st_rdev),
                    "mode": stat.S_IMODE(found.st_mode),
                    "usable": os.access(path, os.R_OK | os.W_OK),
                }
            )
    return {"nodes": nodes, "majors": _majors()}


def _majors() -> dict[str, int]:
    """The lines "195 nvidia-frontend" of the character devices."""
    with open(NUMBERS, encoding="utf-8", errors="backslashreplace") as file:
        rows = [line.split() for line in file]
    return {
        row[1]: int(row[0])
        for row in rows
        if len(row) == 2 and row[0].isdigit() and row[1].startswith("nvidia")
    }
