"""A load ramp against a client's limit: where answers become late, and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from infer_doctor.facts.run import Ramp, Step
from infer_doctor.runs.endpoint import CONNECT_S, Endpoint, open_endpoint, way
from infer_doctor.server import load, metrics
from infer_doctor.server.ask import Ticker
from infer_doctor.server.http import BODY_LIMIT
from infer_doctor.server.metrics import Scrape

LIMIT_S = 30.0
"""What a proxy or client forgives when nothing else is said; openai's own default is 600 s."""

PER_STEP = 2
"""Requests for each one at once: the second half runs beside full company."""

GIVE_UP = 3.0
"""Times the limit after which an answer is not waited for: it is late, by how much is no matter."""

GIVEN_UP = ("timeout", "slow")
"""Errors of requests that did not end within that."""

WATCH_S = 0.5
QUEUE_SHARE = 0.3
"""Of the mean first token that was spent in the queue: then the queue is the cause."""

STALL_S = 2.0
"""As in server-engine-stalled: a step of an engine may take some hundred ms, one with a long prompt more."""

BLOCKED_S = 1.0
"""An answer of /health: it takes a millisecond of the event loop, so a longer one waited for it."""

FULL = 0.9
"""Of the tokens that were asked for: shorter answers do not show how long full ones take."""

Progress = Callable[[int, int, int], None]
"""Concurrency, answers so far, requests of the step."""


@dataclass
class Watch:
    """The worst that the server said of itself during a step."""

    waiting: float = 0.0
    running: float = 0.0
    kv: float = 0.0
    lag: float = 0.0
    scrapes: int = 0
    asked: float | None = None
    """Since when /health is waited for."""
    ended: bool = False
    """The step is over. Before Python 3.12 asyncio.wait_for may swallow a cancellation (bpo-37658)."""

    def see(self, scrape: Scrape | None) -> None:
        """One more answer of /metrics."""
        if scrape is None:
            return
        self.scrapes += 1
        rows = scrape.engines.values()
        self.waiting = max(self.waiting, sum(row.waiting or 0 for row in rows))
        self.running = max(self.running, sum(row.running or 0 for row in rows))
        self.kv = max(self.kv, max((row.kv or 0 for row in rows), default=0.0))

    def end(self) -> None:
        """The step is over; a /health that did not answer until now was late by that at least."""
        self.ended = True
        if self.asked is not None:
            self.lag = max(self.lag, time.monotonic() - self.asked)


@dataclass(frozen=True)
class Wanted:
    """The client's limits and how far the ramp may go."""

    limit_s: float = LIMIT_S
    first_token_s: float | None = None
    most: int = 64
    tokens: int = 64
    model: str = ""
    max_num_seqs: int | None = None


def measure(url: str, wanted: Wanted, progress: Progress | None = None) -> Ramp:
    """Raises NoServer."""
    return asyncio.run(_measure(url, wanted, progress))


async def _measure(url: str, wanted: Wanted, progress: Progress | None) -> Ramp:
    endpoint = await open_endpoint(url, wanted.model)
    taken = await way(endpoint, wanted.limit_s * GIVE_UP)
    spec = replace(taken, tokens=wanted.tokens, timeout_s=wanted.limit_s * GIVE_UP)
    steps: list[Step] = []
    gaps: list[str] = []
    at_once = 1
    while True:
        steps.append(await _step(endpoint, spec, at_once, wanted, progress))
        if steps[-1].late or steps[-1].failed:
            if at_once == 1 or steps[-1].concurrency - steps[-2].concurrency <= 1:
                break
            steps += await _between(endpoint, spec, steps, wanted, progress)
            break
        if at_once >= wanted.most:
            break
        at_once = min(2 * at_once, wanted.most)
    steps.sort(key=lambda row: row.concurrency)
    broken = next((row for row in steps if row.late or row.failed), None)
    safe = [row.concurrency for row in steps if not row.late and not row.failed]
    below = [number for number in safe if broken is None or number < broken.concurrency]
    if broken is not None and all(row.running_most is None for row in steps):
        gaps.append("/metrics of the server gave nothing: causes cannot be told apart")
    answered = [row.tokens_mean for row in steps if row.tokens_mean is not None]
    if broken is None and not spec.exact and min(answered, default=0) < FULL * wanted.tokens:
        gaps.append(
            f"the server ends answers by itself, after {min(answered, default=0):.0f} tokens on "
            f"average and not {wanted.tokens}: longer ones take longer"
        )
    return Ramp(
        url=endpoint.route.address.url,
        limit_s=wanted.limit_s,
        first_token_s=wanted.first_token_s,
        tokens=wanted.tokens,
        steps=tuple(steps),
        safe=max(below) if below else None,
        broken=broken,
        cause=cause_of(broken, wanted) if broken is not None else "",
        max_num_seqs=wanted.max_num_seqs,
        gaps=tuple(gaps),
    )


