"""Virtual environments made of links to a real one with a torch for CUDA, so that a test can change
one library; and what the real loader does in them."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
from pathlib import Path

SCRIPT = """
import ctypes, json, os
report = {"errors": {}, "versions": {}}
def step(name, function):
    try:
        report["versions"][name] = function()
    except Exception as error:
        report["errors"][name] = str(error)
def nvrtc():
    library = ctypes.CDLL("libnvrtc.so." + torch.version.cuda.split(".")[0])
    program, source = ctypes.c_void_p(), b"__global__ void f(float *x) { x[0] = 1.f; }"
    library.nvrtcCreateProgram(ctypes.byref(program), source, b"f.cu", 0, None, None)
    return library.nvrtcCompileProgram(program, 0, None)
def part(name):
    shim = ctypes.CDLL("libcudnn.so.9")
    return lambda: getattr(shim, f"cudnn{name}VersionCheck")()
def driver(name):
    library = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
    return library.cudaGetDeviceCount(ctypes.byref(ctypes.c_int()))
def import_torch():
    global torch
    import torch
step("import torch", import_torch)
if "import torch" not in report["errors"]:
    for name in ("Graph", "Ops", "Cnn", "Adv"):
        step(name, part(name))
    step("nvrtc", nvrtc)
    step("driver", lambda: driver("libcuda.so.1"))
print(json.dumps(report))
"""
"""What the engine's process does with libraries, as far as it can be done without a GPU."""


def farm(real: Path, root: Path) -> Path:
    """A virtual environment at `root` with a link for each package, and one for each library."""
    (site,) = real.glob("lib/python3*/site-packages")
    here = root / site.relative_to(real)
    here.mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "bin" / "python").symlink_to((real / "bin" / "python").resolve())
    shutil.copy(real / "pyvenv.cfg", root / "pyvenv.cfg")
    for entry in site.iterdir():
        if entry.name == "torch":
            _links(entry, here / "torch", deep=("lib",))
        elif entry.name == "nvidia":
            _links(entry, here / "nvidia", deep=[child.name for child in entry.iterdir()])
        else:
            (here / entry.name).symlink_to(entry)
    return here


def _links(source: Path, target: Path, deep: list[str] | tuple[str, ...]) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.name in deep and entry.is_dir():
            _links(entry, target / entry.name, deep=("lib",))
        else:
            (target / entry.name).symlink_to(entry)


def truth(python: Path, variables: dict[str, str], folder: Path) -> tuple[set[str], dict[str, str]]:
    """The path of every library that the real loader started, and the steps that failed."""
    log = folder / "ld-debug"
    base = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [str(python), "-c", SCRIPT],
        env={**base, **variables, "LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(log)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout.strip().splitlines()[-1])
    errors: dict[str, str] = report["errors"]
    errors |= {name: f"returned {code}" for name, code in report["versions"].items() if code}
    loaded: set[str] = set()
    for path in folder.glob("ld-debug.*"):
        for line in re.findall(r"calling init: (.+)", path.read_text(errors="replace")):
            loaded.add(os.path.realpath(posixpath.join(folder, line)))
        path.unlink()
    return loaded, errors
