"""Whether the launch fits into the memory of its GPUs: the plan, before the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.memory_plan import Planned, named_model
from infer_doctor.fixes.memory_plan import fixes_of, share_of
from infer_doctor.launch.judge import evidence
from infer_doctor.launch.model import Launch
from infer_doctor.model import Confidence, Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import GIB, gib

if TYPE_CHECKING:
    from infer_doctor.memory.plan import MemoryPlan

OPTIONS = (
    "model",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "quantization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enforce_eager",
    "kv_cache_memory_bytes",
)
"""Options that decide about memory, for the evidence."""

UNUSED_SHARE = 0.25
"""Of a GPU that nobody else uses: 0.92 is the default, so 0.08 stays free in any case; memory for
graphs and NCCL is some 3 GiB."""


def _evidence(planned: Planned, options: EngineOptions) -> tuple[Evidence, ...]:
    """The options, the model and the GPU that the figures come from."""
    plan = planned.plan
    rank = plan.rank
    parts = (
        f"weights {gib(rank.weights)} ({plan.basis}), activation {gib(rank.activation)}, other "
        f"{gib(rank.non_torch + rank.graphs_inside)}, "
        + (f"KV cache {gib(rank.cache)}" if rank.cache > 0 else f"{gib(-rank.cache)} too much")
    )
    held = f", {gib(plan.gpu.used)} held" if plan.gpu.used > GIB else ""
    return (
        *evidence(options, *OPTIONS),
        Evidence(source=planned.model, excerpt=parts),
        Evidence(
            source=planned.source,
            excerpt=f"{plan.gpu.name}: {gib(plan.gpu.usable)} for CUDA{held}",
        ),
    )


def _share(plan: MemoryPlan) -> str:
    return f"{plan.settings.utilisation:g} x {gib(plan.gpu.usable)}"


def _sure(planned: Planned, missing: int) -> Confidence:
    """Certain when more is missing than the plan may be wrong by, of a model that was read here."""
    return "certain" if missing > planned.plan.band and not planned.published else "likely"


@check("memory-start-refused", severity="error", category="oom_startup_free_mem", since="0.2")
def start_refused(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The utilisation asks for more than CUDA's own context and NCCL leave free.

    ## Why it matters
    The engine ends at once with "Free memory on device ... on startup is less than desired GPU
    memory utilization", although nobody else uses the GPU.

    ## How it decides
    The engine compares utilisation x what CUDA can give with what is free after its CUDA context
    and, with several ranks, NCCL (v1/worker/utils.py:724). On an H200 these took 0.5 GiB on one GPU
    and 1.4 to 2.0 GiB in a group of two. What other processes hold is judged by gpu-memory-held.

    ## Fix safety
    A lower utilisation leaves a little less for the KV cache.
    """
    plan = planned.plan
    if plan.limit != "free" or plan.gpu.usable - plan.gpu.used < plan.budget:
        return
    free = plan.gpu.usable - plan.rank.before
    yield Finding(
        about="gpu_memory_utilization",
        message=f"the engine wants {gib(plan.budget)} free at its start ({_share(plan)}); its CUDA "
        f"context and communicators leave about {gib(free)}",
        confidence=_sure(planned, plan.budget - free),
        evidence=_evidence(planned, options),
        fixes=fixes_of(planned, launch, options, only=("gpu_memory_utilization",)),
    )


