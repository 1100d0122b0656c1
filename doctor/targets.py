"""TARGET: a file that somebody already has, told apart by what it holds."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from infer_doctor.host import Unavailable
from infer_doctor.live import require_answer

if TYPE_CHECKING:
    from infer_doctor.foreign.text import Facts

FILE_LIMIT = 64 << 20
"""Bytes; a snapshot of a machine with 300 distributions has 2 MB."""

OUTPUT_LIMIT = 4 << 20
"""Characters; `nvidia-smi -q -x` of a GPU with many clocks has 122,000, so 16 GPUs 2 million."""

SMI_FAILURE = re.compile(
    r"NVIDIA-SMI has failed because[^\n]{0,80}|Failed to initialize NVML: [^\n]{1,80}"
    r"|No devices were found"
)
"""What nvidia-smi prints instead of its output (docs.nvidia.com/deploy/nvidia-smi, exit codes)."""


class NoTarget(Exception):
    """The target cannot be examined; the text says why."""


def read_text(path: str) -> str:
    """The text of a file of at most FILE_LIMIT; raises NoTarget with one clear sentence."""
    try:
        require_answer(path)
    except Unavailable as error:
        raise NoTarget(error.reason) from None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NoTarget(f"{path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise NoTarget(f"{path}: is a folder; this version examines files")
        if not stat.S_ISREG(found.st_mode):
            raise NoTarget(f"{path}: is no regular file")
        if found.st_size > FILE_LIMIT:
            raise NoTarget(f"{path}: {found.st_size:,} bytes are too many (at most {FILE_LIMIT:,})")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(FILE_LIMIT + 1) or b""
    except OSError as error:
        raise NoTarget(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's ">"
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8", "backslashreplace")
    if "\0" in text:
        raise NoTarget(f"{path}: is binary, not text")
    if not text.strip("\ufeff \t\r\n"):
        raise NoTarget(f"{path}: is empty")
    return text


def is_snapshot(path: str) -> bool:
    """Whether the file is JSON: of the files that are known, only snapshots are."""
    return read_text(path).lstrip("\ufeff \t\r\n").startswith("{")


def facts_of(path: str) -> Facts:
    """The facts that a foreign file holds; raises NoTarget."""
    from infer_doctor.foreign.text import Unreadable, clean

    try:
        return facts_in(clean(read_text(path)), os.path.basename(path))
    except Unreadable as error:
        raise NoTarget(f"{path}: {error}") from None


def facts_in(text: str, source: str) -> Facts:
    """The facts that a text holds; raises Unreadable with words that complete "FILE: ..."."""
    from infer_doctor.foreign.text import Unreadable

    if len(text) > OUTPUT_LIMIT:
        raise Unreadable(
            f"{len(text):,} characters are too many for an output of nvidia-smi or collect_env "
            f"(at most {OUTPUT_LIMIT:,})"
        )
    for recognise, parse in _readers():
        if recognise(text):
            return parse(text, source)
    if failure := SMI_FAILURE.search(text):
        raise Unreadable(
            f"nvidia-smi failed there ({failure[0].strip()}); "
            "`infer-doctor check` on that machine says why"
        )
    raise Unreadable(
        "is no file that infer-doctor knows (vllm collect-env, torch collect_env, nvidia-smi, "
        "nvidia-smi -q, nvidia-smi -q -x, a snapshot)"
    )


def _readers() -> Sequence[tuple[Callable[[str], bool], Callable[[str, str], Facts]]]:
    """(recognises the text, facts of the text and its file name), the surest first."""
    from infer_doctor.foreign import collect_env, smi_query, smi_table

    return (
        (smi_query.is_xml, smi_query.read_xml),
        (collect_env.is_collect_env, collect_env.read_collect_env),
        (smi_query.is_text, smi_query.read_text),
        (smi_table.is_table, smi_table.read_table),
    )
