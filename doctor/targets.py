"""TARGET: a file that somebody already has, told apart by what it holds."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence

FILE_LIMIT = 64 << 20
"""Bytes; a snapshot of a machine with 300 distributions has 2 MB, `nvidia-smi -q -x` of 16 GPUs 1 MB."""


class NoTarget(Exception):
    """The target cannot be examined; the text says why."""


def read_text(path: str) -> str:
    """The text of a file of at most FILE_LIMIT; raises NoTarget with one clear sentence."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NoTarget(f"{path}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISDIR(found.st_mode):
            raise NoTarget(f"{path}: is a folder; this version examines files")
        if not stat.S_ISREG(found.st_mode):
            raise NoTarget(f"{path}: is no regular file")
        if found.st_size > FILE_LIMIT:
            raise NoTarget(f"{path}: {found.st_size:,} bytes are too many (at most {FILE_LIMIT:,})")
        data = file.read(FILE_LIMIT + 1)
    if not data.strip():
        raise NoTarget(f"{path}: is empty")
    if b"\0" in data:
        raise NoTarget(f"{path}: is binary, not text")
    return data.decode("utf-8", "backslashreplace")


def facts_of(path: str) -> Sequence[object]:
    """The facts that a foreign file holds; raises NoTarget."""
    text = read_text(path)
    for recognise, parse in _readers():
        if recognise(text):
            try:
                return parse(text, os.path.basename(path))
            except ValueError as error:
                raise NoTarget(f"{path}: {error}") from None
    raise NoTarget(
        f"{path}: is no file that infer-doctor knows (vllm collect-env, torch collect_env, "
        "nvidia-smi -q, nvidia-smi -q -x, a snapshot with --snapshot)"
    )


def _readers() -> Sequence[tuple[Callable[[str], bool], Callable[[str, str], Sequence[object]]]]:
    """(recognises the text, facts of the text and its file name), the surest first."""
    return ()