@check("memory-does-not-load", severity="error", category="oom_load", since="0.2")
def does_not_load(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The weights are larger than the memory that the engine may use on a GPU.

    ## Why it matters
    The engine loads for minutes and then ends with "CUDA out of memory", or, when the weights just
    fit on the GPU but not in the budget, with "No available memory for the cache blocks" and the
    advice to raise --gpu-memory-utilization, which seldom helps then.

    ## How it decides
    The bytes of each rank come from the safetensors headers, else from config.json (which of the two
    is in the evidence), with the dtype, the quantisation and the parallel sizes of the launch. They
    are compared with the free memory and with the budget, utilisation x what CUDA can give (NVML's
    total without what the driver reserves). On 13 starts of a real vLLM 0.26 the figure was within
    0.04 GiB of "Model loading took".

    ## Fix safety
    A shorter context or another utilisation changes nothing else. Quantisation and a cache in fp8
    change answers a little: compare them. All restart the engine.
    """
    plan = planned.plan
    if plan.limit not in ("load", "no_cache"):
        return
    rank = plan.rank
    room = min(plan.budget, plan.gpu.usable - rank.before)
    if rank.weights <= room:
        return
    yield Finding(
        about=named_model(options),
        message=f"weights of {gib(rank.weights)} on each GPU against {gib(room)} that the engine may "
        f"use ({_share(plan)})",
        confidence=_sure(planned, rank.weights - room),
        evidence=_evidence(planned, options),
        fixes=fixes_of(planned, launch, options),
    )


@check("memory-no-cache-room", severity="error", category="oom_kv_cache", since="0.2")
def no_cache_room(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """Weights and activations fill the budget: nothing is left for the KV cache.

    ## Why it matters
    The engine ends after loading with "No available memory for the cache blocks".

    ## How it decides
    Budget (utilisation x what CUDA can give) less weights, the peak of the profile run, what
    libraries take and, where the version reserves it, the memory of CUDA graphs. The peak follows
    the batched tokens, the sizes of the layers and the number of sequences (memory/activation.py);
    on 25 measured starts the pool was within 0.05 GiB. Beyond that error the finding is certain.

    ## Fix safety
    As for memory-does-not-load.
    """
    plan = planned.plan
    room = min(plan.budget, plan.gpu.usable - plan.rank.before)
    if plan.limit != "no_cache" or plan.rank.weights > room:
        return
    yield Finding(
        about=named_model(options),
        message=plan.reason or "",
        confidence=_sure(planned, -plan.rank.cache),
        evidence=_evidence(planned, options),
        fixes=fixes_of(planned, launch, options),
    )


@check("memory-context-too-long", severity="error", category="oom_kv_cache", since="0.2")
def context_too_long(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """One request of the longest context does not fit into the KV cache.

    ## Why it matters
    The engine refuses after loading: "To serve at least one request with the model's max seq len
    ..., KV cache is needed, which is larger than the available KV cache memory".

    ## How it decides
    Blocks of one request of max_model_len (the config's own when none is given) by kind of layer
    (full, sliding, chunked, MLA, state), against the blocks that the pool of memory-no-cache-room
    holds (v1/core/kv_cache_utils.py of vLLM 0.26 and 0.32). The suggested length keeps the error of
    the plan as a margin, so that it starts: 1 % below the engine's own figure on a measured start.

    ## Fix safety
    A shorter context rejects longer requests. An fp8 cache changes answers a little.
    """
    plan = planned.plan
    if plan.limit != "context":
        return
    need = plan.needed_blocks * plan.cache.block_bytes
    yield Finding(
        about="max_model_len",
        message=f"one request of {plan.settings.context:,} tokens needs {gib(need)} of KV cache; "
        f"{gib(plan.rank.cache)} are there ({plan.longest:,} tokens)",
        confidence=_sure(planned, need - plan.rank.cache),
        evidence=_evidence(planned, options),
        fixes=fixes_of(planned, launch, options),
    )


@check("memory-graphs-too-large", severity="error", category="oom_graph_warmup", since="0.2")
def graphs_too_large(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """CUDA graphs do not fit beside the budget.

    ## Why it matters
    Some versions and runners take the graphs from outside the budget (vLLM 0.26 with its V2 runner,
    all before 0.20): the KV cache is then allocated, and the capture of graphs ends the start with
    "CUDA out of memory" minutes later.

    ## How it decides
    CUDA context, NCCL, the whole budget, the runner's own buffers and the estimated graphs, against
    what CUDA can give. The estimate of the graphs was within 0.05 GiB on six measured starts, but
    those are few, so the finding is only likely.

    ## Fix safety
    A lower utilisation leaves less for the KV cache; --enforce-eager makes decoding slower.
    """
    plan = planned.plan
    if plan.limit != "graphs":
        return
    yield Finding(
        about="CUDA graphs",
        message=plan.reason or "",
        confidence="likely",
        evidence=_evidence(planned, options),
        fixes=fixes_of(planned, launch, options),
    )


@check("memory-sequences-too-many", severity="info", category="queueing", since="0.2")
def sequences_too_many(
    planned: Planned, launch: Launch, options: EngineOptions
) -> Iterator[Finding]:
    """More sequences at once are asked for than the KV cache holds at full length.

    ## Why it matters
    The engine then preempts requests and computes them again, or lets them wait.

    ## How it decides
    Only when the launch itself sets max_num_seqs: it is compared with the number of requests of
    max_model_len that the planned KV cache holds. Shorter requests fit more often; the message says
    how many tokens each may have.

    ## Fix safety
    Fewer sequences only wait in the queue instead.
    """
    plan = planned.plan
    wanted = plan.settings.sequences
    if not plan.fits or "max_num_seqs" not in plan.settings.given or plan.concurrency >= wanted:
        return
    yield Finding(
        about="max_num_seqs",
        message=f"{wanted:,} sequences at once are asked for; the KV cache holds "
        f"{plan.concurrency:,.1f} of {plan.settings.context:,} tokens, or {wanted:,} of "
        f"{plan.tokens // wanted:,}",
        confidence="likely",
        evidence=_evidence(planned, options),
        fixes=(share_of(launch, options, "max_num_seqs", max(1, int(plan.concurrency))),),
    )


@check("memory-unused", severity="info", category="launch_argument", since="0.2")
def unused(planned: Planned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """A large part of a GPU that nobody else uses stays unused.

    ## Why it matters
    The KV cache could hold more requests; a low --gpu-memory-utilization is often a remainder of an
    attempt to cure something else.

    ## How it decides
    Only when the launch itself sets the utilisation (or the size of the KV cache): what is free on
    the GPU once the engine has started, against a quarter of it.

    ## Fix safety
    Unsafe: whether another process is to share the GPU is not known.
    """
    plan = planned.plan
    rank = plan.rank
    given = {"gpu_memory_utilization", "kv_cache_memory_bytes"} & plan.settings.given
    if not plan.fits or not given:
        return
    taken = rank.before + rank.weights + rank.activation + rank.non_torch + rank.cache
    left = plan.gpu.usable - taken - rank.graphs - rank.buffers
    if left < UNUSED_SHARE * plan.gpu.usable:
        return
    yield Finding(
        about="gpu_memory_utilization",
        message=f"{gib(left)} of {gib(plan.gpu.usable)} stay unused on each GPU",
        confidence="likely",
        evidence=_evidence(planned, options),
        fixes=tuple(
            replace(fix, safety="unsafe", why=f"{fix.why}; nobody else may then share the GPU")
            for fix in fixes_of(planned, launch, options, only=("gpu_memory_utilization",))
        ),
    )
