"""Whether a launch of TensorRT-LLM leaves room for its KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.trt_plan import TrtPlanned
from infer_doctor.fixes.trtllm import advise, change
from infer_doctor.launch.model import Launch
from infer_doctor.model import Category, Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.trtllm import judge
from infer_doctor.units import gib

ROOM = 0.9
STEP = 256
"""An advised length stays a tenth below what fits, for the plan is an estimate, and is a multiple of a
number that is one of every block size of the cache (32, 64 or 128 tokens)."""

SHARE = "kv_cache_config.free_gpu_memory_fraction"


def evidence(planned: TrtPlanned, options: EngineOptions) -> tuple[Evidence, ...]:
    """The options and the figures."""
    plan = planned.plan
    parts = (
        f"{plan.gpu}: {gib(plan.demand.total)} for CUDA, weights {gib(plan.demand.weights)} "
        f"({plan.demand.basis}), peak about {gib(plan.peak)}, KV cache {gib(plan.cache)}"
    )
    return judge.present(
        judge.given(options, SHARE),
        judge.given(options, "max_seq_len"),
        judge.given(options, "tensor_parallel_size"),
        Evidence(source=planned.source, excerpt=parts),
    )


@check("trt-memory-full", severity="error", category="trt_kv_memory", since="0.3")
def memory_full(planned: TrtPlanned, launch: Launch, options: EngineOptions) -> Iterator[Finding]:
    """The weights do not fit, or nothing is left for the KV cache.

    ## Why it matters
    "Executor creation failed due to insufficient GPU memory", "The following component could not be
    created: KV cache", after the weights were loaded for minutes.

    ## How it decides
    Weights by the safetensors headers, or the size of the engine's rank file; activations by
    max_num_tokens; what others hold of the GPU now. What is left times free_gpu_memory_fraction is
    the cache (doctor/trtllm/memory.py has the formula and its sources). Certain only when more is
    missing than the estimate may be wrong by; nothing of TensorRT-LLM was measured here.

    ## Fix safety
    Manual: more GPUs or a smaller model; an engine has to be built for them.
    """
    plan = planned.plan
    if plan.limit not in ("load", "no_cache"):
        return
    missing = plan.peak - plan.demand.total
    category: Category = "oom_load" if plan.limit == "load" else "trt_kv_memory"
    ranks = plan.demand.ranks
    cures = []
    if plan.demand.used > plan.band:
        cures.append(advise("free-gpu", f"End what holds {gib(plan.demand.used)} of the GPU"))
    if plan.demand.backend == "pytorch":
        cures.append(change(launch, options, "tensor_parallel_size", "--tp_size", 2 * ranks))
    else:
        cures.append(
            advise(
                "more-ranks",
                f"Convert the checkpoint with --tp_size {2 * ranks} and build again",
            )
        )
    yield Finding(
        about=launch.name,
        category=category,
        confidence="certain" if missing > plan.band else "likely",
        message=plan.reason or "",
        evidence=evidence(planned, options),
        fixes=tuple(cures),
    )


@check("trt-length-reduced", severity="warning", category="trt_kv_memory", since="0.3")
def length_reduced(
    planned: TrtPlanned, launch: Launch, options: EngineOptions
) -> Iterator[Finding]:
    """The KV cache holds less than one sequence: max_seq_len is silently reduced.

    ## Why it matters
    The log says "Adjusted max_seq_len to N" once and the server becomes ready; longer requests fail
    in the middle of their stream, after HTTP 200 ("KV_CACHE_MANAGER requires N KV cache blocks").

    ## How it decides
    Tokens of the cache by the memory plan against max_seq_len of the launch, of the engine's build,
    or what the model can. Likely at most, for activations are estimated; told only when the plan is
    short by more than its error. With --fail_fast_on_attention_window_too_large the start ends
    instead (default from 1.4 on).

    ## Fix safety
    Safe: a max_seq_len that fits.
    """
    plan = planned.plan
    if plan.limit in ("load", "no_cache") or not plan.length:
        return
    possible = plan.tokens + int(plan.band / max(plan.demand.per_token, 1))
    if possible >= plan.length:
        return
    asked = "max_seq_len" if plan.demand.length else "the model's own length"
    yield Finding(
        about=launch.name,
        severity="error" if plan.limit == "context" else None,
        confidence="likely",
        message=f"{asked} is {plan.length:,}, the KV cache holds about {plan.tokens:,} tokens",
        evidence=evidence(planned, options),
        fixes=(change(launch, options, "max_seq_len", "--max_seq_len", _round(plan.tokens)),),
    )


def _round(tokens: int) -> int:
    """A number below it that people write."""
    return max(STEP, int(tokens * ROOM) // STEP * STEP)
