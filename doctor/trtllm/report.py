"""A plan of TensorRT-LLM as the report holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from infer_doctor.memory.report import ReportedChange, ReportedPlan, plain
from infer_doctor.trtllm.memory import CONTEXT, NCCL, TrtPlan, plan_of

FRACTION = 0.95
"""A larger share of what is free; the rest is for graphs and work spaces."""


def wire(plan: TrtPlan) -> dict[str, Any]:
    """The plan as plain JSON; bytes are those of one GPU."""
    demand = plan.demand
    group = NCCL if demand.ranks > 1 else 0
    reported = ReportedPlan(
        engine="tensorrt-llm",
        fits=plan.fits,
        reason=plan.reason,
        limit=plan.limit,
        gpu=plan.gpu,
        gpus=demand.ranks,
        total_bytes=demand.total,
        budget_bytes=demand.total,
        used_by_others_bytes=demand.used,
        weights_bytes=demand.weights,
        activation_bytes=demand.activation,
        non_torch_bytes=CONTEXT + group + demand.buffers,
        cuda_graph_bytes=0,
        cuda_graphs_in_budget=False,
        kv_cache_bytes=plan.cache,
        kv_bytes_per_token=demand.per_token,
        kv_cache_tokens=plan.tokens,
        max_model_len=plan.length,
        max_model_len_fits=plan.longest,
        max_concurrency=round(plan.tokens / plan.length, 2) if plan.length else 0.0,
        error_band_percent=round(100 * plan.band / max(plan.cache, 1), 1),
        utilization=demand.fraction,
        engine_version=demand.version or "",
        basis=demand.basis,
        assumptions=demand.assumptions,
        changes=tuple(_changes(plan)),
    )
    made: dict[str, Any] = plain(reported)
    return made


def _changes(plan: TrtPlan) -> Iterator[ReportedChange]:
    """What a setting of the next start buys; an engine's sizes are fixed."""
    demand = plan.demand
    if demand.fraction < FRACTION:
        more = plan_of(replace(demand, fraction=FRACTION), plan.gpu)
        yield _change(more, f"--kv_cache_free_gpu_memory_fraction {FRACTION}", "less for graphs")
    if demand.backend == "pytorch" and demand.per_token % 2 == 0 and demand.max_tokens is None:
        half = plan_of(replace(demand, per_token=demand.per_token / 2), plan.gpu)
        yield _change(half, "kv_cache_config.dtype: fp8", "needs scales in the checkpoint")
    if demand.used:
        free = plan_of(replace(demand, used=0), plan.gpu)
        yield _change(free, "end the other processes", "the GPU is then its own")


def _change(plan: TrtPlan, flags: str, note: str) -> ReportedChange:
    return ReportedChange(
        flags=flags,
        fits=plan.fits,
        reason=plan.reason,
        kv_cache_tokens=plan.tokens,
        max_model_len_fits=plan.longest,
        max_concurrency=round(plan.tokens / plan.length, 2) if plan.length else 0.0,
        gpus=plan.demand.ranks,
        note=note,
    )
