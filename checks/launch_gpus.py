"""Whether there are GPUs for all ranks of the launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.fixes.models import advise, change_option, change_variable
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import (
    evidence,
    flag,
    is_here,
    require_vllm,
    value_of,
    version_of,
    whole,
    word,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import quantization_of
from infer_doctor.launch.variables import variable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import parallel
from infer_doctor.registry import check
from infer_doctor.units import plural

TENSOR = "tensor_parallel_size"
PIPELINE = "pipeline_parallel_size"
EXPERT = "enable_expert_parallel"

NO_RAY_BY_ITSELF = (0, 32)
"""Seen in 0.32.0 (config/parallel.py:1052): too few GPUs are refused. Before some release Ray was taken
then without being asked for, and a cluster could have the rest."""


@check("launch-gpus-too-few", severity="error", category="gpu_count_ray", since="0.2")
def gpus_too_few(
    launch: Launch,
    options: EngineOptions,
    gpus: Gpus | None,
    visible: VisibleDevices | None,
    engine: EngineFact | None,
    config: ModelConfig | None,
    files: ModelFiles | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The launch has more ranks than the machine has GPUs for.

    ## Why it matters
    vLLM stops with "World size (8) is larger than the number of available GPUs (4) in this node",
    with Ray it waits for a placement group that never comes.

    ## How it decides
    Ranks on this machine: tensor x pipeline (x prefill context) x data parallel, divided by
    `--nnodes`, with `--data-parallel-size-local` in place of the data parallel size. GPUs: what
    CUDA_VISIBLE_DEVICES leaves of those that the driver offers. With Ray and with an external
    launcher other machines may give GPUs, so nothing is judged then; before 0.32 the finding is only
    likely, for Ray may be taken by itself. Where the GPUs are not known
    (none here, or another machine) the size is named as not verified, with the sizes that divide
    the model. The CPU build has no ranks on GPUs.

    ## Fix safety
    Safe: a smaller size in the launch; it must divide the attention heads too. Unsafe where
    CUDA_VISIBLE_DEVICES hides GPUs: they may be somebody else's.
    """
    require_vllm(options)
    if engine is not None and engine.build == "cpu" and is_here(launch):
        raise NotApplicable("the installed vLLM is a CPU build")
    backend = word(options, "distributed_executor_backend")
    if word(options, "data_parallel_backend") == "ray":
        backend = "ray"
    if backend in ("ray", "external_launcher"):
        raise Unavailable(f"with {backend} other machines may give GPUs")
    tensor, pipeline = whole(options, TENSOR, 1), whole(options, PIPELINE, 1)
    context = whole(options, "prefill_context_parallel_size", 1)
    replicas = whole(options, "data_parallel_size", 1)
    local = value_of(options, "data_parallel_size_local")
    replicas = local if type(local) is int and local >= 0 else replicas
    if value_of(options, "data_parallel_rank") is not None:  # one process for each replica
        replicas = 1
    nodes = whole(options, "nnodes", 1)
    ranks = tensor * pipeline * context * replicas // max(nodes, 1)
    if ranks <= 1:
        raise NotApplicable("one rank: gpu-none judges whether there is a GPU")
    good = _divisors(config or published, files, options)
    product = _product(options, tensor, pipeline, context, replicas, nodes)
    where = evidence(options, TENSOR, PIPELINE, "data_parallel_size", "nnodes")
    if gpus is None or not is_here(launch):
        if launch.container is not None and launch.container.gpus is not None:
            raise NotApplicable("the manifest says how many GPUs there are")
        yield Finding(
            about="GPUs",
            severity="info",
            message=f"{product}: whether the machine has them was not verified"
            f"{_divide(good, tensor) if tensor > 1 else ''}",
            evidence=where or (Evidence(source=launch.place.file, line=launch.place.line),),
        )
        return
    if gpus.gaps:
        raise Unavailable(gpus.gaps[0])
    count = len(gpus.gpus) if visible is None else len(visible.entries)
    if ranks <= count:
        if visible is None:
            variable(launch, "CUDA_VISIBLE_DEVICES")  # a value that is not told may leave fewer
        return
    hidden = visible is not None and len(gpus.gpus) >= ranks
    about = f", but CUDA_VISIBLE_DEVICES={visible.value}" if hidden and visible else ""
    version = version_of(options)
    sure = backend == "mp" or (version is not None and version >= NO_RAY_BY_ITSELF)
    yield Finding(
        about="GPUs",
        confidence="certain" if sure else "likely",
        message=f"{product}; {plural(count, 'GPU')} {'is' if count == 1 else 'are'} visible"
        f"{_divide(good, tensor) if not hidden else ''}",
        evidence=(
            *where,
            Evidence(source=gpus.source, excerpt=f"{plural(len(gpus.gpus), 'GPU')}{about}"),
        ),
        fixes=_fewer(launch, options, good, count, hidden=hidden, ranks=ranks),
    )


def _divisors(
    config: ModelConfig | None, files: ModelFiles | None, options: EngineOptions
) -> tuple[int, ...]:
    if config is None:
        return ()
    if isinstance(config, PublishedConfig) and config.quantization_hidden:
        return ()
    experts = options.get(EXPERT) is True
    return parallel.sizes(config.values, quantization_of(files, config), expert_parallel=experts)


def _divide(good: Sequence[int], size: int) -> str:
    return (
        f"; sizes that divide this model: {parallel.listed(parallel.offered(good, size) or good)}"
        if good
        else ""
    )


def _product(
    options: EngineOptions, tensor: int, pipeline: int, context: int, replicas: int, nodes: int
) -> str:
    factors = [("tensor", tensor), ("pipeline", pipeline), ("prefill context", context)]
    factors.append(("data parallel", replicas))
    used = [(name, number) for name, number in factors if number > 1]
    total = tensor * pipeline * context * replicas
    if len(used) == 1 and nodes <= 1:
        names = {"tensor": TENSOR, "pipeline": PIPELINE, "data parallel": "data_parallel_size"}
        name = names.get(used[0][0], "prefill_context_parallel_size")
        if used[0][0] == "data parallel" and "data_parallel_size_local" in options.given:
            name = "data_parallel_size_local"
        return f"{flag(options, name)} {total} needs {plural(total, 'GPU')}"
    text = " x ".join(f"{name} {number}" for name, number in used)
    share = f" over {nodes} nodes" if nodes > 1 else ""
    here = total // max(nodes, 1)
    return f"{text}{share} needs {plural(here, 'GPU')}{' on each' if nodes > 1 else ''}"


def _fewer(
    launch: Launch,
    options: EngineOptions,
    good: Sequence[int],
    count: int,
    *,
    hidden: bool,
    ranks: int,
) -> tuple[Fix, ...]:
    if hidden:
        indices = ",".join(str(index) for index in range(ranks))
        return (
            change_variable(
                launch,
                "CUDA_VISIBLE_DEVICES",
                indices,
                why="if the GPUs that it hid are not meant for somebody else",
                safety="unsafe",
            ),
        )
    fits = [size for size in good if size <= count]
    if not fits or whole(options, PIPELINE, 1) > 1 or whole(options, "data_parallel_size", 1) > 1:
        return (
            advise(
                "use-more-gpus",
                f"Start on a machine with {plural(ranks, 'GPU')}, or lower the sizes",
            ),
        )
    return (
        change_option(
            launch,
            options,
            TENSOR,
            max(fits),
            why=f"the largest size that divides the model and {plural(count, 'GPU')} can run",
        ),
    )
