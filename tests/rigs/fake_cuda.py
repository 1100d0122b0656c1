"""A virtual environment with a torch of nothing but loading: its libraries are empty, but real ELF files
with the names, needs and search paths that torch 2.11 and its wheels have. The real loader loads
them, so that what we say of an arrangement can be compared with what happens. Their majors (CUDA 99,
cuDNN 97) are none of a library that this machine may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import elf_file

RPATH = ":".join(
    f"$ORIGIN/../../nvidia/{folder}/lib" for folder in ("cudnn", "nccl", "cusparselt", "cu99")
)

PARTS = (
    "graph",
    "ops",
    "cnn",
    "adv",
    "heuristic",
    "engines_precompiled",
    "engines_runtime_compiled",
)

VERSION_SYMBOLS = {
    "graph": "cudnn_graph_version",
    "ops": "cudnn_ops_infer_version",
    "adv": "cudnn_adv_infer_version",
}

WHEELS = {
    "nvidia_cuda_runtime": ("99.0.96", "cu99", ("libcudart.so.99",)),
    "nvidia_cublas": ("99.1.0.3", "cu99", ("libcublas.so.99", "libcublasLt.so.99")),
    "nvidia_cuda_nvrtc": ("99.0.88", "cu99", ("libnvrtc.so.99", "libnvrtc-builtins.so.99.0")),
    "nvidia_nvjitlink": ("99.0.88", "cu99", ("libnvJitLink.so.99",)),
    "nvidia_cusparse": ("12.6.3.3", "cu99", ("libcusparse.so.98",)),
    "nvidia_cudnn_cu99": (
        "97.19.0.56",
        "cudnn",
        ("libcudnn.so.97", *(f"libcudnn_{part}.so.97" for part in PARTS)),
    ),
    "nvidia_nccl_cu99": ("98.28.9", "nccl", ("libnccl.so.98",)),
    "nvidia_cusparselt_cu99": ("0.8.0", "cusparselt", ("libcusparseLt.so.96",)),
}
"""Distribution -> version, folder below nvidia/, files."""

TABLE = """
        ("cublas", "libcublasLt.so.*[0-9]"),
        ("cublas", "libcublas.so.*[0-9]"),
        ("cudnn", "libcudnn.so.*[0-9]"),
        ("cuda_nvrtc", "libnvrtc.so.*[0-9]"),
        ("cuda_nvrtc", "libnvrtc-builtins.so.*[0-9]"),
        ("cuda_runtime", "libcudart.so.*[0-9]"),
        ("nvjitlink", "libnvJitLink.so.*[0-9]"),
        ("cusparse", "libcusparse.so.*[0-9]"),
        ("cusparselt", "libcusparseLt.so.*[0-9]"),
        ("nccl", "libnccl.so.*[0-9]"),
"""

DICT = "{" + TABLE.replace('("', '"').replace('", "', '": "').replace('"),', '",') + "        }"
"""The same as the dict that it was once."""

SEARCH = """
def _get_cuda_dep_paths(path, folder, name):
    found = glob.glob(os.path.join(path, "nvidia", folder, "lib", name))
    found += glob.glob(os.path.join(path, "nvidia", "cu99", "lib", name))
    return found + glob.glob(os.path.join(path, folder, "lib", name))

def _preload_cuda_lib(folder, name, required=True):
    for path in sys.path:
        found = _get_cuda_dep_paths(path, folder, name)
        if found:
            ctypes.CDLL(found[0])
            return
    if required:
        raise ValueError(name)
"""

FORMS = {
    # the whole table afterwards: 2.11
    "whole": SEARCH
    + f"""
def _preload_cuda_deps(err=None):
    cuda_libs: list[tuple[str, str]] = [{TABLE}    ]
    if err is not None and not [l for _, l in cuda_libs if l.split(".", 1)[0] in err.args[0]]:
        raise err
    for lib_folder, lib_name in cuda_libs:
        _preload_cuda_lib(lib_folder, lib_name)
    _preload_cuda_lib("nvtx", "libnvToolsExt.so.*[0-9]", required=False)

