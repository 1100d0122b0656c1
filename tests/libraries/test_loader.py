"""Our loader against the real one, on small libraries in random arrangements."""

from __future__ import annotations

import json
import os
import platform
import posixpath
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import elf_file
import pytest

from infer_doctor.hands.libraries import libraries
from infer_doctor.loading.loader import Loader, Mapped, Scan, Unloadable

NAMES = [f"lib{letter}.so.1" for letter in "abcdef"]
FOLDERS = ["f0", "f1", "f2", "f3"]

CANNOT_START = 127
"""The loader's own exit status when the program lacks a library."""

REAL = """
import ctypes, json, os, sys
root, steps = sys.argv[1], json.loads(sys.argv[2])
dlopen = ctypes.CDLL(None).dlopen
dlopen.restype = ctypes.c_void_p
for caller, name in steps:
    if caller is None:
        try:
            ctypes.CDLL(name)
        except OSError:
            pass
        continue
    try:
        inside = ctypes.CDLL(caller, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        continue
    call = inside.call_from_here
    call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    call(ctypes.cast(dlopen, ctypes.c_void_p), name.encode(), os.RTLD_LAZY)
seen = []
for line in open("/proc/self/maps"):
    path = line.rstrip("\\n").split(None, 5)[5:]
    if path and path[0].startswith(root) and path[0] not in seen:
        seen.append(path[0])
print(json.dumps(sorted(seen)))
"""
"""Opens names in order, from this program or from inside a loaded library; prints what is mapped."""


def real(root: Path, steps: list[Any], variables: dict[str, str], folder: Path) -> list[str] | None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", REAL, str(root), json.dumps(steps)],
        env={**variables, "PATH": os.environ["PATH"]},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == CANNOT_START:
        return None
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def played(
    root: Path, steps: list[Any], variables: dict[str, str], folder: Path
) -> list[str] | None:
    folders = [f"{root}/{name}" for name in FOLDERS]
    answer = libraries([*folders, str(folder)], r"lib\w\.so\.1")
    loader = Loader(
        Scan(answer["folders"], answer["files"], answer["linked"]),
        machine=platform.machine(),
        knows=lambda name: name in NAMES,
        library_path=variables.get("LD_LIBRARY_PATH", ""),
        folder=str(folder),
    )
    try:
        main = loader.start("/python", variables.get("LD_PRELOAD", "").split())
    except Unloadable:
        return None
    for caller, name in steps:
        opener: Mapped | None = main if caller is None else loader.find(caller)
        if opener is not None:
            try:
                loader.open(name, opener)
            except Unloadable:
                continue
    return sorted(mapped.real for mapped in loader.objects[1:])


def arrange(root: Path, rng: random.Random) -> tuple[list[Any], dict[str, str], Path]:
    """Copies of libraries in folders, with random search paths; what to open; the variables."""

    def search_path() -> str:
        parts = [f"$ORIGIN/../{rng.choice(FOLDERS)}", "$ORIGIN", str(root / rng.choice(FOLDERS))]
        parts += ["${ORIGIN}/../" + rng.choice(FOLDERS), f"{root}/none", ""]
        return ":".join(rng.sample(parts, rng.randint(1, 3)))

    (root / "deep").mkdir(parents=True)
    for folder in FOLDERS:
        if folder == "f3":  # a link into another depth: `..` behind it leads elsewhere
            (root / "deep" / folder).mkdir()
            (root / "deep" / "f1").mkdir()
            (root / "deep" / "f1" / "liba.so.1").write_bytes(elf_file.library("liba.so.1"))
            (root / folder).symlink_to("deep/f3")
        else:
            (root / folder).mkdir()
        for name in NAMES:
            path = root / folder / name
            kind = rng.random()
            if kind < 0.75:
                tags: dict[str, str] = {}
                for tag, chance in (("rpath", 0.6), ("runpath", 0.4)):
                    if rng.random() < chance:
                        tags[tag] = search_path()
                needed = rng.sample(NAMES, rng.choice([0, 0, 0, 1, 2]))
                path.write_bytes(elf_file.library(name, needed, **tags))
            elif kind < 0.79:
                path.symlink_to("gone")
            elif kind < 0.83:
                path.symlink_to(f"../f0/{name}" if folder != "f0" else "gone")
            elif kind < 0.86:
                path.write_bytes(elf_file.library(name, machine=40))  # 32-bit Arm's number
            elif kind < 0.87:
                path.write_bytes(b"")
    steps: list[Any] = []
    for _ in range(rng.randint(2, 8)):
        caller = rng.choice([None, None, *NAMES])
        name = rng.choice(NAMES)
        steps.append(
            [caller, str(root / rng.choice(FOLDERS) / name) if rng.random() < 0.3 else name]
        )
    variables = {}
    if rng.random() < 0.8:
        entries = rng.sample([*(f"{root}/{name}" for name in FOLDERS), "", "f1", "../f2"], 2)
        variables["LD_LIBRARY_PATH"] = rng.choice(":;").join(entries)
    if rng.random() < 0.15:
        variables["LD_PRELOAD"] = str(root / rng.choice(FOLDERS) / rng.choice(NAMES))
    return steps, variables, root / rng.choice(FOLDERS)


@pytest.mark.parametrize("seed", range(40))
def test_loads_what_the_real_loader_loads(tmp_path: Path, seed: int) -> None:
    root = Path(posixpath.realpath(tmp_path))
    steps, variables, folder = arrange(root, random.Random(seed))
    assert played(root, steps, variables, folder) == real(root, steps, variables, folder), (
        steps,
        variables,
    )


def test_the_arrangements_load_something(tmp_path: Path) -> None:
    """Else the comparison would compare nothing with nothing."""
    loaded = []
    for seed in range(40):
        root = Path(posixpath.realpath(tmp_path)) / str(seed)
        steps, variables, folder = arrange(root, random.Random(seed))
        loaded.append(len(played(root, steps, variables, folder) or ()))
    assert sum(loaded) > 40
    assert 0 in loaded
