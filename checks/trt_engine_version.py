"""Whether an engine is of the version, and of the kind, that will load it."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.trtllm_flags import TENSORRT_NAMED_SINCE
from infer_doctor.catalog.trtllm_releases import (
    numbers,
    reaches,
    release_of,
    same_tensorrt,
    tensorrt_of,
)
from infer_doctor.checks.trt_engine import file_evidence, require_engine
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.launching import set_option
from infer_doctor.fixes.trtllm import (
    advise,
    rebuild,
    same_version,
    serve_checkpoint,
)
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Confidence, Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.trtllm.options import ENTRIES


@check("trt-engine-version", severity="error", category="trt_engine_mismatch", since="0.3")
def engine_version(engine: TrtEngine, release: TrtRelease, launch: Launch) -> Iterator[Finding]:
    """The engine was built with another TensorRT or TensorRT-LLM than the one that will load it.

    ## Why it matters
    TensorRT says "The engine plan file is not compatible with this version of TensorRT, expecting
    library version A got B" (A is the runtime's, B the builder's), TensorRT-LLM only "Failed to
    deserialize cuda engine". Plans load in no other release: neither older nor newer.

    ## How it decides
    The head of each plan names the TensorRT that wrote it; it is compared with the installed
    distribution, else with the release's own (release notes and Dockerfiles, 0.10 to 1.2.1). Where
    both are alike, `version` of config.json is compared with the TensorRT-LLM that will run, by its
    first two numbers: plugins are part of the plan, and NVIDIA asks for one version; then it is only
    likely. config.json alone cannot tell for which GPU a plan is.

    ## Fix safety
    Manual: build again, or serve with the version that built it.
    """
    require_engine(engine)
    if launch.entry not in ENTRIES and release.image is not None:
        raise NotApplicable("trt-triton-version compares the engine with the image of Triton")
    plans = sorted({row.plan for row in engine.ranks if row.plan is not None})
    if not plans and engine.version is None:
        raise Unavailable(f"neither the plans nor {engine.config_path} tell what wrote them")
    if not release.known:
        halves = list(_own_halves(engine, plans))
        if not halves:
            raise Unavailable(release.basis)
        yield from halves
        return
    cure: list[Fix] = [
        rebuild(
            engine, f"Build the engine again with TensorRT-LLM {release.version or 'as installed'}"
        )
    ]
    if engine.version and (older := same_version(engine.version)) is not None:
        cure.append(older)
    if plans and release.tensorrt and not same_tensorrt(plans[0], release.tensorrt):
        by = f"TensorRT-LLM {engine.version}, " if engine.version else ""
        installed = release.tensorrt_source and "/" in release.tensorrt_source
        sure: Confidence = "certain" if installed else "likely"
        yield Finding(
            about=engine.path,
            confidence=sure,
            message=f"the engine was built by {by}TensorRT {plans[0]}; TensorRT {release.tensorrt} of "
            f"{release.basis}, will read it",
            evidence=(
                file_evidence(engine, engine.ranks[0]),
                Evidence(
                    source=release.tensorrt_source or "version",
                    excerpt=f"TensorRT {release.tensorrt}",
                ),
            ),
            fixes=tuple(cure),
        )
        return
    built, runs = numbers(engine.version), numbers(release.version)
    if built is None or runs is None:
        raise Unavailable(f"the version of the engine or of {release.basis} cannot be read")
    row, other = tensorrt_of(engine.version), tensorrt_of(release.version)
    read = bool(plans and release.tensorrt)  # and they are the same
    differ = not read and row and other and not same_tensorrt(row, other)
    if built[:2] == runs[:2] and not differ:
        unknown = row is None or other is None
        if unknown and engine.version != release.version and not read:
            raise Unavailable(
                f"whether TensorRT-LLM {engine.version} and {release.version} have the same TensorRT "
                "is not known"
            )
    else:
        yield Finding(
            about=engine.path,
            confidence="certain" if differ else "likely",
            message=f"the engine was built by TensorRT-LLM {engine.version}"
            + (f" (TensorRT {row})" if row else "")
            + f"; {release.basis}"
            + (f" (TensorRT {other})" if other else "")
            + ", will read it",
            evidence=(
                judge.of_config(engine, f'"version": "{engine.version}"'),
                judge.of_release(release),
            ),
            fixes=tuple(cure),
        )


def _own_halves(engine: TrtEngine, plans: list[str]) -> Iterator[Finding]:
    """config.json and the plans tell of two builds; this needs no knowledge of the runtime."""
    row, tensorrt = release_of(engine.version), tensorrt_of(engine.version)
    if row is None or tensorrt is None or not plans:
        return
    if row.version[:2] == (1, 0) or same_tensorrt(plans[0], tensorrt):
        return  # 1.0.3 of Triton 25.11 has another TensorRT than 1.0.0
    yield Finding(
        about=engine.path,
        severity="warning",
        confidence="likely",
        message=f"config.json says TensorRT-LLM {engine.version}, which has TensorRT {tensorrt}, "
        f"but the plans were written by TensorRT {plans[0]}",
        evidence=(
            judge.of_config(engine, f'"version": "{engine.version}"'),
            file_evidence(engine, engine.ranks[0]),
        ),
        fixes=(rebuild(engine, "Build the engine again, config and plans in one go"),),
    )


@check("trt-engine-unsupported", severity="error", category="trt_backend_load", since="0.3")
def engine_unsupported(
    engine: TrtEngine, release: TrtRelease, launch: Launch, options: EngineOptions
) -> Iterator[Finding]:
    """The launch gives an engine to a TensorRT-LLM or a backend that does not load engines.

    ## Why it matters
    The PyTorch backend takes the folder for a Hugging Face model and stops at its config.json. From
    1.3.0rc on nothing loads engines any more.

    ## How it decides
    Whether engines can be loaded is told by the installed modules (tensorrt_llm/_tensorrt_engine) and
    scripts, not by the number: release notes list the removal under 1.2, whose wheels still have it.
    For a version that is only named, 1.4 and late candidates of 1.3.0 have it no more. In 1.0 to 1.2
    the default of trtllm-serve and LLM(...) is PyTorch: engines need `--backend tensorrt` (1.0: trt),
    or `from tensorrt_llm._tensorrt_engine import LLM`. 0.14 has no trtllm-serve.

    ## Fix safety
    Safe where an option is set; else manual.
    """
    require_engine(engine)
    if not release.known:
        raise Unavailable(release.basis)
    if release.engine_path is False:
        yield Finding(
            about=engine.path,
            message=f"{engine.path} is an engine; {release.basis}, loads no engines",
            evidence=(judge.of_config(engine, "build_config"), judge.of_release(release)),
            fixes=(serve_checkpoint(), *judge.fixes(_back(engine))),
        )
        return
    if release.engine_path is None:
        raise Unavailable(f"whether {release.basis} still loads engines is not known")
    if judge.is_bare(launch) or launch.entry not in ("trtllm-serve", "LLM", "trtllm-bench"):
        return
    backend = judge.backend_of(launch, options, release)
    if backend is None:
        raise Unavailable(f"which backend {release.basis}, takes for the engine is not known")
    if backend != "pytorch":
        return
    written = judge.given(options, "backend")
    named = "trt" if reaches(release.version, TENSORRT_NAMED_SINCE) is False else "tensorrt"
    cure = Fix(
        id="set-backend-tensorrt",
        title=f"Start with --backend {named}",
        safety="safe",
        restarts=True,
        actions=set_option(launch, "--backend", named, options.given.get("backend")),
    )
    if launch.kind == "python" and launch.entry == "LLM":
        cure = advise(
            "import-engine-llm",
            "Import LLM from where it loads engines: from tensorrt_llm._tensorrt_engine import LLM",
        )
    yield Finding(
        about=engine.path,
        message=f"{engine.path} is an engine, but the PyTorch backend, the default of "
        f"{release.basis}, will load it",
        evidence=judge.present(
            judge.of_config(engine, "build_config"), written or judge.of_release(release)
        ),
        fixes=(cure,),
    )


def _back(engine: TrtEngine) -> Fix | None:
    return same_version(engine.version) if engine.version else None
