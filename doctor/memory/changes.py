"""What each change of the launch buys, and the smallest one that makes it fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from infer_doctor.catalog.gpu_memory import COUNTS, GPUS, SERVING, GpuModel
from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.inputs import Inputs
from infer_doctor.memory.parts import Gpu, Rank
from infer_doctor.memory.plan import MemoryPlan, safety
from infer_doctor.units import MIB

STEP = 0.01
"""Utilisation is suggested in hundredths."""

FP8_CAPABILITY = (8, 0)
"""Marlin keeps 8-bit weights on GPUs from Ampere on; fp8 arithmetic needs 8.9."""

SMALL_BATCH = 2048
"""max_num_batched_tokens of `vllm serve` on GPUs below 70 GiB: known to serve well enough."""

FEWER_SEQUENCES = 256
"""max_num_seqs of GPUs below 70 GiB."""

USEFUL = 0.005
"""A change that gives fewer tokens than this share more is not shown."""

MORE_GPUS = 8
"""The least cost of a change that needs more GPUs."""

FLAGS = {
    "max_model_len": "--max-model-len",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "kv_cache_dtype": "--kv-cache-dtype",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_num_seqs": "--max-num-seqs",
    "enforce_eager": "--enforce-eager",
    "quantization": "--quantization",
    "tensor_parallel_size": "--tensor-parallel-size",
}


@frozen
class Change:
    """One or two options set to other values, and the plan that comes of it."""

    options: Mapping[str, Any]
    plan: MemoryPlan
    cost: int
    """How much it changes: 0 keeps everything else, 9 needs more GPUs."""
    note: str

    @property
    def flags(self) -> str:
        return " ".join(flag_of(name, value) for name, value in self.options.items())


def flag_of(name: str, value: Any) -> str:
    """The option as it is written on a command line."""
    return FLAGS[name] if value is True else f"{FLAGS[name]} {value}"


def changes(inputs: Inputs, gpu: Gpu, now: MemoryPlan, gpus: int | None = None) -> list[Change]:
    """Those that help, the smallest that makes the launch fit first.

    `gpus` is how many there are; more tensor parallelism is then not offered.
    """
    found = [change for change in _all(inputs, gpu, now, gpus) if _helps(change.plan, now)]
    if not now.fits:
        found = [change for change in found if not _part_of_another(change, found)]
        found.sort(key=lambda change: (not change.plan.fits, change.cost, -change.plan.tokens))
    else:
        found.sort(key=lambda change: (change.cost >= MORE_GPUS, -change.plan.tokens))
    return found


def _part_of_another(change: Change, others: list[Change]) -> bool:
    """A change that does not fit, where the same with a shorter context does."""
    return not change.plan.fits and any(
        other.plan.fits and set(change.options.items()) < set(other.options.items())
        for other in others
    )


def _helps(plan: MemoryPlan, now: MemoryPlan) -> bool:
    if now.limit == "free":
        return plan.fits
    if not now.fits:
        return plan.fits or plan.rank.cache > now.rank.cache + safety(
            now.gpu, now.band, now.uncounted
        )
    return plan.fits and (
        plan.tokens > now.tokens * (1 + USEFUL) or plan.safe_longest > now.safe_longest
    )


def _all(inputs: Inputs, gpu: Gpu, now: MemoryPlan, gpus: int | None) -> Iterator[Change]:
    for options, cost, note in _candidates(inputs, gpu, now, gpus):
        try:
            yield Change(options=options, plan=inputs.plan(gpu, **options), cost=cost, note=note)
        except Unplannable:
            continue


def _candidates(
    inputs: Inputs, gpu: Gpu, now: MemoryPlan, gpus: int | None
) -> Iterator[tuple[dict[str, Any], int, str]]:
    settings = now.settings
    if now.limit == "context" and now.safe_longest:
        yield {"max_model_len": now.safe_longest}, 0, "keeps everything else"
    if settings.cache_bytes and now.limit == "no_cache":
        rank = now.rank
        taken = rank.before + rank.weights + rank.activation + rank.non_torch + rank.buffers
        keep = _outside(rank) + safety(gpu, now.band, now.uncounted)
        most = int(gpu.usable - taken - keep) // MIB * MIB
        if most > 0:
            yield {"kv_cache_memory_bytes": most}, 0, "keeps everything else"
    share = utilisation(inputs, gpu, now)
    if share is not None:
        yield {"gpu_memory_utilization": share}, 1, "of the memory that is free"
    if not settings.eager:
        yield {"enforce_eager": True}, 4, "slower: no CUDA graphs"
    if settings.tokens > SMALL_BATCH:
        yield {"max_num_batched_tokens": SMALL_BATCH}, 2, "slower prefill"
    if settings.sequences > FEWER_SEQUENCES:
        yield {"max_num_seqs": FEWER_SEQUENCES}, 2, "fewer requests at once"
    if settings.cache_dtype == "auto":
        yield {"kv_cache_dtype": "fp8"}, 5, "check the quality"
    capable = gpu.capability is None or gpu.capability >= FP8_CAPABILITY
    if inputs.scheme is None and not settings.quantization and capable:
        yield {"quantization": "fp8"}, 6, "check the quality"
    wider, each = settings.tensor * 2, settings.stages * max(settings.data, 1)
    while wider * each <= (gpus or settings.tensor * each * 8) and wider <= COUNTS[-1]:
        cost, note = MORE_GPUS + wider.bit_length(), f"needs {wider * each} GPUs"
        more: dict[str, Any] = {"tensor_parallel_size": wider}
        yield more, cost, note
        plan = _plan(inputs, gpu, more)
        if plan is not None and plan.fits:
            break
        if plan is not None and plan.limit == "context" and plan.safe_longest:
            yield {**more, "max_model_len": plan.safe_longest}, cost, note
            break
        wider *= 2
    if now.limit in ("no_cache", "load", "context") and inputs.scheme is None and capable:
        both = {"quantization": "fp8", "max_model_len": 0}
        try:
            length = inputs.plan(gpu, quantization="fp8").safe_longest
        except Unplannable:
            return
        if length and length < settings.context and not settings.quantization:
            yield {**both, "max_model_len": length}, 6, "check the quality"


def _plan(inputs: Inputs, gpu: Gpu, options: Mapping[str, Any]) -> MemoryPlan | None:
    try:
        return inputs.plan(gpu, **options)
    except Unplannable:
        return None


def utilisation(inputs: Inputs, gpu: Gpu, now: MemoryPlan) -> float | None:
    """The share to ask for: the least that fits, or the most that is safe when it fits already.

    None when no share in hundredths is better than the present one.
    """
    rank = now.rank
    if now.settings.cache_bytes:
        return None
    keep = safety(gpu, now.band, now.uncounted)
    most = (gpu.usable - rank.before - _outside(rank) - rank.buffers - keep) / gpu.usable
    most = math.floor(min(most, 1.0) / STEP + 1e-9) * STEP
    if now.limit in ("free", "graphs") or now.fits:
        if most <= 0 or (now.fits and most <= now.settings.utilisation):
            return None
        return round(most, 2)
    have = now.blocks * now.cache.block_bytes
    missing = now.needed_blocks * now.cache.block_bytes - min(have, rank.cache)
    least = now.settings.utilisation + (missing + keep) / gpu.usable
    least = math.ceil(least / STEP - 1e-9) * STEP
    return round(least, 2) if least <= most + 1e-9 else None


def _outside(rank: Rank) -> int:
    """What graphs may take beside the budget."""
    return 0 if rank.graphs_inside else rank.graphs + rank.graphs // 2


@frozen
class Kind:
    """The fewest GPUs of one kind that hold a model, with the plan on them; None: no number does."""

    gpu: GpuModel
    count: int | None
    plan: MemoryPlan | None


def gpu_of(model: GpuModel, used: int = 0) -> Gpu:
    """A GPU of the catalogue for the plan."""
    return Gpu(
        name=model.driver,
        usable=model.usable,
        total=model.total,
        used=used,
        capability=model.capability,
        exact=model.source == "measured",
    )


def fewest(inputs: Inputs) -> list[Kind]:
    """For each kind that people serve on."""
    found = []
    for name in SERVING:
        model = next(gpu for gpu in GPUS if gpu.name == name)
        found.append(_fewest(inputs, model))
    return found


def _fewest(inputs: Inputs, model: GpuModel) -> Kind:
    for count in COUNTS:
        try:
            plan = inputs.plan(gpu_of(model), tensor_parallel_size=count, pipeline_parallel_size=1)
        except Unplannable:
            continue
        if plan.fits:
            return Kind(gpu=model, count=count, plan=plan)
    return Kind(gpu=model, count=None, plan=None)
