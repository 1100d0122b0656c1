"""Whether an engine goes on, by the counters of two scrapes."""

from __future__ import annotations

from infer_doctor.facts.server import EngineState, ServerMetrics

STEPS = ("tokens", "prompt_tokens", "iterations")
"""Counters that grow with every step of an engine, and not only when a request has ended."""


def stuck(metrics: ServerMetrics, name: str, first: EngineState) -> bool:
    """Whether this engine has requests in both scrapes and made no step between them."""
    second = metrics.second.get(name)
    if second is None or not first.running or not second.running:
        return False
    return same(first, second)


def _pairs(
    first: EngineState, second: EngineState | None, names: tuple[str, ...]
) -> list[tuple[float, float]]:
    """Both values of each counter that is known in both scrapes."""
    pairs = [(getattr(first, name), getattr(second, name, None)) for name in names]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def counts_steps(first: EngineState, second: EngineState | None) -> bool:
    """Whether a counter of steps is known in both."""
    return bool(_pairs(first, second, STEPS))


def same(first: EngineState, second: EngineState) -> bool:
    """Whether every counter of progress that is known in both stands still, and one is of steps.

    The counters of vLLM grow only with a token: while a long prompt is computed in parts they stand
    still for seconds, and only the use of the KV cache grows (vllm/v1/engine/async_llm.py makes no
    IterationStats of a step without outputs; the gauges come with every step).
    """
    if first.kv is not None and second is not None and second.kv not in (None, first.kv):
        return False
    known = _pairs(first, second, (*STEPS, "finished"))
    return counts_steps(first, second) and all(a == b for a, b in known)


def nothing_moved(metrics: ServerMetrics) -> bool:
    """Whether no engine made a step."""
    return bool(metrics.first) and all(
        name in metrics.second and same(first, metrics.second[name])
        for name, first in metrics.first.items()
    )


def progress(metrics: ServerMetrics) -> bool:
    """Whether any counter grew."""
    return any(metrics.gained(name) for name in ("tokens", "iterations", "finished"))
