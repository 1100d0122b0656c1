"""What an ELF file says of itself: what the loader reads to find its libraries, and marks of a version.

pyelftools reads the same (a test compares the two on every library of the environment it runs in),
but takes 80 ms to import and 5 to 10 ms a file; this child looks at more than a hundred files beside
a report that has half a second. Layout: the System V ABI (gABI), chapters "Object Files" and "Dynamic
Linking". Only what is needed is read, by its place: cuBLAS alone has 500 MB.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Any

Json = dict[str, Any]

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_FLAGS_1, DT_RUNPATH = (
    0,
    1,
    5,
    14,
    15,
    0x6FFFFFFB,
    29,
)
NODEFLIB = 0x800
"""Bit of DT_FLAGS_1: the loader leaves out its default folders."""

SYMBOL_SIZE, PROGRAM_SIZE, SECTION_SIZE = 24, 56, 64

ENTRIES_LIMIT = 4096
TEXT_LIMIT = 65_536
"""No dynamic section seen has more than 100 entries; the longest search path has 1,500 bytes."""

NAMES_LIMIT, TEXTS_LIMIT, SYMBOLS_LIMIT = 8 << 20, 16 << 20, 32 << 20
"""Bytes of .dynstr, .rodata and .dynsym that are searched: the largest seen where it is asked for
are 0.3, 13.3 and 0.1 MB (libcudnn_graph.so.9, libnvrtc.so.13)."""

MATCHES_LIMIT = 200


class NotElf(ValueError):
    """The file is no ELF file with a dynamic section that this reader understands."""


class Elf:
    """An open 64-bit little-endian ELF file; raises NotElf."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        header = self._bytes(0, 64)
        if not header:
            raise NotElf("file too short")
        if header[:4] != b"\x7fELF":
            raise NotElf("invalid ELF header")
        if header[4:6] != b"\x02\x01":
            raise NotElf("wrong ELF class")
        if len(header) < 64:
            raise NotElf("file too short")
        self.machine: int = struct.unpack_from("<H", header, 18)[0]
        self._sections_at: int = struct.unpack_from("<Q", header, 40)[0]
        size, count, section_size, self._sections, self._names = struct.unpack_from(
            "<HHHHH", header, 54
        )
        if section_size != SECTION_SIZE:
            self._sections = 0
        if size != PROGRAM_SIZE:
            raise NotElf("its program headers have an unknown size")
        place: int = struct.unpack_from("<Q", header, 32)[0]
        table = self._bytes(place, size * count)
        self._loads: list[tuple[int, int, int]] = []
        self._dynamic = (0, 0)
        for row in struct.iter_unpack("<IIQQQQQQ", table[: len(table) // size * size]):
            kind, _, at, address, _, length, _, _ = row
            if kind == PT_LOAD:
                self._loads.append((address, length, at))
            elif kind == PT_DYNAMIC:
                self._dynamic = (at, length)

    def dynamic(self) -> Json:
        """needed, soname, rpath, runpath; `nodeflib` when the default folders are left out."""
        place, size = self._dynamic
        if not size:
            raise NotElf("no dynamic section")
        section = self._bytes(place, min(size, ENTRIES_LIMIT * 16))
        tags: dict[int, list[int]] = {}
        for tag, value in struct.iter_unpack("<QQ", section[: len(section) // 16 * 16]):
            if tag == DT_NULL:
                break
            tags.setdefault(tag, []).append(value)
        if DT_STRTAB not in tags:
            raise NotElf("no string table")
        strings = self._place(tags[DT_STRTAB][-1])

        def texts(tag: int) -> list[str]:
            return [self._text(strings + start) for start in tags.get(tag, ())]

        return {
            "machine": self.machine,
            "needed": texts(DT_NEEDED),
            "soname": next(iter(texts(DT_SONAME)), None),
            "rpath": next(iter(texts(DT_RPATH)), None),
            "runpath": next(iter(texts(DT_RUNPATH)), None),
            "nodeflib": bool(tags.get(DT_FLAGS_1, [0])[-1] & NODEFLIB),
        }

    def value(self, symbol: str) -> int | None:
        """The 32-bit number that a dynamic data symbol stands for."""
        names = self._section(".dynstr", NAMES_LIMIT)
        at = names.find(b"\0" + symbol.encode() + b"\0") + 1
        if not at:
            return None
        table = self._section(".dynsym", SYMBOLS_LIMIT)
        whole = table[: len(table) // SYMBOL_SIZE * SYMBOL_SIZE]
        for name, _, _, section, address, _ in struct.iter_unpack("<IBBHQQ", whole):
            if name == at and section:
                found = self._bytes(self._place(address), 4)
                return int.from_bytes(found, "little") if len(found) == 4 else None
        return None

    def names(self, pattern: str) -> list[str]:
        """The names of dynamic symbols that match, sorted."""
        return _matches(pattern, self._section(".dynstr", NAMES_LIMIT))

    def texts(self, pattern: str) -> list[str]:
        """The texts among the constants that match, sorted."""
        return _matches(pattern, self._section(".rodata", TEXTS_LIMIT))

    def _section(self, name: str, limit: int) -> bytes:
        """The content of a section; empty when there is none (section headers may be stripped)."""
        table = self._bytes(self._sections_at, self._sections * SECTION_SIZE)
        rows = list(
            struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // SECTION_SIZE * SECTION_SIZE])
        )
        if self._names >= len(rows):
            return b""
        names = self._bytes(rows[self._names][4], min(rows[self._names][5], TEXT_LIMIT))
        for row in rows:
            if names[row[0] : row[0] + len(name) + 1] == name.encode() + b"\0":
                return self._bytes(row[4], min(row[5], limit))
        return b""

    def _place(self, address: int) -> int:
        """An address in memory as a place in the file."""
        for start, length, at in self._loads:
            if start <= address < start + length:
                return at + address - start
        raise NotElf("a part of it is not in the file")

    def _text(self, place: int) -> str:
        size = 256
        while True:
            found, end, _ = self._bytes(place, size).partition(b"\0")
            if end:
                return found.decode("utf-8", "backslashreplace")
            if size >= TEXT_LIMIT or len(found) < size:
                raise NotElf("a text in it has no end")
            size *= 16

    def _bytes(self, place: int, size: int) -> bytes:
        """At most `size` bytes; fewer at the end of the file, none beyond it."""
        try:
            return os.pread(self._descriptor, size, place)
        except OverflowError:
            raise NotElf("a part of it is not in the file") from None


def _matches(pattern: str, data: bytes) -> list[str]:
    found: set[bytes] = set()
    for match in re.finditer(pattern.encode(), data):
        found.add(match[0])
        if len(found) == MATCHES_LIMIT:
            break
    return sorted(text.decode("ascii", "replace") for text in found)