def _load_global_deps() -> None:
    path = os.path.join(os.path.dirname(__file__), "lib", "libtorch_global_deps.so")
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        try:
            with open("/proc/self/maps") as f:
                _maps = f.read()
            if "libcudart.so" not in _maps:
                return
            _preload_cuda_deps()
        except Exception:
            pass
    except OSError as err:
        _preload_cuda_deps(err)
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
""",
    # two libraries afterwards, for a runtime of a wheel: 2.7 to 2.10
    "some": f"""
def _preload_cuda_deps(folder: str, name: str) -> None:
    for path in sys.path:
        for inside in (folder, "cu99"):
            found = glob.glob(os.path.join(path, "nvidia", inside, "lib", name))
            if found:
                ctypes.CDLL(found[0])
                return
    raise ValueError(name)

def _load_global_deps() -> None:
    path = os.path.join(os.path.dirname(__file__), "lib", "libtorch_global_deps.so")
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        if version.cuda not in ["12.4", "99.0"]:
            return
        try:
            with open("/proc/self/maps") as f:
                _maps = f.read()
            if "nvidia/cu99/lib/libcudart.so" not in _maps:
                return
            _preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")
            _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
        except Exception:
            pass
    except OSError as err:
        cuda_libs = {DICT}
        if not [l for l in cuda_libs.values() if l.split(".")[0] in err.args[0]]:
            raise err
        for folder, name in cuda_libs.items():
            _preload_cuda_deps(folder, name)
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
""",
    # nothing afterwards: before 2.6
    "none": "",
}
"""Ways of torch/__init__.py to load CUDA's libraries, written after those that torch had."""

FORMS["none"] = (
    FORMS["some"].split("        if version.cuda")[0]
    + "    except OSError"
    + FORMS["some"].split("    except OSError")[1]
)

HEAD = """import ctypes, glob, os, sys
from torch import version
"""

TAIL = """

_load_global_deps()
try:
    from torch._C import *
except ImportError as error:
    if "PyInit" not in str(error):
        raise
"""

TRUTH = """
import ctypes, json, os, sys
report = {"import": None}
try:
    import torch
except Exception as error:
    report["import"] = str(error)
dlopen = ctypes.CDLL(None).dlopen
dlopen.restype = ctypes.c_void_p
for caller, names in json.loads(sys.argv[1]) if report["import"] is None else []:
    try:
        inside = ctypes.CDLL(caller, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        continue
    call = inside.call_from_here
    call.restype, call.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
    for name in names:
        if call(ctypes.cast(dlopen, ctypes.c_void_p), name.encode(), os.RTLD_LAZY):
            break
mapped = (line.rstrip().split(None, 5)[5:] for line in open("/proc/self/maps"))
report["mapped"] = sorted({path[0] for path in mapped if path})
print(json.dumps(report))
"""

LATER = [
    *(
        [
            "libcudnn.so.97" if PARTS.index(part) < 4 else "libcudnn_graph.so.97",
            [f"libcudnn_{part}.so.{ending}" for ending in ("97.19.0", "97.19", "97")],
        ]
        for part in PARTS
    ),
    ["libtorch_cpu.so", ["libnvrtc.so.99"]],
    ["libnvrtc.so.99", ["libnvrtc-builtins.so.99.0"]],
    ["libcudart.so.99", ["libcuda.so.1"]],
]
"""What the libraries open at run time, as seen with the real ones: caller, names in order."""