async def _between(
    endpoint: Endpoint,
    spec: load.Spec,
    steps: list[Step],
    wanted: Wanted,
    progress: Progress | None,
) -> list[Step]:
    """One step between the last good and the first bad one."""
    low, high = steps[-2].concurrency, steps[-1].concurrency
    return [await _step(endpoint, spec, (low + high) // 2, wanted, progress)]


async def _step(
    endpoint: Endpoint,
    spec: load.Spec,
    at_once: int,
    wanted: Wanted,
    progress: Progress | None,
) -> Step:
    spec = replace(spec, requests=max(PER_STEP * at_once, 2), concurrency=at_once)
    before = await _scrape(endpoint)
    watch = Watch()
    watching = asyncio.create_task(_watched(endpoint, watch))
    ticker = Ticker()

    def told(outcomes: Any) -> bool:
        if progress is not None:
            progress(at_once, len(outcomes), spec.requests)
        return False

    try:
        async with ticker.running():
            outcomes = await load.run(endpoint.route, spec, until=told)
    finally:
        watch.end()
        watching.cancel()
    after = await _scrape(endpoint)
    level = load.summarize(outcomes, at_once)
    good = sum(not row.error for row in outcomes)
    late = [row for row in outcomes if _is_late(row, wanted)]
    failed = [row for row in outcomes if row.error and row not in late]
    first = sorted(row.times[0] - row.sent for row in outcomes if row.times)
    whole = sorted(row.end - row.sent for row in outcomes)
    known = watch.scrapes > 0
    return Step(
        concurrency=at_once,
        requests=len(outcomes),
        failed=len(failed),
        late=len(late),
        ttft_mean=round(sum(first) / len(first), 4) if first else None,
        ttft_median=_middle(first),
        ttft_worst=first[-1] if first else None,
        total_median=_middle(whole),
        total_worst=whole[-1] if whole else None,
        queue_mean=_between_scrapes(before, after, "queue"),
        server_first=_between_scrapes(before, after, "ttft"),
        waiting_most=watch.waiting if known else None,
        running_most=watch.running if known else None,
        kv_most=watch.kv if known else None,
        preemptions=_counted(before, after, "preemptions"),
        tokens_per_s=round(level.tokens_per_s, 2),
        loop_lag=round(watch.lag, 3),
        own_lag=round(ticker.take() / 1000, 3),
        tokens_mean=round(level.tokens / good, 1) if good else None,
        steps_made=_counted(before, after, "iterations"),
        unended=sum(row.error in GIVEN_UP for row in late),
        said=f"{failed[0].error}: {failed[0].said}".removesuffix(": ") if failed else "",
    )


def _is_late(row: load.Outcome, wanted: Wanted) -> bool:
    first = row.times[0] - row.sent if row.times else row.end - row.sent
    if wanted.first_token_s is not None and first > wanted.first_token_s:
        return True
    return row.end - row.sent > wanted.limit_s or row.error in GIVEN_UP


def _middle(values: list[float]) -> float | None:
    return round(values[len(values) // 2], 3) if values else None


def cause_of(broken: Step, wanted: Wanted) -> Any:
    """Which of the six it is, by the server's own numbers during the step.

    Where none was late, requests failed, and what they were told is the cause. A stalled engine makes
    no iteration for two seconds and more while requests are open; a preemption is counted; a queue is
    a large part of the mean time to the first token; a blocked loop answers /health late. What is left
    is an engine that is as slow as that with so many at once.

    Sums over counts, not the gauges of waiting and running requests: where the engine fills all CPUs,
    /metrics answers too seldom to show them.
    """
    if broken.failed and not broken.late:
        return "failed"
    if _stalled(broken):
        return "stalled"
    if broken.preemptions:
        return "preemption"
    queue = broken.queue_mean or 0.0
    if _is_large(queue, broken.ttft_mean or broken.ttft_median):
        return "queueing"
    if (broken.loop_lag or 0.0) - (broken.own_lag or 0.0) >= BLOCKED_S:
        return "blocked-loop"
    # The client, or the way to it, adds to every answer; the engine has a queue all the same.
    most = wanted.max_num_seqs or broken.running_most or 0
    if broken.concurrency > most > 0 and _is_large(queue, broken.server_first):
        return "queueing"
    return "slow"


def _stalled(step: Step) -> bool:
    """The gauges are of the last iteration: where none was made since, nobody may seem to run."""
    open_ones = bool(step.running_most) or step.ttft_median is None
    return step.steps_made == 0 and open_ones and (step.total_worst or 0.0) >= STALL_S


def _is_large(part: float, whole: float | None) -> bool:
    return part > 0 and whole is not None and part >= QUEUE_SHARE * whole


async def _watched(endpoint: Endpoint, watch: Watch) -> None:
    while not watch.ended:
        began = watch.asked = time.monotonic()
        answer = await endpoint.route.ask(endpoint.get("/health"), began + CONNECT_S)
        watch.asked = None
        if answer.status is not None or answer.error == "timeout":
            watch.lag = max(watch.lag, time.monotonic() - began)
        watch.see(await _scrape(endpoint))
        await asyncio.sleep(WATCH_S)


async def _scrape(endpoint: Endpoint) -> Scrape | None:
    answer = await endpoint.route.ask(endpoint.get("/metrics"), time.monotonic() + CONNECT_S)
    if answer.status != 200 or answer.received > BODY_LIMIT:
        return None
    return metrics.read(answer.body.decode("utf-8", "replace"))


def _between_scrapes(before: Scrape | None, after: Scrape | None, name: str) -> float | None:
    """The mean of a histogram between two scrapes, by sum over count."""
    if after is None or name not in after.histograms:
        return None
    part = after.histograms[name]
    if before is not None and name in before.histograms:
        part = part.minus(before.histograms[name])
    return round(part.total / part.count, 4) if part.count else None


def _counted(before: Scrape | None, after: Scrape | None, name: str) -> float | None:
    if before is None or after is None:
        return None
    first = [getattr(row, name) for row in before.engines.values()]
    second = [getattr(row, name) for row in after.engines.values()]
    if any(value is None for value in (*first, *second)) or not second:
        return None
    gained = float(sum(second) - sum(first))
    return gained if gained >= 0 else None  # it was started anew meanwhile
