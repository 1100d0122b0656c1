"""Where the time of a start went, and what dominates it."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.filesystems import network_label
from infer_doctor.facts.log import ColdStart, Phase
from infer_doctor.fixes.log import cure
from infer_doctor.model import Finding
from infer_doctor.registry import check

LONG_S = 30.0
"""What Kubernetes' default liveness probe forgives (3 failures of 10 s each): saving less changes
nobody's deployment."""

DOMINATES = 0.25
"""Of the time to ready."""

SLOW_GB_S = 1.0
"""A single SATA disk reads 0.5 GB/s, an NVMe disk 3 and more: below one the storage is the limit."""


def _phase(start: ColdStart, name: str) -> Phase | None:
    """The phase, when it is long and dominates."""
    for phase in start.phases:
        if (
            phase.name == name
            and phase.seconds >= LONG_S
            and phase.seconds >= DOMINATES * start.seconds
        ):
            return phase
    return None


def _share(start: ColdStart, phase: Phase) -> str:
    if not start.complete:
        return f"{phase.seconds:.0f} s"
    return f"{phase.seconds:.0f} of the {start.seconds:.0f} s to ready"


@check("log-start-compiles", severity="warning", category="cold_start", since="0.2")
def start_compiles(start: ColdStart) -> Iterator[Finding]:
    """The start compiled what an earlier one had compiled already.

    ## Why it matters
    In a container without a volume every start compiles anew; a start-up probe then kills it.

    ## How it decides
    torch.compile took at least 30 s (what Kubernetes' default liveness probe forgives) and a quarter
    of the time to ready, and no graph came out of the cache.

    ## Fix safety
    Manual: the cache needs a volume.
    """
    phase = _phase(start, "compile")
    if phase is None or not start.compiled:
        return
    yield Finding(
        about="compile",
        message=f"compilation took {_share(start, phase)}, and nothing came from its cache",
        evidence=(phase.evidence,),
        fixes=(
            cure(
                "keep-compile-cache",
                f"Keep ~/.cache/vllm (VLLM_CACHE_ROOT) on a volume: saves about {phase.seconds:.0f} s",
                why="it is used again on the same GPU, version and flags",
            ),
        ),
    )


@check("log-start-slow-weights", severity="warning", category="cold_start", since="0.2")
def start_slow_weights(start: ColdStart) -> Iterator[Finding]:
    """Weights were read slowly.

    ## Why it matters
    A 70B has 140 GB: at 0.2 GB/s its start takes twelve minutes, at 3 GB/s three quarters of one.

    ## How it decides
    Loading took at least 30 s and a quarter of the time to ready, and was slower than 1 GB/s, or the
    files are .bin (unpickled, then copied), or they lie on a network file system by the engine's own
    line "Filesystem type for checkpoints". Without the size of the checkpoint the speed is not known
    and only the other two count.

    ## Fix safety
    Manual: files have to be moved or converted, or the launch changed.
    """
    phase = _phase(start, "weights")
    if phase is None:
        return
    network = network_label((start.filesystem or "").lower(), "") is not None
    pickled = start.weight_format == "pt"
    speed = start.weights_per_second
    if not (network or pickled or (speed is not None and speed < SLOW_GB_S)):
        return
    words = f"loading weights took {_share(start, phase)}"
    if speed is not None and start.weights_gib:
        words += f": {start.weights_gib:g} GiB at {speed:g} GB/s"
        words += f" from {start.filesystem}" if start.filesystem else ""
    fixes = []
    if pickled:
        fixes.append(
            cure("safetensors", "Convert the .bin files to safetensors", why="no unpickling")
        )
    if network:
        fixes.append(
            cure(
                "prefetch",
                "Start with --safetensors-load-strategy prefetch, or copy the model to a "
                "local disk",
            )
        )
    if not fixes:
        fixes.append(cure("local-weights", "Keep the model on a local NVMe disk"))
    yield Finding(about="weights", message=words, evidence=(phase.evidence,), fixes=tuple(fixes))


@check("log-start-many-graphs", severity="warning", category="cold_start", since="0.2")
def start_many_graphs(start: ColdStart) -> Iterator[Finding]:
    """Capturing CUDA graphs dominates the start.

    ## Why it matters
    Each size is captured on its own; sizes that never occur only cost time and memory.

    ## How it decides
    Capturing took at least 30 s and a quarter of the time to ready ("Graph capturing finished in").

    ## Fix safety
    Manual: the launch has to be changed.
    """
    phase = _phase(start, "CUDA graphs")
    if phase is None:
        return
    sizes = start.graph_sizes
    half = f", saves about {phase.seconds / 2:.0f} s" if sizes else ""
    yield Finding(
        about="graphs",
        message=f"capturing CUDA graphs took {_share(start, phase)}"
        + (f" for {sizes} sizes" if sizes else ""),
        evidence=(phase.evidence,),
        fixes=(
            cure(
                "fewer-graphs",
                f"Capture half of the sizes (--cudagraph-capture-sizes){half}",
                why="or lower --max-num-seqs, from which the sizes follow",
            ),
        ),
    )
