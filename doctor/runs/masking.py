"""Kept logs without secrets: masked when their start is over, or when Ctrl-C ends everything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from infer_doctor.redact import mask_line

END_BYTES = 2 << 20
"""Of a kept log at its beginning and at its end: a start that fails writes some hundred lines."""

OPEN: set[str] = set()
"""Kept logs that are still written; `__main__` has them masked when it is interrupted."""


@contextlib.contextmanager
def masked_after(log: str) -> Iterator[None]:
    """A log that is kept."""
    OPEN.add(log)
    try:
        yield
    finally:
        masked(Path(log))
        OPEN.discard(log)


def mask_open() -> None:
    """All of them, now."""
    for log in list(OPEN):
        masked(Path(log))


def masked(log: Path) -> None:
    """A kept log without secrets: engines print their arguments. Of a long one both ends are kept."""
    made = log.with_suffix(".masked")
    try:
        with open(log, "rb") as file, open(made, "w", encoding="utf-8") as out:
            size = os.fstat(file.fileno()).st_size
            for raw in file:
                out.write(mask_line(raw.decode("utf-8", "replace")))
                if END_BYTES < file.tell() < size - END_BYTES:
                    out.write(f"... {size - END_BYTES - file.tell():,} bytes left out\n")
                    file.seek(size - END_BYTES)
                    file.readline()
        os.replace(made, log)
    except OSError:
        log.unlink(missing_ok=True)  # rather none than one with secrets
        made.unlink(missing_ok=True)
