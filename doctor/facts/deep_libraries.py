"""What CUDA's libraries say when they are really loaded: versions, a kernel, a product. Only `--deep`.

The engine's interpreter runs `SCRIPT` (`-I -S`, no module of the environment is imported). It loads the
copies that the play of the loader names, by their paths, and writes a line after each step, so that a
library that ends the process is known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.libraries import LibraryScan, LoadedLibraries, LoadedLibrary
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

LIMIT_S = 60.0
"""The libraries have 2 GB; from a cold disk that takes tens of seconds."""

SCRIPT = r"""
import ctypes, json, os, sys
paths, arch, devices = json.loads(sys.argv[1])
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
def say(step, **values):
    answers.write(json.dumps({"step": step, **values}) + "\n")
    answers.flush()
def words(error):
    return f"{type(error).__name__}: {error}"[:2000]
libraries = {}
for name, path in paths:
    say("load", name=name, path=path)
    try:
        libraries[name] = ctypes.CDLL(path)
    except OSError as error:
        say("loaded", name=name, error=str(error)[:2000])
first, second = ctypes.c_int(), ctypes.c_int()
def two(name, function):
    getattr(libraries[name], function)(ctypes.byref(first), ctypes.byref(second))
    return f"{first.value}.{second.value}"
def one(name, function):
    getattr(libraries[name], function)(ctypes.byref(first))
    return first.value
def size(name, function):
    call = getattr(libraries[name], function)
    call.restype = ctypes.c_size_t
    return call()
def thousands(number):
    return f"{number // 1000}.{number % 1000 // 10}"
def hundreds(number, major):
    return f"{number // major}.{number % major // 100}.{number % 100}"
VERSIONS = {
    "cudart": lambda: thousands(one("cudart", "cudaRuntimeGetVersion")),
    "cublasLt": lambda: hundreds(size("cublasLt", "cublasLtGetVersion"), 10000),
    "cudnn": lambda: hundreds(size("cudnn", "cudnnGetVersion"), 10000),
    "nvrtc": lambda: two("nvrtc", "nvrtcVersion"),
    "nvJitLink": lambda: two("nvJitLink", "nvJitLinkVersion"),
    "nccl": lambda: hundreds(one("nccl", "ncclGetVersion"), 10000),
}
for name, function in VERSIONS.items():
    if name in libraries:
        say("version", name=name)
        try:
            say("versioned", name=name, version=function())
        except Exception as error:
            say("versioned", name=name, error=words(error))
KERNEL = b'extern "C" __global__ void f(float *x) { x[threadIdx.x] *= 2.f; }'
def compile():
    nvrtc, program, length = libraries["nvrtc"], ctypes.c_void_p(), ctypes.c_size_t()
    count = ctypes.c_int()
    nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    archs = (ctypes.c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(archs)
    wanted = arch or max(archs)
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"f.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{wanted}".encode())
    code = nvrtc.nvrtcCompileProgram(program, 1, options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(length))
    log = ctypes.create_string_buffer(length.value + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    text = log.value.decode(errors="replace").strip()[:2000]
    binary = 0
    if code == 0:
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(length))
        binary = length.value
    say("compiled", arch=wanted, code=code, log=text, bytes=binary, archs=sorted(archs))
if "nvrtc" in libraries:
    say("compile")
    try:
        compile()
    except Exception as error:
        say("compiled", error=words(error))
N = 64
def product(device):
    runtime, blas = libraries["cudart"], libraries["cublas"]
    def cuda(function, *arguments):
        code = getattr(runtime, function)(*arguments)
        if code:
            raise RuntimeError(f"{function} gave {code}")
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    left = [(i * 7 % 31) / 31 for i in range(N * N)]
    right = [(i * 5 % 29) / 29 for i in range(N * N)]
    cuda("cudaSetDevice", device)
    places, array = [], ctypes.c_float * (N * N)
    for values in (left, right, [0.0] * (N * N)):
        place = pointer()
        cuda("cudaMalloc", ctypes.byref(place), size(4 * N * N))
        cuda("cudaMemcpy", place, array(*values), size(4 * N * N), 1)
        places.append(place)
    say("multiply", device=device, stage="cuBLAS")
    handle, scale, zero = pointer(), ctypes.c_float(1), ctypes.c_float(0)
    status = blas.cublasCreate_v2(ctypes.byref(handle))
    if not status:
        status = blas.cublasSgemm_v2(handle, 0, 0, N, N, N, ctypes.byref(scale), places[0], N,
                                     places[1], N, ctypes.byref(zero), places[2], N)
    if status:
        say("multiplied", device=device, status=status)
        return
    found = array()
    cuda("cudaMemcpy", found, places[2], size(4 * N * N), 2)
    a, b = list(array(*left)), list(array(*right))
    exact = [sum(a[k * N + i] * b[j * N + k] for k in range(N)) for j in range(N) for i in range(N)]
    wrong = max(abs(x - y) for x, y in zip(found, exact)) / max(map(abs, exact))
    say("multiplied", device=device, status=0, deviation=wrong)
if "cublas" in libraries and "cudart" in libraries:
    for device in range(devices):
        say("multiply", device=device, stage="the context")
        try:
            product(device)
        except Exception as error:
            say("multiplied", device=device, error=words(error))