def library(name: str, version: str = "97.19.0") -> bytes:
    """One of NVIDIA's libraries."""
    stem = name.partition(".so")[0].removeprefix("lib")
    part = stem.removeprefix("cudnn_")
    numbers = [int(number) for number in version.split(".")[:3]]
    values = {}
    if part in VERSION_SYMBOLS:
        values[VERSION_SYMBOLS[part]] = numbers[0] << 16 | numbers[1] << 8 | numbers[2]
    if stem == "nvJitLink":
        values["__nvJitLinkCreate_99_0"] = 0
    needed = {
        "cublas": ["libcublasLt.so.99"],
        "cusparse": ["libnvJitLink.so.99"],
        "cudnn_ops": ["libcudnn_graph.so.97"],
        "cudnn_cnn": ["libcudnn_ops.so.97", "libcudnn_graph.so.97"],
    }.get(stem, [])
    with_runpath = stem.startswith(("cublas", "cusparse", "cudnn"))
    text = b"NCCL version 98.28.9+cuda99.0\0" if stem == "nccl" else b""
    runpath = "$ORIGIN" if with_runpath else None
    return elf_file.library(name, needed, runpath=runpath, values=values, text=text)


def build(root: Path, form: str = "whole") -> Path:
    """Make the environment; returns its site-packages."""
    version = sysconfig.get_python_version()
    site = root / "lib" / f"python{version}" / "site-packages"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    home = os.path.dirname(os.path.realpath(sys.executable))
    full = ".".join(map(str, sys.version_info[:3]))
    (root / "pyvenv.cfg").write_text(f"home = {home}\nversion = {full}\n")
    for name, (release, folder, files) in WHEELS.items():
        rows = []
        for file in files:
            path = site / "nvidia" / folder / "lib" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            data = library(file)
            path.write_bytes(data)
            rows.append(f"{path.relative_to(site)},sha256=x,{len(data)}")
        _metadata(site, name, release, rows=rows)
    _torch(site, form)
    return site


def _torch(site: Path, form: str) -> None:
    lib = site / "torch" / "lib"
    lib.mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text(HEAD + FORMS[form] + TAIL)
    (site / "torch" / "version.py").write_text("__version__ = '2.11.0+cu990'\ncuda = '99.0'\n")
    cuda = ["libcusparse.so.98", "libcusparseLt.so.96", "libnccl.so.98", "libcublas.so.99"]
    cuda += ["libcublasLt.so.99", "libcudnn.so.97"]
    needs = {
        "libtorch_global_deps.so": ["libcudart.so.99"],
        "libc10_cuda.so": ["libcudart.so.99"],
        "libtorch_cpu.so": ["libcudart.so.99"],
        "libtorch_cuda.so": [*cuda, "libc10_cuda.so", "libtorch_cpu.so"],
        "libtorch_python.so": ["libtorch_cuda.so", "libcudnn.so.97"],
    }
    for name, needed in needs.items():
        (lib / name).write_bytes(elf_file.library(name, needed, rpath=f"{RPATH}:$ORIGIN"))
    module = elf_file.library(None, ["libtorch_python.so"], rpath="$ORIGIN/lib")
    (site / "torch" / f"_C{EXTENSION_SUFFIXES[0]}").write_bytes(module)
    pins = [f"{name.replace('_', '-')}=={release}" for name, (release, _, _) in WHEELS.items()]
    _metadata(site, "torch", "2.11.0", requires=pins)


def _metadata(
    site: Path, name: str, version: str, rows: Sequence[str] = (), requires: Sequence[str] = ()
) -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Name: {name.replace('_', '-')}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    own = [f"{folder.name}/METADATA,,", f"{folder.name}/RECORD,,"]
    (folder / "RECORD").write_text("\n".join([*rows, *own]) + "\n")


def truth(root: Path, variables: dict[str, str], folder: Path) -> tuple[set[str], str | None]:
    """What the real loader has mapped in the end, and why `import torch` failed."""
    done = subprocess.run(
        [str(root / "bin" / "python"), "-c", TRUTH, json.dumps(LATER)],
        env={"PATH": os.environ["PATH"], **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    return set(report["mapped"]), report["import"]
