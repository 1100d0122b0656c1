"""The reader of ELF files against pyelftools, and on damaged files."""

from __future__ import annotations

import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from infer_doctor.hands.elf import Elf, NotElf

SAMPLE = 200
TAGS = {"DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}


def libraries() -> list[Path]:
    """Shared libraries and programs of this environment: whatever there is."""
    roots = {Path(sysconfig.get_path("platlib")), Path(sysconfig.get_path("platstdlib"))}
    found = {path for root in roots for path in root.rglob("*.so*") if path.is_file()}
    found |= {Path(sys.executable).resolve(), Path("/bin/sh").resolve()}
    found |= {path for path in Path("/usr/lib").glob("*-linux-gnu/*.so.*") if path.is_file()}
    rows = sorted(found)
    return rows if len(rows) <= SAMPLE else sorted(random.Random(1).sample(rows, SAMPLE))


def by_pyelftools(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"needed": [], "soname": None, "rpath": None, "runpath": None}
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_DYNAMIC"):
            for tag in segment.iter_tags():
                kind = tag.entry.d_tag
                if kind == "DT_NEEDED":
                    found["needed"].append(tag.needed)
                elif kind in TAGS:
                    found[TAGS[kind]] = getattr(tag, TAGS[kind])
    return found


def dynamic(path: Path) -> dict[str, Any]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return Elf(descriptor).dynamic()
    finally:
        os.close(descriptor)


def test_reads_what_pyelftools_reads() -> None:
    compared = 0
    for path in libraries():
        try:
            found = dynamic(path)
        except NotElf:  # a linker script such as libc.so, or a program without libraries
            with path.open("rb") as file:
                assert file.read(4) != b"\x7fELF", path
            continue
        wanted = by_pyelftools(path)
        assert {key: found[key] for key in wanted} == wanted, path
        compared += 1
    assert compared > 10


@pytest.fixture(scope="module")
def small() -> bytes:
    """The smallest shared library of this environment that has symbols and constants."""
    real = [path for path in libraries() if path.read_bytes()[:4] == b"\x7fELF"]
    return min(real, key=lambda path: path.stat().st_size).read_bytes()


def everything(data: bytes) -> Iterator[Any]:
    """All that the reader can be asked about these bytes."""
    descriptor = os.memfd_create("damaged")
    try:
        os.write(descriptor, data)
        elf = Elf(descriptor)
        yield elf.dynamic()
        yield elf.value("_init")
        yield elf.names(r"Py\w+")
        yield elf.texts(r"\w{4,}")
    finally:
        os.close(descriptor)


def survives(data: bytes) -> None:
    try:
        for _ in everything(data):
            pass
    except NotElf:
        pass


def test_cut_off(small: bytes) -> None:
    for size in [*range(512), *range(512, len(small), 97)]:
        survives(small[:size])


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged(small: bytes, data: st.DataObject) -> None:
    damaged = bytearray(small)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, min(len(damaged), 4096) - 1) | st.integers(0, len(small)))
        part = data.draw(st.binary(min_size=1, max_size=16))
        damaged[place : place + len(part)] = part
    survives(bytes(damaged))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "file too short"),
        (b"#!/bin/sh\nexit 1\n", "invalid ELF header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "invalid ELF header"),
        (b"\x7fELF\x01\x01" + bytes(58), "wrong ELF class"),
        (b"\x7fELF\x02\x01" + bytes(20), "file too short"),
    ],
)
def test_what_is_no_library(data: bytes, words: str) -> None:
    with pytest.raises(NotElf, match=words):
        list(everything(data))
