"""The bytes of logs: files, rotated and gzipped ones, standard input, containers.

Everything is read in blocks; nothing is kept. A regular file is read to the size that it had when it
was opened, so that one which grows ends too.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.live import require_answer

BLOCK = 1 << 20
"""Bytes of one read; larger ones are no faster (bench/diagnose_speed.py)."""

UNPACKED_LIMIT = 4 << 30
"""Bytes that a .gz may unpack to: the largest logs people rotate have some GB; a bomb has more."""

GZIP = b"\x1f\x8b"
PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
"""Magic bytes of forms that are not unpacked here -> their program."""

ROTATED = re.compile(r"(?P<base>.+?)(?:[.-](?P<number>\d+))?(?:\.gz)?$")
"""logrotate(8): serve.log, serve.log.1, serve.log.2.gz, serve.log-20261130.gz."""

DATE_DIGITS = 8
"""serve.log-20261130: a later date is younger; serve.log.3: a larger number is older."""

CONTROL_SHARE = 0.05
"""Of the first block: more control characters than this is no text. A log has tabs, line ends and
ANSI colours; an ELF or safetensors file 20 to 40 %."""

CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r\x1b\x08\x0c\0") + b"\x7f"


class NotALog(Exception):
    """The source cannot be read as a log; the text says why."""


@frozen
class Piece:
    """One file of a log, oldest first where it was rotated."""

    path: str
    name: str
    """As the report names it."""
    container: bool = False


def order(paths: Sequence[str]) -> list[list[Piece]]:
    """The paths as logs: rotated files of one name are one log, oldest first."""
    groups: dict[str, list[tuple[tuple[int, int], str]]] = {}
    for path in dict.fromkeys(paths):
        match = ROTATED.match(path)
        number = (match and match["number"]) or ""
        base = path if path == "-" or not match else match["base"]
        if len(number) >= DATE_DIGITS:
            age = (0, int(number))
        elif number:
            age = (0, -int(number))
        else:
            age = (1, 0)  # the one that is written now
        groups.setdefault(base, []).append((age, path))
    return [
        [Piece(path=path, name="stdin" if path == "-" else path) for _, path in sorted(rows)]
        for rows in groups.values()
    ]


def blocks(piece: Piece) -> Iterator[bytes]:
    """The content in blocks of at most BLOCK; raises NotALog."""
    if piece.container:
        from infer_doctor.logs.container import blocks_of

        raw = blocks_of(piece.name)
    else:
        raw = _standard_input() if piece.path == "-" else _file(piece.path)
    first = next(raw, b"")
    for magic, program in PACKED.items():
        if first.startswith(magic):
            raise NotALog(f"{piece.name}: is packed with {program}; unpack it first")
    if first.startswith(GZIP):
        raw, first = _unpacked(piece.name, first, raw), b""
        first = next(raw, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's ">"
        yield from _from_utf16(first, raw)
        return
    text = first.replace(b"\0", b"")
    if text and (len(text) - len(text.translate(None, CONTROL))) / len(text) > CONTROL_SHARE:
        raise NotALog(f"{piece.name}: is binary, not a log")
    if first:
        yield first
    yield from raw


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is None:  # it was closed before the start
        raise NotALog("-: standard input is closed")
    descriptor = sys.stdin.buffer.fileno()
    while block := os.read(descriptor, BLOCK):
        yield block


def _file(path: str) -> Iterator[bytes]:
    try:
        require_answer(path)
    except Unavailable as error:
        raise NotALog(error.reason) from None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotALog(f"{path}: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise NotALog(f"{path}: is a folder; name the log file in it")
        if not stat.S_ISREG(found.st_mode):  # a pipe of the shell: <(kubectl logs ...)
            os.set_blocking(descriptor, True)
            while block := os.read(descriptor, BLOCK):
                yield block
            return
        left = found.st_size
        while left > 0 and (block := os.read(descriptor, min(BLOCK, left))):
            left -= len(block)
            yield block
    except OSError as error:
        raise NotALog(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _unpacked(name: str, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """gzip, several members too; at most UNPACKED_LIMIT, and never more than BLOCK at once."""
    total = 0
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    data = first
    try:
        while True:
            block = unpacker.decompress(data, BLOCK)
            if block:
                total += len(block)
                yield block
            if total >= UNPACKED_LIMIT:
                raise NotALog(
                    f"{name}: unpacks to more than {UNPACKED_LIMIT >> 30} GiB; give the end of it: "
                    f"zcat {name} | tail -n 1000000 | infer-doctor diagnose -"
                )
            if unpacker.eof:
                data = unpacker.unused_data or next(rest, b"")
                if not data.startswith(GZIP):
                    return
                unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
            else:
                data = unpacker.unconsumed_tail or next(rest, b"")
                if not data:
                    return  # cut off: what was there is there
    except zlib.error as error:
        if total == 0:
            raise NotALog(f"{name}: is no gzip file that can be unpacked ({error})") from None


def _from_utf16(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for block in rest:
        yield decoder.decode(block).encode("utf-8", "replace")
