"""The plan: settings, weights, activation, graphs and cache of each GPU put together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Architecture, Unplannable
from infer_doctor.memory.kv_cache import DTYPE_BYTES, Cache, Demand, cache_of, longest
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.parts import Gpu, Model, Rank, rank_of
from infer_doctor.memory.settings import CONSUMED_SINCE, NEWEST, OLDEST, Settings
from infer_doctor.units import GIB, MIB, gib

BAND = 80 * MIB
"""Twice the worst error of the pool over the starts of tests/memory, for kinds that were measured
there (bench/plan.py prints it, with each constant fitted without the start that it judges)."""

FAR_BAND = 0.10
"""The share of activation and non-torch memory that may be wrong for kinds that were not measured."""

TOWER_BAND = 2 * GIB
"""No start with an encoder has been measured: its profile run with the largest image is not in the
activation."""

DRAFT_BAND = 0.05
"""The share of a GPU that a draft model may take: its weights and cache are not counted."""

MARGIN = 0.005
"""A suggested number keeps this share of the GPU's memory, so that it starts for real."""

V0_BAND = 0.02
"""Of a GPU: the published starts of V0 that were compared lie within it."""

PACKED_BAND = 0.065
"""Of the weights with mxfp4 experts, whose padding is that of the kernel: on an H100 gpt-oss-120b took
64.4 GiB with Triton (issue 33155, 0.14.1) and 66.0 with Marlin (23278), on an H200 it is 62.1."""

WHOLE_CHECK = ((0, 14), (0, 16))
"""Versions that hold one request's cache in all stages against what one GPU has (pull request 33698
mends it; issue 34076: 24 GiB wanted of a GPU that keeps half of the layers)."""

Limit = Literal["load", "free", "no_cache", "context", "graphs"]


@frozen
class MemoryPlan:
    """What the engine would print."""

    gpu: Gpu
    settings: Settings
    layout: Layout
    rank: Rank
    """The GPU with the smallest cache, which decides."""
    ranks: tuple[Rank, ...]
    cache: Cache
    budget: int
    blocks: int
    needed_blocks: int
    """Of one request of the whole context."""
    tokens: int
    concurrency: float
    longest: int
    """The longest context of one request, at most what the model can."""
    safe_longest: int
    """The same within the error band: a number to suggest."""
    limit: Limit | None
    reason: str | None
    band: int
    """Bytes by which the pool may be wrong."""
    uncounted: int
    """Of them those of parts that are left out: a draft head, a multimodal encoder's profile."""
    basis: str
    assumptions: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.limit is None

    @property
    def band_percent(self) -> float:
        return round(100 * self.band / max(abs(self.rank.cache), 1), 1)


def layout_of(model: Architecture, settings: Settings) -> Layout:
    """Raises Unplannable where the engine would refuse the sizes."""
    attention = next((layer.attention for layer in model.layers if layer.attention), None)
    heads = attention.heads if attention else 0
    key_value = attention.kv_heads if attention and attention.kind != "mla" else 1
    tensor, stages = settings.tensor, settings.stages
    if attention and heads % tensor:
        raise Unplannable(
            f"{heads} attention heads cannot be divided by tensor parallelism {tensor}"
        )
    if attention and attention.kind != "mla" and max(tensor, key_value) % min(tensor, key_value):
        raise Unplannable(f"{key_value} key-value heads do not go with tensor parallelism {tensor}")
    if stages > len(model.layers):
        raise Unplannable(f"{len(model.layers)} layers cannot be divided into {stages} stages")
    return Layout(
        tensor=tensor,
        stages=stages,
        data=settings.data if model.moe else 1,
        layers=len(model.layers),
        kv_heads=key_value,
        tied=model.tied,
        replicas=settings.data,
    )


