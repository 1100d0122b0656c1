"""Which TensorRT-LLM will run, and whether it still loads engines.

The installed one is judged by what it has, not by its number alone: release notes list the removal of
the engine path under "1.2", whose wheels still have it.
"""

from __future__ import annotations

import posixpath
from contextlib import suppress

from infer_doctor.catalog.trtllm_releases import (
    RELEASE_IMAGE,
    TRITON_IMAGE,
    Era,
    era_of,
    in_triton,
    numbers,
    tensorrt_of,
)
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence
from infer_doctor.registry import probe

TENSORRT = (
    "tensorrt",
    "tensorrt-cu12",
    "tensorrt-cu13",
    "tensorrt-cu12-libs",
    "tensorrt-cu13-libs",
)
"""Distributions whose version is that of TensorRT."""


@frozen
class TrtRelease:
    """The TensorRT-LLM that will run."""

    version: str | None
    era: Era | None
    basis: str
    """Completes "judged for": "TensorRT-LLM 1.2.1, as installed"."""
    known: bool
    """Whether the version is known at all."""
    engine_path: bool | None
    """Whether it loads engines and has trtllm-build; None where that is not known."""
    tensorrt: str | None
    """The version of its TensorRT."""
    tensorrt_source: str | None
    image: str | None = None
    package: str | None = None
    evidence: tuple[Evidence, ...] = ()


@probe
def trt_release(
    launch: Launch,
    host: Host | None,
    engine: EngineFact | None,
    question: EngineQuestion | None,
    distributions: Distributions | None,
    interpreter: Interpreter | None,
) -> TrtRelease:
    """`--engine`, else what is installed, else the image's tag, else nothing is known."""
    if launch.engine != "tensorrt-llm":
        raise Absent(f"the launch starts {launch.engine or 'no engine that is known'}")
    if question is not None:
        if question.name != "tensorrt-llm":
            raise Absent(f"--engine asks for {question.name}")
        return _by_version(question.version, "as --engine says", None)
    if launch.machine == "local" and engine is not None and engine.name == "tensorrt-llm":
        return _installed(host, engine, distributions, interpreter)
    image = launch.container.image if launch.container else None
    if image is not None and (found := _of_image(image)) is not None:
        return _by_version(found, f"by the image {image}", image)
    return TrtRelease(
        version=None,
        era=None,
        basis="TensorRT-LLM, whose version is not known (--engine tensorrt-llm==VERSION tells it)",
        known=False,
        engine_path=None,
        tensorrt=None,
        tensorrt_source=None,
        image=image,
    )


def _of_image(image: str) -> str | None:
    if (found := RELEASE_IMAGE.search(image)) is not None:
        return found[1]
    triton = TRITON_IMAGE.search(image)
    return in_triton(triton[1]) if triton and triton[2].startswith("trtllm") else None


def _by_version(version: str, why: str, image: str | None) -> TrtRelease:
    era = era_of(version)
    tensorrt = tensorrt_of(version)
    return TrtRelease(
        version=version,
        era=era,
        basis=f"TensorRT-LLM {version}, {why}",
        known=True,
        engine_path=None if era is None else era != "pytorch-only",
        tensorrt=tensorrt,
        tensorrt_source="the release's Dockerfile" if tensorrt else None,
        image=image,
    )


def _installed(
    host: Host | None,
    engine: EngineFact,
    distributions: Distributions | None,
    interpreter: Interpreter | None,
) -> TrtRelease:
    """By modules, scripts and distributions; by the number where the folder cannot be seen."""
    version = engine.version
    found: dict[str, bool] = {}
    if host is not None and engine.package:
        for name in ("_tensorrt_engine", "_torch", "llmapi", "hlapi"):
            try:
                found[name] = host.exists(posixpath.join(engine.package, name))
            except Unavailable:
                continue
    if host is not None and interpreter is not None:
        script = posixpath.join(posixpath.dirname(interpreter.executable), "trtllm-build")
        with suppress(Unavailable):
            found["trtllm-build"] = host.exists(script)
    row = None
    if distributions is not None:
        names = (name for name in TENSORRT if name in distributions.by_name)
        row = distributions.by_name.get(next(names, ""))
    era = _era(version, found)
    has = tuple(name for name, there in found.items() if there)
    tensorrt, source = (row.version, row.metadata) if row else (None, None)
    return TrtRelease(
        version=version,
        era=era,
        basis=f"TensorRT-LLM {version or '(version unknown)'}, as installed",
        known=version is not None or bool(found),
        engine_path=_loads_engines(era, found),
        tensorrt=tensorrt,
        tensorrt_source=source,
        package=engine.package or None,
        evidence=(Evidence(source=engine.package, excerpt=", ".join(has)),) if has else (),
    )


def _era(version: str | None, found: dict[str, bool]) -> Era | None:
    if found.get("_tensorrt_engine"):
        return "pytorch-first"
    if "_torch" in found and "_tensorrt_engine" in found:
        if not found["_torch"]:
            return "engine"
        wanted = numbers(version)
        if wanted is not None and wanted >= (1, 0):
            return "pytorch-only"
        return "engine-first" if found.get("trtllm-build", True) else "pytorch-only"
    return era_of(version)


def _loads_engines(era: Era | None, found: dict[str, bool]) -> bool | None:
    if found.get("_tensorrt_engine"):
        return True
    return None if era is None else era != "pytorch-only"
