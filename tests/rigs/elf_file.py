"""Shared libraries of a few hundred bytes, made without a compiler, that the real loader loads."""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping, Sequence

MACHINE = {"x86_64": 62, "aarch64": 183}[platform.machine()]

TRAMPOLINE = "call_from_here"
"""A function of every such library: call_from_here(f, a, b) returns f(a, b), called from inside it."""

CODE = {
    62: "4883ec08 4889f8 4889f7 4889d6 ffd0 4883c408 c3",
    # stp x29, x30, [sp, #-16]!; mov x3, x0; mov x0, x1; mov x1, x2; blr x3; ldp ...; ret
    183: "fd7bbfa9 e30300aa e00301aa e10302aa 60003fd6 fd7bc1a8 c0035fd6",
}

DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 1, 4, 5, 6, 10, 11
DT_SONAME, DT_RPATH, DT_RUNPATH = 14, 15, 29


def library(
    soname: str | None = None,
    needed: Sequence[str] = (),
    *,
    rpath: str | None = None,
    runpath: str | None = None,
    values: Mapping[str, int] | None = None,
    text: bytes = b"",
    machine: int = MACHINE,
) -> bytes:
    """The bytes of a library. `values` are 32-bit numbers by symbol, `text` its constants."""
    strings = bytearray(b"\0")

    def string(word: str) -> int:
        place = len(strings)
        strings.extend(word.encode() + b"\0")
        return place

    tags = [(DT_NEEDED, string(name)) for name in needed]
    for tag, word in ((DT_SONAME, soname), (DT_RPATH, rpath), (DT_RUNPATH, runpath)):
        if word is not None:
            tags.append((tag, string(word)))
    code = bytes.fromhex(CODE[MACHINE])
    names = {TRAMPOLINE: 0}
    constants = code + bytes(-len(code) % 8)
    for name, value in (values or {}).items():
        names[name] = len(constants)
        constants += struct.pack("<Q", value)
    constants += text
    at = 64 + 3 * 56
    symbols = bytearray(24)
    for name, offset in names.items():
        kind = 0x12 if name == TRAMPOLINE else 0x11  # a global function or object
        symbols += struct.pack("<IBBHQQ", string(name), kind, 0, 3, at + offset, 8)
    count = len(symbols) // 24
    chain = [*range(2, count), 0]  # one bucket, all symbols in a row
    hashes = struct.pack(f"<{4 + len(chain)}I", 1, count, 1, 0, *chain)
    where: dict[str, int] = {}
    body = b""
    parts = (("rodata", constants), ("sym", bytes(symbols)), ("str", bytes(strings)))
    for part, data in (*parts, ("hash", hashes)):
        where[part] = at + len(body)
        body += data + bytes(-len(data) % 8)
    tags += [
        (DT_HASH, where["hash"]),
        (DT_STRTAB, where["str"]),
        (DT_SYMTAB, where["sym"]),
        (DT_STRSZ, len(strings)),
        (DT_SYMENT, 24),
        (0, 0),
    ]
    dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    names_at = at + len(body) + len(dynamic)
    section_names = b"\0.rodata\0.dynsym\0.dynstr\0.shstrtab\0"
    sections_at = names_at + len(section_names) + -len(section_names) % 8
    sections = bytes(64)
    for name, place, size in (
        (b".rodata", where["rodata"], len(constants)),
        (b".dynsym", where["sym"], len(symbols)),
        (b".dynstr", where["str"], len(strings)),
        (b".shstrtab", names_at, len(section_names)),
    ):
        start = section_names.index(name + b"\0")
        sections += struct.pack("<IIQQQQIIQQ", start, 1, 2, place, place, size, 0, 0, 8, 0)
    size = sections_at + len(sections)
    programs = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, size, size, 4096)
    place = at + len(body)
    programs += struct.pack("<IIQQQQQQ", 2, 6, place, place, place, len(dynamic), len(dynamic), 8)
    programs += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # no executable stack
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, sections_at, 0, 64, 56, 3, 64, 5, 4
    )
    padding = bytes(-len(section_names) % 8)
    return header + programs + body + dynamic + section_names + padding + sections