def make_plan(model: Model, settings: Settings, gpu: Gpu) -> MemoryPlan:
    """The plan of one launch on one kind of GPU; raises Unplannable."""
    if gpu.usable <= 0:
        raise Unplannable(f"{gpu.name} has {gpu.usable} bytes of memory")
    architecture = model.architecture
    layout = layout_of(architecture, settings)
    item = cache_item(settings)
    budget = math.ceil(gpu.usable * settings.utilisation)
    ranks = []
    caches = []
    for stage in range(layout.stages):
        cache = cache_of(architecture, layout, stage, item, settings.block, settings.itemsize)
        ranks.append(rank_of(model, settings, gpu, layout, stage, budget))
        caches.append(cache)
    blocks = [cache.blocks_in(rank.cache) for cache, rank in zip(caches, ranks, strict=True)]
    place = min(range(len(ranks)), key=lambda stage: (blocks[stage], ranks[stage].cache))
    rank, cache = ranks[place], caches[place]
    count = settings.blocks_override or blocks[place]
    demand = Demand(in_flight=settings.in_flight, states=settings.states)
    context = settings.context
    own_context = context // settings.context_parallel
    per_request = cache.blocks_of(-(-context // settings.context_parallel), demand)
    concurrency = count / per_request if per_request else 0.0
    most = max(architecture.context or context, context)
    uncounted = _uncounted(model, settings, gpu)
    band = _band(model, settings, gpu, rank) + uncounted

    spare = 1 if settings.version >= CONSUMED_SINCE else 0
    """The null block, which newer versions keep aside (kv_cache_utils.py:1003 of 0.32.0)."""

    whole = WHOLE_CHECK[0] <= settings.version < WHOLE_CHECK[1] and layout.stages > 1
    unit = sum(one.block_bytes for one in caches) if whole else cache.block_bytes

    def fitting(size: int) -> int:
        room = max(0, size) // unit if unit else 0
        found = longest(lambda length: cache.blocks_of(length, demand) + spare <= room, most)
        return found * settings.context_parallel if room else 0

    there = min(count, max(0, rank.cache) // unit) if whole and unit else count
    limit, reason = _limit(gpu, settings, rank, budget, per_request + spare, there, layout)
    if whole and limit == "context" and per_request + spare <= count:
        reason = f"{reason}: this version counts all {layout.stages} stages against one GPU"
    longest_context = fitting(rank.cache)
    return MemoryPlan(
        gpu=gpu,
        settings=settings,
        layout=layout,
        rank=rank,
        ranks=tuple(ranks),
        cache=cache,
        budget=budget,
        blocks=count,
        needed_blocks=per_request + spare,
        tokens=_tokens(settings, cache, count, concurrency, own_context),
        concurrency=concurrency,
        longest=longest_context,
        safe_longest=min(longest_context, fitting(rank.cache - safety(gpu, band, uncounted))),
        limit=limit,
        reason=reason,
        band=band,
        uncounted=uncounted,
        basis=model.basis,
        assumptions=_assumptions(model, settings, gpu, rank),
    )


def cache_item(settings: Settings) -> float:
    """Bytes of a number in the cache."""
    known = DTYPE_BYTES.get(settings.cache_dtype)
    if known is None:
        raise Unplannable(f"no memory model for --kv-cache-dtype {settings.cache_dtype}")
    return known or float(settings.itemsize)


def safety(gpu: Gpu, band: int, uncounted: int) -> int:
    """What a suggested number leaves free: what is not counted, and of the rest a small share."""
    return min(band - uncounted, int(gpu.usable * MARGIN)) + uncounted


def _tokens(settings: Settings, cache: Cache, blocks: int, concurrency: float, context: int) -> int:
    """The figure of the log, which means another thing in each era (kv_cache_utils.py:1195)."""
    if not cache.groups:
        return 0
    if settings.version >= (0, 24):
        return int(concurrency * settings.context)
    block = min(group.tokens for group in cache.groups)
    groups = len(cache.groups) if settings.version >= (0, 10) else 1
    return blocks // groups * block * settings.context_parallel


def _uncounted(model: Model, settings: Settings, gpu: Gpu) -> int:
    """What may come on top, because it is not planned: a suggested number leaves it free."""
    tower = bool(model.architecture.tower) and not settings.language_only
    draft = int(DRAFT_BAND * gpu.usable) if settings.draft else 0
    return draft + (TOWER_BAND if tower else 0)


def _band(model: Model, settings: Settings, gpu: Gpu, rank: Rank) -> int:
    """How wrong the pool may be, in bytes."""
    band = BAND
    measured = (0, 26) <= settings.version < CONSUMED_SINCE
    if not measured or model.architecture.hybrid or model.architecture.tower:
        band += int(FAR_BAND * (rank.activation + rank.non_torch))
    if model.architecture.moe and (model.scheme or settings.quantization):
        band += int(FAR_BAND * rank.activation)  # other kernels, other workspaces
    if settings.loras:
        band += int(FAR_BAND * rank.weights)
    if settings.v0:
        band += int(V0_BAND * gpu.usable)
    if model.scheme and model.scheme.experts_only and not measured:
        band += int(PACKED_BAND * rank.weights)
    rows = min(settings.sequences, settings.tokens)
    band += settings.sampler_doubt * rows * model.architecture.vocabulary
    if rank.graphs_inside:
        band += rank.graphs_inside // (4 if measured else 2)  # 0.42 of 0.70 GiB: pull request 57047
    if not gpu.exact:
        band += int(0.003 * gpu.usable)
    return band


def _limit(
    gpu: Gpu,
    settings: Settings,
    rank: Rank,
    budget: int,
    per_request: int,
    blocks: int,
    layout: Layout,
) -> tuple[Limit | None, str | None]:
    """The first limit that stops the start, in the order of the start."""
    free = gpu.usable - rank.before
    share = f"{settings.utilisation:g} x {gib(gpu.usable)}"
    if not settings.cache_bytes and not settings.v0 and free < budget:
        held = f", {gib(gpu.used)} are held by others" if gpu.used else ""
        return "free", (
            f"the engine wants {gib(budget)} ({share}) free at its start, but {gib(max(free, 0))} "
            f"are{held}"
        )
    if rank.weights > free:
        return (
            "load",
            f"weights of {gib(rank.weights)} are more than the {gib(free)} that are free",
        )
    fixed = rank.weights + rank.activation + rank.non_torch + rank.cache
    if settings.cache_bytes and fixed > free:
        return "no_cache", (
            f"weights {gib(rank.weights)}, activation {gib(rank.activation)}, other "
            f"{gib(rank.non_torch)} and the KV cache of {gib(rank.cache)} that is asked for are "
            f"more than the {gib(free)} that are free"
        )
    if rank.cache <= 0:
        need = rank.weights + rank.activation + rank.non_torch + rank.graphs_inside
        return "no_cache", (
            f"weights {gib(rank.weights)} + activation {gib(rank.activation)} + other "
            f"{gib(need - rank.weights - rank.activation)} against a budget of {gib(budget)} "
            f"({share}): nothing is left for the KV cache, {gib(-rank.cache)} are missing"
        )
    if not blocks or (blocks < per_request and not settings.fitted):
        return "context", (
            f"one request of {settings.context:,} tokens needs {per_request:,} blocks of the KV "
            f"cache, {blocks:,} are there"
        )
    taken = rank.before + rank.weights + rank.activation + rank.non_torch + rank.cache
    taken += rank.graphs + rank.buffers
    doubt = 0 if layout.gpus == 1 else rank.graphs // 2  # no start on several GPUs measured them
    doubt += 0 if gpu.exact else rank.graphs // 2 + GIB // 4
    if rank.graphs and taken > gpu.usable + doubt and not rank.graphs_inside:
        return "graphs", (
            f"CUDA graphs of about {gib(rank.graphs)} come on top of the budget: "
            f"{gib(taken)} of {gib(gpu.usable)}"
        )
    return None, None


def _assumptions(model: Model, settings: Settings, gpu: Gpu, rank: Rank) -> tuple[str, ...]:
    """What the figures rest on, one clause each."""
    own = {"max_num_batched_tokens", "max_num_seqs"} <= settings.given
    entry = "LLM()" if settings.entry == "LLM" else "vllm serve"
    found = [
        f"weights from {model.basis}",
        f"{settings.tokens:,} batched tokens, {settings.sequences:,} sequences"
        + ("" if own else f" (defaults of {entry})"),
        f"model runner V{settings.runner}",
    ]
    if not settings.eager:
        where = "inside" if rank.graphs_inside else "outside"
        found.append(f"CUDA graphs {where} the budget, +-20 %")
    if settings.version[:2] > NEWEST:
        found.append(f"vLLM {_dotted(settings.version)} is newer than the rules (0.33)")
    if settings.version < OLDEST:
        found.append("before vLLM 0.11 the budget held the CUDA context and other processes too")
    if settings.draft:
        found.append("the draft model of speculative decoding is not counted")
    if model.architecture.tower and not settings.language_only:
        found.append("the profile of a multimodal encoder is not in the activation")
    if not gpu.exact:
        found.append("memory of the GPU from the catalogue, +-0.25 GiB")
    return tuple(found)


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
