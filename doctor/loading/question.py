"""The question about shared libraries: which folders, which names; and its answer."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from infer_doctor.catalog.libraries import NAMES, STEMS, libraries_of, library_of
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.libraries import LibraryScan
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.host import Host, Unavailable
from infer_doctor.loading.loader import CACHE_FLAGS, MACHINES, Scan

CACHE = "/etc/ld.so.cache"

TORCH_NAMES = (
    r"lib(?:torch\w*|c10\w*|caffe2_nvrtc|shm|tensorrt_llm\w*|th_common)\.so"
    r"|libnvinfer_plugin_tensorrt_llm\.so|libpython3[\d.]*t?\.so[\d.]*"
)
"""Libraries that need NVIDIA's or load them."""

PYTHON_NAMES = (
    r"python3\.\d+t?|_ctypes\.[\w-]+\.so|(?:_C|bindings)\.cpython-[\w-]+\.so|\w+\.abi3\.so"
)
"""The program, and modules of Python that load libraries."""

SYSTEM_FOLDERS = (
    "/lib/{machine}-linux-gnu",
    "/usr/lib/{machine}-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/{machine}-linux/lib",
    "/usr/local/cuda*/targets/sbsa-linux/lib",
    "/usr/local/cuda*/compat",
    "/opt/cuda*/lib64",
    "/usr/local/tensorrt/lib",
)
"""The loader's own folders, then where NVIDIA's packages, images and container run-time put libraries."""

NCCL_PATH = "VLLM_NCCL_SO_PATH"
"""vLLM's own choice of NCCL: find_nccl_library() in vllm/utils/nccl.py (0.11 to 0.32)."""

SITE_FOLDERS = ("nvidia/*/lib", "tensorrt_libs", "torch/lib")


def knows(name: str) -> bool:
    """Whether the scan looked for libraries of this name; others (libc, libstdc++) change nothing."""
    return library_of(name) in STEMS or re.fullmatch(TORCH_NAMES, name) is not None


def ask(
    host: Host,
    torch: TorchBuild,
    interpreter: Interpreter,
    distributions: Distributions,
    variables: Mapping[str, str],
    machine: str,
    engine: EngineFact | None,
) -> LibraryScan:
    """The loader's cache, all folders at once, and the RECORDs of NVIDIA's distributions."""
    if machine not in MACHINES:
        raise Unavailable(f"the loader of {machine} is not known")
    gaps: list[str] = []
    cache = _cache(host, machine, gaps)
    executable = host.real(interpreter.executable)
    if executable is None:
        raise Unavailable(f"{interpreter.executable}: is not there")
    entries = [*_split(variables.get("LD_LIBRARY_PATH", ""), "[:;]"), *_named(variables)]
    here = "/"
    if any(not entry.startswith(("/", "~", "$")) for entry in entries):
        here = host.ask("self")["folder"] or "/"
    folders = [
        *(posixpath.join(here, entry).rstrip("/") or "/" for entry in entries),
        *_environment(interpreter, torch, engine),
        posixpath.dirname(executable),
        *(folder.format(machine=machine) for folder in SYSTEM_FOLDERS),
        *(posixpath.dirname(path) for _, path in cache),
    ]
    names = f"{NAMES}|{TORCH_NAMES}|{PYTHON_NAMES}"
    asked = list(dict.fromkeys(folders))
    try:
        answer = host.ask("libraries", folders=asked, names=names)
    except Unavailable as error:
        words = f"the libraries in {len(asked)} folders, {asked[0]} the first: {error.reason}"
        raise Unavailable(words, error.code) from None
    gaps += [f"{folder}: {code}" for folder, code in answer["unreadable"].items()]
    if answer["truncated"]:
        gaps.append("more folders with libraries than are looked at")
    scan = Scan(answer["folders"], answer["files"], answer["linked"], cache)
    return LibraryScan(
        scan=scan,
        executable=executable,
        folder=here,
        owned=_owned(host, distributions, scan),
        gaps=tuple(gaps),
    )


def _split(text: str, separator: str) -> list[str]:
    return re.split(separator, text) if text else []


def preloads(variables: Mapping[str, str]) -> list[str]:
    """The entries of LD_PRELOAD."""
    return [entry for entry in _split(variables.get("LD_PRELOAD", ""), "[: ]") if entry]


def _named(variables: Mapping[str, str]) -> Iterator[str]:
    """The folders of files that variables name."""
    for path in (*preloads(variables), variables.get(NCCL_PATH, "")):
        if "/" in path:
            yield posixpath.dirname(path)


def _environment(
    interpreter: Interpreter, torch: TorchBuild, engine: EngineFact | None
) -> Iterator[str]:
    """The folders of the examined environment."""
    for site in interpreter.folders:
        yield from (f"{site}/{folder}" for folder in SITE_FOLDERS)
    yield from (torch.folder, f"{torch.folder}/lib")
    if engine is not None:
        yield from (engine.package, f"{engine.package}/libs", f"{engine.package}/vllm_flash_attn")
    library = posixpath.basename(interpreter.include)
    for folder in ("lib", "lib64"):
        yield f"{interpreter.prefix}/{folder}"
        yield f"{interpreter.base_prefix}/{folder}"
        yield f"{interpreter.base_prefix}/{folder}/{library}/lib-dynload"


def _cache(host: Host, machine: str, gaps: list[str]) -> tuple[tuple[str, str], ...]:
    """Name and path of the rows that are for this machine."""
    try:
        answer = host.ask("loader_cache", path=CACHE, names=f"{NAMES}|{TORCH_NAMES}")
    except Unavailable as error:
        if error.code != "ENOENT":
            gaps.append(f"{CACHE}: {error.reason}")
        return ()
    flags = CACHE_FLAGS[machine]
    return tuple(
        (name, path) for name, path, found, hwcap in answer["rows"] if found == flags and not hwcap
    )


def _owned(
    host: Host, distributions: Distributions, scan: Scan
) -> dict[str, tuple[tuple[str, int | None], ...]]:
    rows = [row for row in distributions.by_name.values() if libraries_of(row.name) and row.record]
    if not rows:
        return {}
    answer = host.ask("owned_libraries", records=[row.metadata for row in rows])
    owned: dict[str, tuple[tuple[str, int | None], ...]] = {}
    for row, paths in zip(rows, answer["owned"], strict=True):
        for path, size in paths.items():
            real = f"{scan.real(posixpath.dirname(path))}/{posixpath.basename(path)}"
            owned[real] = (*owned.get(real, ()), (row.name, size))
    return owned
