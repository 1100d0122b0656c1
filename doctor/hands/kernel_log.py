"""The kernel's log, read once and without waiting: lines of the driver, the PCI bus and lost memory."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]

LOG = "/dev/kmsg"

KEPT = re.compile(
    rb"nvrm|nvidia|\bxid\b|pcieport|\baer\b|out of memory|oom-kill|killed process", re.IGNORECASE
)
"""The rest of the log is not taken along: it may name anything."""

RECORD_LIMIT = 8192
"""Bytes of one record; the kernel refuses a read with less room than its longest record needs."""

LINES_LIMIT = 2000
"""A log may be full of one fault; the last lines are kept."""


def kernel_log() -> Json:
    """[seconds since boot, text] of each line that is kept; `first`: when the log begins."""
    descriptor = os.open(LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = keep(_records(descriptor))
    finally:
        os.close(descriptor)
    return {"now": time.clock_gettime(time.CLOCK_MONOTONIC), **found}


def _records(descriptor: int) -> Iterator[bytes]:
    """One read, one record; the next read after the last says EAGAIN."""
    while True:
        try:
            record = os.read(descriptor, RECORD_LIMIT)
        except BlockingIOError:
            return
        except BrokenPipeError:  # it was overwritten while we read: the next is the oldest left
            continue
        if not record:
            return
        yield record


def keep(records: Iterable[bytes]) -> Json:
    """A record is "priority,number,microseconds,flags;text", then lines of names and values that
    begin with a space (kernel: Documentation/ABI/testing/dev-kmsg)."""
    lines: list[tuple[float, str]] = []
    first: float | None = None
    for record in records:
        head, _, rest = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 3 or not fields[2].isdigit():
            continue
        seconds = int(fields[2]) / 1e6
        first = seconds if first is None else first
        text = rest.partition(b"\n")[0]
        if KEPT.search(text):
            lines.append((seconds, text.decode("utf-8", "backslashreplace")))
    return {
        "first": first,
        "lines": lines[-LINES_LIMIT:],
        "dropped": max(0, len(lines) - LINES_LIMIT),
    }
