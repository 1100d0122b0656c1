"""The server's front end: how long answers take for which no token is made."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from infer_doctor.facts.server import Answers, Exchange, ServerMetrics, ms
from infer_doctor.fixes.server import give_frontend_cpu
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

SLOW_LIGHT_MS = 300.0
"""For an answer without tokens: idle /metrics takes less than 60 ms, beside a front end that was the
bottleneck 0.9 s (vLLM 0.32 with 24 requests at once on two cores, measured 2026-11)."""

OUTSIDE_MS = 500.0
IN_ENGINE = ("queue", "prefill", "decode")
"""Histograms whose times the engine's own process takes (vllm/v1/metrics/stats.py)."""


def light_ms(answers: Answers | None) -> float | None:
    """The middle time of answers for which no token is made, without the way to the server."""
    if answers is None:
        return None
    times = [
        (row.total_ms or 0) - answers.connect_ms
        for row in answers.light
        if row.total_ms is not None and (row.answered or row.error == "timeout")
    ]
    return max(median(times), 0.0) if times and any(row.answered for row in answers.light) else None


def frontend_slow(answers: Answers | None) -> bool:
    """Whether even answers without tokens take long, and not because of our own process."""
    found = light_ms(answers)
    if found is None or answers is None:
        return False
    return found >= SLOW_LIGHT_MS and found > 2 * answers.lag_ms


@check("server-frontend-slow", severity="error", category="queueing", since="0.2")
def frontend(answers: Answers, metrics: ServerMetrics | None) -> Iterator[Finding]:
    """The server's front end is the bottleneck: even answers without tokens take long.

    ## Why it matters
    One process reads requests, splits text into tokens and writes every chunk; when its core is full
    clients wait for seconds and lose connections, while the engine's own numbers look well and its
    log says nothing.

    ## How it decides
    The middle time of GET /health, /v1/models and /metrics, less the time to connect, is 0.3 s or
    more (idle below 60 ms); or the doctor's small requests took 0.5 s longer, on average, than the
    engine worked on them (its own histograms of queue, prefill and decode, which its front end cannot
    delay). It must be twice what the doctor's own event loop was late by.

    ## Fix safety
    Manual.
    """
    slow, outside = frontend_slow(answers), _outside(metrics, answers)
    if not slow and (outside is None or outside < OUTSIDE_MS or outside < 2 * answers.lag_ms):
        return
    said = []
    if slow:
        said.append(f"GET /health, /v1/models and /metrics take {ms(light_ms(answers))}")
    if outside is not None and outside >= OUTSIDE_MS:
        said.append(f"a small request spends {ms(outside)} outside the engine")
    yield Finding(
        about="front end",
        message=f"the front end is slow: {' and '.join(said)}; connecting took "
        f"{ms(answers.connect_ms)}",
        confidence="likely" if answers.gateway else "certain",
        evidence=(
            *(row.evidence for row in (*answers.light[:3], *answers.heavy[:2])),
            *(_engine_part(metrics) if metrics is not None else ()),
        ),
        fixes=(give_frontend_cpu(metrics.kind if metrics is not None else ""),),
    )


def _engine_part(metrics: ServerMetrics) -> tuple[Evidence, ...]:
    """What the engine counts of the same requests."""
    words = [
        f"{name} {ms(metrics.paces[name].mean * 1000)}"
        for name in IN_ENGINE
        if name in metrics.paces
    ]
    return (Evidence(source=metrics.source, excerpt=f"mean {', '.join(words)}"),) if words else ()


def _outside(metrics: ServerMetrics | None, answers: Answers) -> float | None:
    """Milliseconds of a request that pass outside the engine; None when that is not known.

    Only when no requests but ours came to their end between the scrapes.
    """
    ours = [row.total_ms for row in _counted(answers) if row.fine and row.total_ms is not None]
    if metrics is None or not metrics.second or not ours:
        return None
    parts = [metrics.paces.get(name) for name in IN_ENGINE]
    known = [part for part in parts if part is not None]
    if len(known) < len(IN_ENGINE) or any(part.count != len(ours) for part in known):
        return None
    engine = sum(part.total for part in known) * 1000
    return max((sum(ours) - engine) / len(ours) - answers.connect_ms, 0.0)


def _counted(answers: Answers) -> tuple[Exchange, ...]:
    """Requests for tokens that were sent before the last scrape."""
    scrapes = [number for number, row in enumerate(answers.exchanges) if row.name == "metrics"]
    before = answers.exchanges[: scrapes[-1]] if scrapes else ()
    return tuple(row for row in answers.heavy if row in before)
