"""Engine folders of TensorRT-LLM: whole, of the version that reads them, loadable at all."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.trtllm_releases import (
    CURRENT_FORM_SINCE,
    numbers,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.trtllm import (
    advise,
    fixes_of_ranks,
    rebuild,
)
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.trtllm.folder import RankFile
from infer_doctor.units import gib, plural

SMALLER = 0.9
"""Ranks of one pipeline stage hold equal shares, so their plans differ by less than a hundredth; below
this share of the largest a copy or download broke off."""

CONFIG = "config.json"

PROOFS = ("is not there", "is empty", "is no JSON", "holds no JSON object", "has no object")
"""What the runtime finds as well; other reasons are those of this reader."""


def require_engine(engine: TrtEngine) -> None:
    """Checkpoints are no engines."""
    if engine.kind != "engine":
        raise NotApplicable(f"{engine.path} is a checkpoint, no engine")


@check("trt-engine-config-broken", severity="error", category="trt_engine_mismatch", since="0.3")
def config_broken(engine: TrtEngine) -> Iterator[Finding]:
    """The engine or checkpoint folder has no config.json that can be read.

    ## Why it matters
    Every runtime reads config.json first: "File does not exist", "[json.exception...] key not
    found", or the folder is taken for a Hugging Face model.

    ## How it decides
    A folder with rank files whose config.json is missing, empty, no JSON object, or has none under
    pretrained_config and build_config (cpp/tensorrt_llm/runtime/gptJsonConfig.cpp:585 and :340 of
    0.14). Only rank 0 writes it, so a build that stopped there leaves plans alone. One that this doctor
    may not or does not read (its size, its depth, its owner) proves nothing.

    ## Fix safety
    Manual: copy it from where the engine was built, or build again.
    """
    if engine.form != "none":
        return
    why = engine.broken.get(CONFIG, "is not there")
    if not why.startswith(PROOFS) or "recursion" in why:
        raise Unavailable(f"{engine.config_path} {why}")
    yield Finding(
        about=engine.path,
        message=f"{engine.path} has {plural(len(engine.ranks), 'rank file')}, but its {CONFIG} {why}",
        evidence=(Evidence(source=engine.config_path, excerpt=why),),
        fixes=(
            advise(
                "copy-engine-config",
                f"Copy {CONFIG} from the folder that trtllm-build wrote, or build again",
            ),
        ),
    )


@check("trt-engine-form-old", severity="error", category="trt_engine_mismatch", since="0.3")
def form_old(engine: TrtEngine, release: TrtRelease) -> Iterator[Finding]:
    """The engine has the form of before 0.8.

    ## Why it matters
    Releases since 0.8 look for `version`, `pretrained_config` and `build_config`; the Python side ends
    with a KeyError, and TensorRT refuses the plan anyway.

    ## How it decides
    config.json has `builder_config` instead (gptJsonConfig.cpp:340 of 0.14), and the TensorRT-LLM that
    will run is 0.8 or later.

    ## Fix safety
    Manual: build again.
    """
    require_engine(engine)
    if engine.form != "old":
        return
    version = numbers(release.version)
    if version is None:
        raise Unavailable(release.basis)
    if version < CURRENT_FORM_SINCE:
        return
    yield Finding(
        about=engine.path,
        message=f"config.json of {engine.path} has builder_config, the form of before 0.8; "
        f"TensorRT-LLM {release.version} reads pretrained_config and build_config",
        evidence=(judge.of_config(engine, "builder_config"), judge.of_release(release)),
        fixes=(rebuild(engine, f"Build the engine again with TensorRT-LLM {release.version}"),),
    )


@check("trt-ranks-missing", severity="error", category="trt_engine_mismatch", since="0.3")
def ranks_missing(engine: TrtEngine) -> Iterator[Finding]:
    """Files of some ranks are not in the engine or checkpoint folder, or are empty.

    ## Why it matters
    The rank whose file is missing ends with "Error opening engine file", and the others wait for it
    until somebody kills them.

    ## How it decides
    config.json names tp_size x pp_size x cp_size ranks; rank0 to the last must be there with more
    than 0 bytes. Ranks beyond them are left over from another build and told too.

    ## Fix safety
    Manual: copy them, or build again.
    """
    world = engine.world_size
    if world is None:
        if engine.form == "none" or engine.gaps:
            raise Unavailable(f"{engine.config_path} cannot be read, so the ranks are not known")
        world = 1
    if engine.kind == "checkpoint" and not engine.ranks:
        return  # a config alone: trtllm-build --model_config takes it
    there = {row.rank: row for row in engine.ranks}
    ending = "engine" if engine.kind == "engine" else "safetensors"
    gone = [rank for rank in range(world) if rank not in there]
    empty = [row.rank for row in engine.ranks if row.size == 0 and row.rank < world]
    more = [rank for rank in sorted(there) if rank >= world]
    said = judge.of_config(engine, _sizes(engine))
    for ranks, words in ((gone, "not there"), (empty, "empty")):
        if ranks:
            files = (
                f"rank {judge.numbers(ranks)}"
                if len(ranks) == 1
                else (f"ranks {judge.numbers(ranks)}")
            )
            yield Finding(
                about=f"{engine.path} {words}",
                message=f"{engine.path} is for {plural(world, 'rank')} ({_sizes(engine)}), but the "
                f".{ending} of {files} {'is' if len(ranks) == 1 else 'are'} {words}",
                evidence=(said, *_listed(engine)),
                fixes=fixes_of_ranks(engine, world),
            )
    if more and not gone:
        yield Finding(
            about=f"{engine.path} more",
            severity="warning",
            confidence="likely",
            message=f"{engine.path} is for {plural(world, 'rank')} ({_sizes(engine)}), but holds "
            f"files of {plural(len(more), 'rank')} more: config.json is of another build",
            evidence=(said, *_listed(engine)),
        )


@check("trt-ranks-differ", severity="error", category="trt_engine_mismatch", since="0.3")
def ranks_differ(engine: TrtEngine) -> Iterator[Finding]:
    """The rank files of an engine are not of one build, or one of them is cut off or no plan.

    ## Why it matters
    Deserialising fails on one rank and the others hang; the message ("Failed to deserialize cuda
    engine") names no file.

    ## How it decides
    Plans of the ranks of one pipeline stage are equally large; one below nine tenths of the largest
    was cut off. Each begins with the tag "ftrt" and names the TensorRT that wrote it in bytes 24 to
    27 (NVIDIA/TensorRT, samples/common/sampleEngines.cpp): one without the tag is no plan (a Git LFS
    pointer, an error page), and two versions are two builds. Nothing else of the files is read.

    ## Fix safety
    Manual: copy again, or build again.
    """
    rows = [row for row in engine.ranks if row.size]
    if not rows:
        raise NotApplicable(f"{engine.path} holds no rank files")
    if engine.kind == "engine":
        for row in rows:
            if not row.is_plan:
                yield Finding(
                    about=f"{engine.path} {row.name}",
                    confidence="likely",
                    message=f"{row.name} ({_bytes(row.size)}) does not begin as a TensorRT plan does "
                    "(ftrt)",
                    evidence=(file_evidence(engine, row),),
                    fixes=fixes_of_ranks(engine, engine.world_size or len(rows)),
                )
        written = sorted({row.plan for row in rows if row.plan is not None})
        if len(written) > 1:
            yield Finding(
                about=f"{engine.path} plans",
                message=f"the rank files of {engine.path} were written by different TensorRT: "
                + "; ".join(
                    f"{version} rank {judge.numbers([r.rank for r in rows if r.plan == version])}"
                    for version in written
                ),
                evidence=tuple(file_evidence(engine, row) for row in rows[:8]),
                fixes=(rebuild(engine, "Build all ranks again in one go"),),
            )
    tensor = engine.size("tp_size") or 1
    for stage in sorted({row.rank // tensor for row in rows}):
        group = [row for row in rows if row.rank // tensor == stage]
        largest = max(row.size for row in group)
        for row in group:
            if row.size < SMALLER * largest:
                yield Finding(
                    about=f"{engine.path} {row.name}",
                    confidence="likely",
                    message=f"{row.name} has {_bytes(row.size)}, the largest of its stage "
                    f"{_bytes(largest)}: it was cut off",
                    evidence=tuple(file_evidence(engine, one) for one in group[:8]),
                    fixes=fixes_of_ranks(engine, engine.world_size or len(rows)),
                )


def _sizes(engine: TrtEngine) -> str:
    parts = [
        f"{name} {size}"
        for name in ("tp_size", "pp_size", "cp_size")
        if (size := engine.size(name)) not in (None, 1)
    ]
    world = engine.world_size
    return ", ".join(parts) or f"world_size {world if world is not None else 1}"


def _listed(engine: TrtEngine) -> tuple[Evidence, ...]:
    names = ", ".join(f"{row.name} {_bytes(row.size)}" for row in engine.ranks[:16])
    return (Evidence(source=engine.path, excerpt=names or "no rank files"),)


def file_evidence(engine: TrtEngine, row: RankFile) -> Evidence:
    plan = f", TensorRT {row.plan}" if row.plan else ""
    return Evidence(
        source=f"{engine.path.rstrip('/')}/{row.name}", excerpt=f"{_bytes(row.size)}{plan}"
    )


def _bytes(size: int) -> str:
    return gib(size) if size >= 1 << 20 else f"{size:,} bytes"
