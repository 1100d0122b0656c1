"""What a container platform gives to an engine: GPUs, shared memory, memory, CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infer_doctor.catalog.shm import (
    CHUNK,
    DOCKER_DEFAULT,
    GROUP_RING,
    NVIDIA_RECOMMENDS,
    REFUSES_SINCE,
    RESPONSE_RING,
    TENSOR_ARENA,
    broadcast_ring,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.manifest import (
    ask_for_gpus,
    enlarge_manifest_shm,
    match_parallel_size,
    raise_cpu_limit,
    raise_memory_limit,
)
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, value_of, whole
from infer_doctor.launch.model import Container, Launch, Unknown
from infer_doctor.launch.surroundings import (
    model_name,
    ranks_in_pod,
    require_container,
    require_nvidia,
    weights_of,
    written,
)
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import GIB, gib, plural
from infer_doctor.versions import series

SHM = "/dev/shm"  # noqa: S108
SPARE = 1.2
PROCESSES_GIB = 8
"""What the advised limit adds: a fifth, and the processes themselves (a core with CUDA and torch takes
some GiB of host memory); ours, on the generous side, for a limit that is met ends the pod."""

RUNNING = ("kubernetes", "compose", "docker-run")
"""Kinds of files that describe a running container; a chart's templates may add to its values."""

FIXED_PROCESSES = 2
"""The API server and the engine core, beside one worker a GPU (vLLM, docs/configuration/
optimization.md, "CPU Resources for GPU Deployments")."""


def _given(container: Container) -> bool:
    """Whether the container gets GPUs in a way that the file shows."""
    return bool(
        container.gpus is not None
        or container.gpu_claims
        or container.gpu_devices
        or container.privileged
        or container.runtime == "nvidia"
    )


