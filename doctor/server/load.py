"""Many streams at once from one core: what a client feels, with exact token counts.

    outcomes = await run(route, Spec(model="m", requests=40, concurrency=8))
    level = summarize(outcomes, concurrency=8)

Nothing but the address of the route is asked, and never more than `requests`. Every stream has its
own connection, which is used again when the server keeps it. Tokens are those that the server counts
in the usage of the last event; where it does not, events are counted and `exact` is False.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infer_doctor._version import VERSION
from infer_doctor.facts.server import LoadLevel, Summary
from infer_doctor.redact import mask_line
from infer_doctor.server.connect import Route
from infer_doctor.server.dialect import Dialect
from infer_doctor.server.http import Answer, Wire, failed
from infer_doctor.server.key import Key
from infer_doctor.server.message import request
from infer_doctor.server.sse import Events, error_text

FEWEST_P90, FEWEST_P99 = 10, 100
"""Of fewer values the nearest rank is the largest one, which says nothing of the others."""

PROMPT = "Tell a story of a lighthouse keeper."


CLOSED_BETWEEN = "a connection that was kept for the next request was closed, and no Connection: close had said so"


@dataclass(frozen=True)
class Spec:
    """What is sent. `tokens` is asked for exactly where `exact` (ignore_eos, a word of vLLM)."""

    model: str
    requests: int
    concurrency: int
    api: str = "/v1"
    prompt: str = PROMPT
    tokens: int = 64
    chat: bool = True
    exact: bool = False
    timeout_s: float = 60.0
    key: Key | None = field(default=None, repr=False)
    dialect: Dialect = field(default_factory=Dialect)

    def body(self, number: int) -> dict[str, Any]:
        """The request; a number in the prompt keeps the prefix cache from answering for the engine."""
        text = f"{number}. {self.prompt}"
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.exact:
            body["ignore_eos"] = True
        if self.chat:
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        return self.dialect.spoken(body)

    @property
    def path(self) -> str:
        """Where it is sent."""
        return f"{self.api}/chat/completions" if self.chat else f"{self.api}/completions"


@dataclass
class Outcome:
    """One request. Times of time.monotonic; `error` is "" or a word such as "HTTP 503", "timeout"."""

    sent: float
    end: float
    times: list[float]
    tokens: int | None
    error: str
    said: str = ""

    @property
    def counted(self) -> int:
        """Tokens, as exact as they are known."""
        return self.tokens if self.tokens is not None else len(self.times)


async def run(
    route: Route,
    spec: Spec,
    *,
    until: Callable[[Sequence[Outcome]], bool] | None = None,
) -> list[Outcome]:
    """Send `requests` with `concurrency` at once; `until` is asked after each and may end it early.

    Requests that run when it ends are waited for.
    """
    outcomes: list[Outcome] = []
    numbers = iter(range(spec.requests))
    stopped = False

    async def worker() -> None:
        nonlocal stopped
        wire: Wire | None = None
        for number in numbers:
            if stopped:
                break
            outcome, wire = await _one(route, spec, number, wire)
            outcomes.append(outcome)
            if until is not None and until(outcomes):
                stopped = True
        if wire is not None:
            wire.close()

    await asyncio.gather(*(worker() for _ in range(min(spec.concurrency, spec.requests))))
    return outcomes


async def _one(
    route: Route, spec: Spec, number: int, wire: Wire | None
) -> tuple[Outcome, Wire | None]:
    data = json.dumps(spec.body(number), separators=(",", ":")).encode()
    headers = {"User-Agent": f"infer-doctor/{VERSION}", "Accept": "text/event-stream"}
    headers |= spec.key.headers if spec.key is not None else {}
    target = spec.path + route.address.query
    wanted = request("POST", target, route.address.authority, body=data, headers=headers)
    began = time.monotonic()
    deadline = began + spec.timeout_s
    events = Events()
    if wire is not None and wire.lost:
        wire = None
    used = wire is not None
    try:
        wire = wire or await route.wire(deadline)
    except (OSError, asyncio.TimeoutError) as error:
        return _outcome(began, failed(error, began), Events()), None
    answer = await wire.ask(wanted, deadline, sink=events.take)
    if used and answer.first is None and answer.error in ("closed", "reset"):
        answer.said = CLOSED_BETWEEN
    if not answer.error:
        events.end(answer.end or time.monotonic())
    if not answer.reusable or answer.error:
        wire.close()
        wire = None
    return _outcome(began, answer, events), wire


def _outcome(began: float, answer: Answer, events: Events) -> Outcome:
    error, said = answer.error, answer.said
    if not error and answer.status is not None and not 200 <= answer.status < 300:
        error = f"HTTP {answer.status}"
        said = _text(events.other) or answer.reason
    elif not error and events.error:
        error, said = "error event", events.error
    elif not error and not events.times:
        error, said = "no token", _text(events.other)
    elif not error and not (events.done or events.finish):
        error, said = "unended", "no finish_reason and no [DONE]"
    return Outcome(
        sent=began,
        end=answer.end if answer.end is not None else time.monotonic(),
        times=events.times,
        tokens=events.tokens,
        error=error,
        said=mask_line(said)[:200],
    )


def _text(body: bytes) -> str:
    try:
        told = error_text(json.loads(body))
    except (ValueError, RecursionError):
        told = ""
    return told or " ".join(body[:200].decode("utf-8", "backslashreplace").split())


def summarize(outcomes: Sequence[Outcome], concurrency: int) -> LoadLevel:
    """The measures of these requests; of those that failed only the kind and the number."""
    good = [row for row in outcomes if not row.error]
    bad = [row for row in outcomes if row.error]
    began = min((row.sent for row in outcomes), default=0.0)
    ended = max((row.end for row in outcomes), default=0.0)
    first = [(row.times[0] - row.sent) * 1000 for row in good]
    longer = [row for row in good if row.counted > 1]
    spans = [(row.times[-1] - row.times[0]) * 1000 for row in longer]
    each = [span / (row.counted - 1) for span, row in zip(spans, longer, strict=True)]
    after_first = sum(row.counted - 1 for row in longer)
    return LoadLevel(
        concurrency=concurrency,
        requests=len(outcomes),
        seconds=ended - began,
        failed=dict(Counter(row.error for row in bad)),
        examples={row.error: row.said for row in reversed(bad)},
        ttft=summary(first),
        per_token=summary(each),
        whole=summary([(row.end - row.sent) * 1000 for row in good]),
        tokens=sum(row.counted for row in good),
        exact=all(row.tokens is not None for row in good),
        mean_token_ms=round(sum(spans) / after_first, 4) if after_first else None,
        histogram=histogram(first),
    )


def summary(values: Sequence[float]) -> Summary | None:
    """Mean and quantiles (the nearest rank, which is always a value that was measured)."""
    if not values:
        return None
    rows = sorted(values)

    def at(share: float) -> float:
        return round(
            rows[min(len(rows) - 1, max(0, -(-int(share * 1000) * len(rows) // 1000) - 1))], 3
        )

    return Summary(
        count=len(rows),
        mean=round(sum(rows) / len(rows), 3),
        p50=at(0.5),
        p90=at(0.9) if len(rows) >= FEWEST_P90 else None,
        p99=at(0.99) if len(rows) >= FEWEST_P99 else None,
        most=round(rows[-1], 3),
    )


def histogram(values: Sequence[float]) -> tuple[tuple[float, int], ...]:
    """Bounds 1, 2, 5, 10, ... that hold every value: (upper bound, how many)."""
    if not values:
        return ()
    bounds = [step * 10.0**power for power in range(7) for step in (1, 2, 5)]
    counts = [0] * len(bounds)
    for value in values:
        place = next((i for i, bound in enumerate(bounds) if value <= bound), len(bounds) - 1)
        counts[place] += 1
    used = [i for i, count in enumerate(counts) if count]
    return tuple((bounds[i], counts[i]) for i in range(used[0], used[-1] + 1))
