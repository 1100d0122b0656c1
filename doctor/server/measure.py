"""A short measurement, or a ramp that ends by itself at the knee; never more than was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from infer_doctor.facts.server import Load, LoadLevel, Pace
from infer_doctor.server import metrics
from infer_doctor.server.ask import Asker
from infer_doctor.server.load import Outcome, Spec, run, summarize
from infer_doctor.server.metrics import Histogram, Scrape

DEFAULT_CONCURRENCY = 4
PER_STEP = 2
"""Requests for each one at once in a step of the ramp: the second half runs beside full company."""

FEWEST = 4
GAIN = 1.1
"""Twice as many at once that bring less than 10 % more tokens a second only wait for each other."""

FAILING_SHARE = 0.5
FIRST_FAILURES = 4
REFUSALS = ("HTTP 429", "HTTP 503")
"""A limit or a full queue: to ask on would be impolite, and would measure the limit only."""

CEILING_S = 300.0


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for: `ramp` is the most at once."""

    requests: int | None
    concurrency: int
    ramp: int | None
    tokens: int


async def measure(asker: Asker, spec: Spec, wanted: Wanted) -> Load:
    """Send it, between two scrapes of the server's own numbers."""
    before = await _scrape(asker)
    asker.ticker.take()
    async with asker.ticker.running():
        levels, knee, stopped = await _levels(asker, spec, wanted)
        lag = asker.ticker.take()
    after = await _scrape(asker)
    return Load(
        levels=tuple(levels),
        knee=knee,
        stopped=stopped,
        server_ttft=_pace(before, after, "ttft"),
        server_itl=_pace(before, after, "itl"),
        lag_ms=lag,
    )


async def _levels(
    asker: Asker, spec: Spec, wanted: Wanted
) -> tuple[list[LoadLevel], int | None, str]:
    until = time.monotonic() + CEILING_S
    if wanted.ramp is None:
        outcomes = await run(asker.route, spec, until=_hopeless(until))
        said = "" if len(outcomes) == spec.requests else _why(outcomes)
        return [summarize(outcomes, spec.concurrency)], None, said
    levels: list[LoadLevel] = []
    left = wanted.requests
    at_once = 1
    while at_once <= wanted.ramp:
        count = max(PER_STEP * at_once, FEWEST)
        if left is not None:
            count = min(count, left)
            left -= count
        if count < at_once:
            return levels, None, "the requests of --requests are used up"
        step = replace(spec, requests=count, concurrency=at_once)
        outcomes = await run(asker.route, step, until=_hopeless(until))
        levels.append(summarize(outcomes, at_once))
        if len(outcomes) < count or levels[-1].failed:
            return levels, _knee(levels), _why(outcomes)
        if len(levels) > 1 and levels[-1].tokens_per_s < GAIN * levels[-2].tokens_per_s:
            return levels, levels[-2].concurrency, "twice as many at once bring no more tokens"
        at_once *= 2
    return levels, None, f"{wanted.ramp} at once were asked for"


def _knee(levels: Sequence[LoadLevel]) -> int | None:
    """The last step without failures."""
    fine = [row.concurrency for row in levels if not row.failed]
    return fine[-1] if fine else None


def _hopeless(until: float) -> Callable[[Sequence[Outcome]], bool]:
    """Ends a measurement when most requests fail, some are told to wait, or it takes too long."""

    def check(outcomes: Sequence[Outcome]) -> bool:
        failed = sum(bool(row.error) for row in outcomes)
        enough = len(outcomes) >= FIRST_FAILURES
        waved_off = sum(row.error in REFUSALS for row in outcomes) >= FIRST_FAILURES
        hopeless = waved_off or (enough and failed > FAILING_SHARE * len(outcomes))
        return hopeless or time.monotonic() > until

    return check


def _why(outcomes: Sequence[Outcome]) -> str:
    failed = sum(bool(row.error) for row in outcomes)
    if failed:
        return f"{failed} of {len(outcomes)} requests failed"
    return f"{CEILING_S:g} s are the most that a measurement takes"


async def _scrape(asker: Asker) -> Scrape | None:
    asker.deadline = time.monotonic() + 5
    asker.extra += 1
    path = next(
        (row.path for row in reversed(asker.exchanges) if row.name == "metrics" and row.fine), None
    )
    if path is None:
        return None
    row, body = await asker.get("metrics", path, 5)
    return metrics.read(body.decode("utf-8", "replace")) if row.fine else None


def _pace(before: Scrape | None, after: Scrape | None, meaning: str) -> Pace | None:
    if before is None or after is None or metrics.other_process(before, after):
        return None
    found = after.histograms.get(meaning)
    if found is None:
        return None
    part = found.minus(before.histograms.get(meaning, Histogram()))
    return part.pace() if part.count > 0 else None
