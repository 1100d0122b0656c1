"""Which arguments the vLLM that will run has, and what a launch sets with them.

The version that will run: `--engine vllm==X`, else for a launch on this machine the installed one,
else what pip installs before it, else the tag of the container's image, else the newest known. The
arguments come from the catalogue where the installed sources have the hash of a release, else from
the installed sources, read as text; see `vllm_arguments/`. `EngineOptions.basis` says which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineOptions, EngineQuestion
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.images import engine_release
from infer_doctor.launch.judge import CALLS
from infer_doctor.launch.model import Launch
from infer_doctor.registry import probe

PINNED = re.compile(r"vllm(?:\[[\w,.-]+\])?==(\d+(?:\.\d+)+(?:\.?(?:post|rc)\d+)?)")
"""A requirement that names one release."""

ENTRIES = ("serve", "api_server", *CALLS)


@frozen
class VllmHash:
    """The release whose sources are installed; neither is known where they are others."""

    release: str | None = None
    problem: str | None = None


@frozen
class VllmSources:
    """What the installed sources are: those of a release, or others that were read."""

    release: str | None = None
    read: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    problem: str | None = None
    """Why neither is known."""


@frozen
class VllmTable:
    """The arguments of the vLLM that will run."""

    basis: str
    """Completes "judged by": "the installed sources of vLLM 0.32.0"."""
    exact: bool
    version: str | None
    read: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    """What was read from the installed sources, when the catalogue does not have it."""
    release: str | None = None
    """The release of the catalogue, otherwise."""


@probe
def vllm_hash(host: Host, engine: EngineFact) -> VllmHash:
    """Hash the sources; when no release of the catalogue has that hash, they will be read."""
    from infer_doctor.vllm_arguments.table import catalogue, ordered

    if engine.name != "vllm" or not engine.package:
        raise Absent("no package of vllm is installed")
    version = engine.version
    try:
        digest = host.ask("vllm_digest", package=engine.package)["sha256"]
    except Unavailable as error:
        return VllmHash(problem=error.reason)
    known = catalogue().digests.get(digest)
    if known is not None and (version is None or ordered(version)[:4] == ordered(known)[:4]):
        return VllmHash(release=known)
    host.begin("vllm_arguments", package=engine.package)
    return VllmHash()


@probe(slow=True)
def vllm_sources(host: Host, engine: EngineFact, hashed: VllmHash) -> VllmSources:
    """Read the sources, unless they are those of a release; takes 0.15 s."""
    if hashed.release is not None or hashed.problem is not None:
        return VllmSources(release=hashed.release, problem=hashed.problem)
    try:
        read = host.ask("vllm_arguments", package=engine.package)
    except Unavailable as error:
        return VllmSources(problem=error.reason)
    if not read["arguments"]:
        return VllmSources(problem="they declare no arguments")
    return VllmSources(read=read)


@probe
def vllm_table(
    launch: Launch,
    sources: VllmSources | None,
    engine: EngineFact | None,
    question: EngineQuestion | None,
) -> VllmTable:
    """Find out which version will run, then its arguments."""
    if launch.engine != "vllm":
        raise Absent(f"the launch starts {launch.engine or 'no engine that is known'}")
    if question is not None:
        if question.name != "vllm":
            raise Absent(f"--engine asks for {question.name}")
        return _release(question.version, "as --engine says")
    if launch.machine == "local" and engine is not None and engine.name == "vllm":
        return _installed(sources, engine)
    for word in reversed(launch.installs):
        if found := PINNED.fullmatch(word.text):
            return _release(found[1], f"as {word.place.file}:{word.place.line} installs")
    image = launch.container.image if launch.container else None
    release = engine_release(image)
    if release is not None:
        return _release(release, f"by the image {image}")
    from infer_doctor.vllm_arguments.table import catalogue

    newest = catalogue().versions[-1]
    why = "its version is not known"
    return VllmTable(
        basis=f"vLLM {newest}, the newest known: {why} (--engine vllm==VERSION tells it)",
        exact=False,
        version=newest,
        release=newest,
    )


@probe
def engine_options(
    launch: Launch,
    table: VllmTable | None,
    trtllm: TrtRelease | None = None,
    question: EngineQuestion | None = None,
) -> EngineOptions:
    """Read the launch as the version that will run does."""
    if launch.engine is None:
        raise Absent("the launch starts no engine that is known")
    if question is not None and question.name != launch.engine:
        raise Absent(f"--engine asks for {question.name}")
    if launch.engine == "tensorrt-llm":
        return _trtllm_options(launch, trtllm)
    if table is None:
        raise Unavailable("the version of the installed vLLM is not known")
    if launch.entry not in ENTRIES:
        raise Unavailable(f"the arguments of `vllm {launch.entry}` are not in the catalogue")
    from infer_doctor.vllm_arguments.options import options_of

    return options_of(launch, table_of(table), table.basis, exact=table.exact)


def _trtllm_options(launch: Launch, release: TrtRelease | None) -> EngineOptions:
    from infer_doctor.trtllm.options import ENTRIES, options_of

    if launch.entry not in ENTRIES:
        raise Absent(f"{launch.entry} takes its settings from elsewhere than its command line")
    if release is None:
        raise Unavailable("which TensorRT-LLM will run is not known")
    return options_of(launch, release.version, release.basis, exact=release.known)


def table_of(fact: VllmTable) -> Any:
    """The Table that the fact names."""
    from infer_doctor.vllm_arguments.table import Table, catalogue

    if fact.read is not None:
        return Table(fact.version, fact.read)
    return catalogue().table(fact.release or catalogue().versions[-1])


def _release(version: str, why: str) -> VllmTable:
    """That release of the catalogue, or the newest older one."""
    from infer_doctor.vllm_arguments.table import catalogue

    release, same = catalogue().at_most(version)
    if same:
        return VllmTable(
            basis=f"vLLM {release}, {why}", exact=True, version=release, release=release
        )
    return VllmTable(
        basis=f"vLLM {release}, the nearest known for {version} {why}",
        exact=False,
        version=version,
        release=release,
    )


def _installed(sources: VllmSources | None, engine: EngineFact) -> VllmTable:
    """By the hash of the sources, else read from them, else by the version alone."""
    version = engine.version
    if sources is None or sources.problem is not None:
        if version is None:
            raise Unavailable("the version of the installed vLLM is not known")
        found = _release(version, "as installed")
        if sources is None:
            return found
        return VllmTable(
            basis=f"{found.basis}; its sources were not read: {sources.problem}",
            exact=False,
            version=found.version,
            release=found.release,
        )
    if sources.release is not None:
        return VllmTable(
            basis=f"vLLM {sources.release}, whose sources are installed",
            exact=True,
            version=sources.release,
            release=sources.release,
        )
    return VllmTable(
        basis=f"the installed sources of vLLM {version or '(version unknown)'}",
        exact=True,
        version=version,
        read=sources.read,
    )
