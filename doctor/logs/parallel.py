"""Parallel sizes: which ones the engine would take."""

from __future__ import annotations

import re
from collections.abc import Callable

from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer, number, since
from infer_doctor.logs.figures import count
from infer_doctor.logs.story import Hit, Start
from infer_doctor.model import Fix

MOST_GPUS = 4096
"""Parallel sizes above it were mangled on the way into the log."""

LARGEST_SIZE = 1 << 21
"""Of a dimension of a model: vocabularies end at 262,144, intermediate sizes at 65,536."""


def divisors(of: int) -> list[int]:
    """All divisors, ascending; none of what is no dimension of a model."""
    if of > LARGEST_SIZE:
        return []
    return [size for size in range(1, min(of, MOST_GPUS) + 1) if of % size == 0]


def heads_tp(hit: Hit, start: Start) -> Answer:
    """heads % tp == 0 (vllm/config/model.py), and the KV heads, which are not in the log, must fit too.

    Their number is a power of two in nearly every model: 28 heads are divided by 7, 4 KV heads not.
    """
    heads, tensor = number(hit, "heads"), number(hit, "tp")
    if not heads or not tensor:
        return Answer()
    sizes = divisors(int(heads))
    below = [size for size in sizes if size <= tensor]
    if not below:
        return Answer()
    fit = max((size for size in below if size & (size - 1) == 0 and size > 1), default=max(below))
    stages = int(tensor) // fit
    fixes = [cure("tensor-parallel-size", f"Start with --tensor-parallel-size {fit}")]
    if fit > 1 and fit * stages == tensor and stages > 1:
        fixes.append(
            cure(
                "pipeline-the-rest",
                f"Or keep {tensor:.0f} GPUs: --tensor-parallel-size {fit} "
                f"--pipeline-parallel-size {stages}",
            )
        )
    shown = ", ".join(map(str, sizes if len(sizes) < 12 else [*sizes[:11], "..."]))
    return Answer(
        message=f"{heads:.0f} attention heads cannot be split over {tensor:.0f} GPUs; {shown} divide "
        "them",
        fixes=tuple(fixes),
    )


def tp_smaller(hit: Hit, start: Start) -> Answer:
    """Sizes that cut no quantisation group: whole size / t must stay a multiple of the unit."""
    tensor = int(start.number_of("tensor_parallel_size") or 0)
    tensor = tensor if tensor <= MOST_GPUS else 0
    size, unit = number(hit, "size"), number(hit, "unit")
    if size and unit and tensor > 1:
        whole = int(size) * tensor
        fit = [t for t in range(1, tensor) if whole % t == 0 and (whole // t) % int(unit) == 0]
        if fit:
            listed = ", ".join(map(str, fit))
            experts: tuple[Fix, ...] = ()
            if start.version is None or since(start, 0, 8):
                experts = (
                    cure(
                        "expert-parallel", "Or, for a mixture of experts, --enable-expert-parallel"
                    ),
                )
            return Answer(
                message=f"{size:.0f} values for each of {tensor} GPUs are no multiple of {unit:.0f}, "
                f"the quantisation's unit; {listed} GPUs would do",
                fixes=(
                    cure("tensor-parallel-size", f"Start with --tensor-parallel-size {fit[-1]}"),
                    *experts,
                ),
            )
    first, second = number(hit, "a"), number(hit, "b")
    if first and second:
        fit = [t for t in divisors(int(first)) if t < second]
        if fit:
            return Answer(
                message=f"{first:.0f} cannot be split over {second:.0f} GPUs",
                fixes=(
                    cure("tensor-parallel-size", f"Start with --tensor-parallel-size {fit[-1]}"),
                ),
            )
    if tensor > 1:
        return Answer(
            fixes=(
                cure(
                    "tensor-parallel-size",
                    f"Start with a smaller --tensor-parallel-size than {tensor}: {tensor // 2}, else 1",
                ),
            )
        )
    return Answer()


def world_size(hit: Hit, start: Start) -> Answer:
    """world = tensor x pipeline (x ...) has to be at most the visible GPUs."""
    world, gpus = number(hit, "world"), number(hit, "gpus")
    if world is None or gpus is None:
        return Answer()
    pipeline = int(start.number_of("pipeline_parallel_size") or 1)
    fixes = []
    fit = int(gpus) // pipeline
    if fit >= 1:
        power = 1 << (fit.bit_length() - 1)
        rest = f" --pipeline-parallel-size {pipeline}" if pipeline > 1 else ""
        fixes.append(
            cure(
                "tensor-parallel-size",
                f"Start with --tensor-parallel-size {power}{rest}",
                why=None if power == fit else f"{fit} may not divide the attention heads",
            )
        )
    fixes.append(
        cure(
            "more-visible-gpus",
            f"Or make {world:.0f} GPUs visible (CUDA_VISIBLE_DEVICES, --gpus all)",
        )
    )
    return Answer(
        message=f"the launch needs {world:.0f} GPUs; {gpus:.0f} "
        f"{'is' if gpus == 1 else 'are'} visible",
        fixes=tuple(fixes),
    )


def local_rank(hit: Hit, start: Start) -> Answer:
    """No GPU at all is another story than one too few."""
    gpus = number(hit, "gpus")
    if gpus == 0:
        return Answer(
            message="the engine sees no GPU: 0 devices are visible to it",
            fixes=(
                cure(
                    "make-gpus-visible",
                    "Set CUDA_VISIBLE_DEVICES to a GPU that exists, or unset it; "
                    "start a container with --gpus all",
                    "nvidia-smi -L",
                    "echo $CUDA_VISIBLE_DEVICES",
                ),
            ),
        )
    return Answer()


def mpi_size(hit: Hit, start: Start) -> Answer:
    """The ranks that the engine was built for."""
    groups = hit.match.groupdict()
    ranks = None
    if groups.get("tp") and groups.get("pp"):
        ranks = count(groups["tp"]) * count(groups["pp"])
    elif groups.get("engine"):
        ranks = 1
        for factor in re.findall(r"\d+", groups["engine"]):
            ranks *= count(factor)
    if not ranks or ranks > MOST_GPUS:
        return Answer()
    here = groups.get("mpi") or groups.get("runtime") or "another number of"
    same = cure(
        "mpi-ranks",
        f"Start {ranks} ranks: mpirun -n {ranks} --allow-run-as-root ...",
        text=f"or launch_triton_server.py --world_size {ranks}; if mpirun -n {ranks} was used, mpi4py "
        "belongs to another MPI than mpirun",
    )
    return Answer(
        message=f"the engine was built for {ranks} ranks; {here} MPI rank(s) run", fixes=(same,)
    )


FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {
    "heads_tp": heads_tp,
    "tp_smaller": tp_smaller,
    "world_size": world_size,
    "local_rank": local_rank,
    "mpi_size": mpi_size,
}