@check("manifest-gpu-missing", severity="error", category="container", since="0.2")
def gpu_missing(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The container of the engine asks for no GPU.

    ## Why it matters
    Without a request Kubernetes gives the pod none, and places it on any node; Docker starts it
    without. The engine says "Failed to infer device type" or "No CUDA GPUs are available".

    ## How it decides
    Neither nvidia.com/gpu (also MIG and shared ones) nor a resource claim; in Compose and docker
    run neither a device reservation nor `gpus`, a CDI device or runtime nvidia. Where the node's
    or the daemon's default run-time is nvidia the container sees all GPUs all the same: likely.
    Images and variables for CPUs and other devices are left alone; a ServingRuntime too, for which
    the InferenceService asks.

    ## Fix safety
    Unsafe: an edit of the file; a platform that has no room for it starts nothing.
    """
    container = require_container(launch, *RUNNING)
    require_nvidia(launch, container)
    if "ServingRuntime/" in launch.name:
        raise NotApplicable("the InferenceService asks for the GPUs")
    if _given(container) or any(r.name == "NVIDIA_VISIBLE_DEVICES" for r in launch.environment):
        return
    try:
        count = ranks_in_pod(launch, options)
    except Unavailable:
        count = 1
    yield Finding(
        about=launch.name,
        message=f"{container.name} asks for no GPU; the engine needs {count}",
        confidence="likely",
        evidence=(
            written(launch, None, f"{container.name}: no GPU among its resources"),
            *evidence(options, "tensor_parallel_size", "pipeline_parallel_size"),
        ),
        fixes=(ask_for_gpus(launch, count),),
    )


@check("manifest-gpu-count", severity="error", category="gpu_count_ray", since="0.2")
def gpu_count(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The container asks for another number of GPUs than the parallel sizes use.

    ## Why it matters
    With too few the engine stops at its start ("world size is larger than the number of available
    GPUs") or waits for ever for a placement; those too many are paid for and stand idle.

    ## How it decides
    Ranks in a pod are tensor x pipeline x data parallel size, by --data-parallel-size-local where
    it is given, divided by --nnodes or by the size of a LeaderWorkerSet's group. Too few is an
    error, too many a warning. Not judged: GPUs of a resource claim and "all" (the number is not in
    the file), sizes that are not known, Ray without a group, which may use other pods.

    ## Fix safety
    Unsafe: an edit of the file; a platform that has no room for it starts nothing.
    """
    container = require_container(launch, *RUNNING)
    require_nvidia(launch, container)
    if container.gpus is None and not container.gpu_devices:
        if container.gpu_claims:
            raise Unavailable(f"the GPUs come from the claim {container.gpu_claims[0]}")
        raise NotApplicable("no number of GPUs is asked for")
    gpus = container.gpus if container.gpus is not None else len(container.gpu_devices)
    if isinstance(gpus, Unknown) or not isinstance(gpus, int):
        raise Unavailable(f"the number of GPUs is {getattr(gpus, 'text', gpus)}")
    ranks = ranks_in_pod(launch, options)
    if gpus == ranks:
        return
    pods = container.group_size or whole(options, "nnodes", 1)
    sizes = _sizes(options, pods)
    few = gpus < ranks
    yield Finding(
        about=launch.name,
        message=f"{container.name} asks for {plural(gpus, 'GPU')}; {sizes} {ranks}"
        + (f" in each of {pods} pods" if pods > 1 else ""),
        severity="error" if few else "warning",
        evidence=(
            written(launch, container.gpu_place, f"GPUs: {gpus}"),
            *evidence(
                options,
                "tensor_parallel_size",
                "pipeline_parallel_size",
                "data_parallel_size",
                "data_parallel_size_local",
                "nnodes",
            ),
        ),
        fixes=(ask_for_gpus(launch, ranks) if few else match_parallel_size(ranks, gpus, pods),),
    )


def _sizes(options: EngineOptions, pods: int) -> str:
    """ "tensor parallel size 4 and data parallel size 2", defaults of 1 left out."""
    names = {
        "tensor_parallel_size": "tensor parallel size",
        "pipeline_parallel_size": "pipeline parallel size",
        "data_parallel_size": "data parallel size",
        "data_parallel_size_local": "local data parallel size",
    }
    said = [
        f"{word} {options.given[name].value}"
        for name, word in names.items()
        if name in options.given
    ]
    if not said:
        return "the default parallel sizes need"
    return " and ".join(said) + (" needs" if len(said) == 1 else " need")


@check("manifest-shm-small", severity="warning", category="nccl_shm", since="0.2")
def shm_small(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The container gives the ranks of the engine too little shared memory.

    ## Why it matters
    Ranks exchange data through /dev/shm, of which Docker and Kubernetes give 64 MiB when nothing is
    said. vLLM since 0.27 refuses to start; older ones die by SIGBUS under load; NCCL stops with
    "unhandled system error".

    ## How it decides
    More than one rank in the container, no ipc=host, and at /dev/shm neither a volume nor a
    shm_size: 64 MiB; else the size that is written. A memory volume without sizeLimit is bounded by
    the pod's memory and is no finding. The need is that of container-shm-small: rings of 160 MiB
    and 240 MiB (catalog/shm.py, by version); below them vLLM from 0.27 on is an error, older
    versions and unknown ones a warning. TensorRT-LLM: a warning at 64 MiB.

    ## Fix safety
    Safe: an edit of the file, which the next deployment takes up.
    """
    container = require_container(launch, *RUNNING)
    ranks = ranks_in_pod(launch, options)
    if ranks == 1:
        raise NotApplicable("one rank shares nothing")
    if container.ipc in ("host", "shareable") or (container.ipc or "").startswith("container:"):
        return
    mounted = next((row for row in container.volumes if row.target.rstrip("/") == SHM), None)
    size = container.shm_size
    if size is None and mounted is not None:
        return
    have = DOCKER_DEFAULT if size is None else size
    if options.engine == "vllm":
        version = series(options.version)
        refuses = options.exact and version is not None and version >= REFUSES_SINCE
        rings = [broadcast_ring(version, of_engine(launch, None, CHUNK).get(CHUNK))]
        if refuses and whole(options, "nnodes", 1) == 1:
            rings.append(RESPONSE_RING)
        if options.get("enable_shm_tensor_arena") is True:
            rings.append(TENSOR_ARENA)
        need = max(rings)
    else:
        refuses, need = False, DOCKER_DEFAULT + 1
        rings = [NVIDIA_RECOMMENDS]
    if have >= need:
        return
    sizes = " and ".join(gib(ring) for ring in rings)
    said = "" if size is not None else ", the platform's default"
    total = rings[0] + RESPONSE_RING * ranks + GROUP_RING + (rings[-1] if len(rings) > 2 else 0)
    yield Finding(
        about=launch.name,
        message=f"{container.name} gets {gib(have)} of {SHM}{said}; {ranks} ranks want {sizes}",
        severity="error" if refuses else "warning",
        confidence="certain" if refuses else "likely",
        evidence=(
            written(
                launch,
                container.shm_place,
                f"{SHM} of {gib(have)}" if size is not None else f"no volume at {SHM}, no shm_size",
            ),
            *evidence(options, "tensor_parallel_size", "pipeline_parallel_size"),
        ),
        fixes=(enlarge_manifest_shm(launch, math.ceil(max(total, NVIDIA_RECOMMENDS) / GIB)),),
    )


@check("manifest-memory-small", severity="warning", category="host_ram", since="0.2")
def memory_small(
    launch: Launch, options: EngineOptions, files: ModelFiles | None
) -> Iterator[Finding]:
    """The memory limit of the container is below what the engine brings into memory.

    ## Why it matters
    The weights pass through the page cache, which counts to the container: with less memory than
    weights pages are thrown away and read again, and the load crawls; what is pinned (offloaded
    weights or KV cache) or read from .bin files ends with exit code 137.

    ## How it decides
    The limit against the bytes of the weights, by the model's files or, if they are not here, by
    its name (likely), divided by the pods of a group: a warning. Offloading (--cpu-offload-gb for
    each rank, --kv-offloading-size, --swap-space for each rank) above the limit is an error: that
    memory is pinned and cannot be given back.

    ## Fix safety
    Unsafe: an edit of the file; a platform that has no room for it starts nothing.
    """
    container = require_container(launch, *RUNNING)
    limit = container.memory_limit
    if limit is None:
        raise NotApplicable("no memory limit is set")
    pinned = _pinned(launch, options)
    if pinned > limit:
        yield _memory(launch, container, f"{gib(pinned)} are offloaded to it", pinned, "error")
        return
    weights = weights_of(options, files)
    if weights is None:
        raise Unavailable(f"the size of {model_name(options)} is not known")
    size = weights.size / (container.group_size or 1) + pinned
    if size <= limit or options.get("load_format") in ("runai_streamer", "dummy", "tensorizer"):
        return
    what = f"the weights of {model_name(options)} are {gib(weights.size)} {weights.basis}"
    finding = _memory(launch, container, what, size, "warning", named=weights.named)
    yield finding


def _pinned(launch: Launch, options: EngineOptions) -> float:
    """Bytes of host memory that options pin."""
    found = 0.0
    for name, each in (
        ("cpu_offload_gb", True),
        ("swap_space", True),
        ("kv_offloading_size", False),
    ):
        if name not in options.given:
            continue
        value = value_of(options, name)
        if isinstance(value, (int, float)) and value > 0:
            found += value * GIB * (ranks_in_pod(launch, options) if each else 1)
    return found


def _memory(
    launch: Launch,
    container: Container,
    what: str,
    need: float,
    severity: str,
    named: bool = False,
) -> Finding:
    room = math.ceil(need * SPARE / GIB) + PROCESSES_GIB
    limit = container.memory_limit or 0
    return Finding(
        about=launch.name,
        message=f"the memory limit of {container.name} is {gib(limit)}; {what}",
        severity="error" if severity == "error" else "warning",
        confidence="possible" if named else "likely",
        evidence=(written(launch, container.memory_place, f"memory limit {gib(limit)}"),),
        fixes=(raise_memory_limit(launch, room),),
    )


@check("manifest-cpu-few", severity="warning", category="container", since="0.2")
def cpu_few(launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The CPU limit is below the number of the engine's processes.

    ## Why it matters
    The engine core turns in a busy loop and each worker keeps a core busy: below one core a
    process they take each other's time, the GPUs wait, and tokens come late.

    ## How it decides
    vLLM runs at least an API server and an engine core for each data-parallel replica, one worker
    a GPU and, with replicas, a coordinator; its documentation wants as many physical cores, twice
    that in hyper-threads (docs/configuration/optimization.md, "CPU Resources for GPU
    Deployments"). A limit below the first number is a finding; above it, nothing is said.

    ## Fix safety
    Unsafe: an edit of the file; a platform that has no room for it starts nothing.
    """
    container = require_container(launch, *RUNNING)
    if options.engine != "vllm":
        raise NotApplicable("the rule is vLLM's")
    if container.cpu_limit is None:
        raise NotApplicable("no CPU limit is set")
    require_nvidia(launch, container)
    ranks = ranks_in_pod(launch, options)
    replicas = whole(options, "data_parallel_size", 1)
    local = value_of(options, "data_parallel_size_local") or replicas
    local = min(int(local), ranks)
    need = FIXED_PROCESSES * local + ranks + (1 if local > 1 else 0)
    if container.cpu_limit >= need:
        return
    yield Finding(
        about=launch.name,
        message=f"the CPU limit of {container.name} is {container.cpu_limit:g}; vLLM runs {need} "
        f"processes that want a core each ({ranks} workers, {need - ranks} others)"
        if ranks > 1
        else f"the CPU limit of {container.name} is {container.cpu_limit:g}; vLLM runs {need} "
        "processes that want a core each",
        evidence=(
            written(launch, container.cpu_place, f"CPU limit {container.cpu_limit:g}"),
            Evidence(source="vLLM documentation", excerpt="at least 2 + N physical cores"),
        ),
        fixes=(raise_cpu_limit(launch, need),),
    )