say("end")
os._exit(0)
"""
"""Column-major products, as cuBLAS has them: C[i, j] is C[j * N + i]."""


@frozen
class LibraryRun:
    """What the loaded libraries said."""

    unloadable: Mapping[str, str]
    """Path -> what the loader said."""
    versions: Mapping[str, str]
    """Library -> the version that its own function gives."""
    source: str
    ended_in: str | None = None
    """The step in which the process died; None when it came to its end."""


@frozen
class NvrtcRun:
    """A kernel of one line, compiled for the GPU of this machine or the newest that NVRTC knows."""

    arch: int
    for_gpu: bool
    code: int
    """nvrtcResult: 0 is success."""
    log: str
    archs: tuple[int, ...] = field(metadata={"report": False})
    path: str


@frozen
class CublasRow:
    """A product of two 64 x 64 matrices on one GPU; `status` is cublasStatus_t."""

    device: int
    status: int | None
    deviation: float | None
    error: str | None


@frozen
class CublasRun:
    """The products, by device in CUDA's order."""

    rows: tuple[CublasRow, ...]
    path: str
    gaps: tuple[str, ...] = ()


@probe(deep=True)
def library_run(
    host: Host,
    interpreter: Interpreter,
    loaded: LoadedLibraries,
    found: LibraryScan,
    capabilities: GpuCapabilities | None,
    gpus: Gpus | None,
) -> LibraryRun:
    """Load all, ask for versions."""
    lines = _run(host, interpreter, loaded, found, capabilities, gpus)
    asked = {row["name"]: row["path"] for row in lines if row["step"] == "load"}
    failed = {asked[row["name"]]: row["error"] for row in lines if row["step"] == "loaded"}
    told = {row["name"]: row.get("version") for row in lines if row["step"] == "versioned"}
    last = lines[-1]
    ended = None if last["step"] == "end" else f"{last['step']} {last.get('name', '')}".strip()
    return LibraryRun(
        unloadable=failed,
        versions={name: version for name, version in told.items() if version is not None},
        source=f"{interpreter.executable} -c 'ctypes.CDLL(...)'",
        ended_in=ended,
    )


@probe(deep=True)
def nvrtc_run(
    host: Host,
    interpreter: Interpreter,
    loaded: LoadedLibraries,
    found: LibraryScan,
    capabilities: GpuCapabilities | None,
    gpus: Gpus | None,
) -> NvrtcRun:
    """Compile a kernel of one line."""
    lines = _run(host, interpreter, loaded, found, capabilities, gpus)
    row = _line(lines, "compiled")
    if row is None:
        raise Unavailable("NVRTC was not reached: it is not loaded, or the process died before")
    if "error" in row:
        raise Unavailable(f"NVRTC could not be asked: {row['error']}")
    return NvrtcRun(
        arch=row["arch"],
        for_gpu=capabilities is not None and bool(capabilities.capabilities),
        code=row["code"],
        log=row["log"],
        archs=tuple(row["archs"]),
        path=_path(loaded, "nvrtc"),
    )


@probe(deep=True)
def cublas_run(
    host: Host,
    interpreter: Interpreter,
    loaded: LoadedLibraries,
    found: LibraryScan,
    gpus: Gpus,
    capabilities: GpuCapabilities | None,
) -> CublasRun:
    """A small product on each GPU; some 500 MiB each, for a second."""
    if not gpus.gpus:
        raise Absent("NVML lists no GPU")
    lines = _run(host, interpreter, loaded, found, capabilities, gpus)
    rows = [
        CublasRow(
            device=row["device"],
            status=row.get("status"),
            deviation=row.get("deviation"),
            error=row.get("error"),
        )
        for row in lines
        if row["step"] == "multiplied"
    ]
    if not rows:
        raise Unavailable("cuBLAS was not reached: it is not loaded, or the process died before")
    missing = len(gpus.gpus) - len(rows)
    gaps = (f"{missing} of {len(gpus.gpus)} products did not come to an end",) if missing else ()
    return CublasRun(rows=tuple(rows), path=_path(loaded, "cublas"), gaps=gaps)


def _run(
    host: Host,
    interpreter: Interpreter,
    loaded: LoadedLibraries,
    found: LibraryScan,
    capabilities: GpuCapabilities | None,
    gpus: Gpus | None,
) -> list[dict[str, Any]]:
    """The lines of the script; the same question for all three facts, so it runs once."""
    paths = [[row.copy.library, row.path] for row in _in_order(loaded, found)]
    known = sorted(capabilities.capabilities.items()) if capabilities else []
    arch = known[0][1][0] * 10 + known[0][1][1] if known else 0
    argument = json.dumps([paths, arch, len(gpus.gpus) if gpus else 0])
    command = [interpreter.executable, "-I", "-S", "-c", SCRIPT, argument]
    answer = host.ask("run", command=command, limit_s=LIMIT_S, input="")
    lines = [json.loads(line) for line in answer["stdout"].splitlines() if line.startswith("{")]
    if not lines:
        last = (answer["stderr"].strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"the probe ended with status {answer['exit_status']}: {last}")
    return lines


def _in_order(loaded: LoadedLibraries, found: LibraryScan) -> list[LoadedLibrary]:
    """What a library needs comes before it: else the loader would look for it by other rules."""
    by_soname = {row.copy.soname: row for row in loaded.rows}
    ordered: dict[str, LoadedLibrary] = {}

    def add(row: LoadedLibrary, above: tuple[str, ...]) -> None:
        for name in found.scan.files[row.copy.real].get("needed", ()):
            below = by_soname.get(name)
            if below is not None and below.path not in above:
                add(below, (*above, row.path))
        ordered.setdefault(row.path, row)

    for row in loaded.rows:
        add(row, (row.path,))
    return list(ordered.values())


def _line(lines: list[dict[str, Any]], step: str) -> dict[str, Any] | None:
    return next((row for row in lines if row["step"] == step), None)


def _path(loaded: LoadedLibraries, library: str) -> str:
    return next((row.path for row in loaded.rows if row.copy.library == library), library)
