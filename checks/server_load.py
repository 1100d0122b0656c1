"""A measurement or a ramp: what failed, and how many at once the server can take."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.server import Load, LoadLevel, ms
from infer_doctor.fixes.server import give_frontend_cpu, keep_below_knee, read_server_log
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check


def _level(row: LoadLevel) -> Evidence:
    words = [f"{row.answered} of {row.requests} answered", f"{row.tokens_per_s:,.0f} tokens/s"]
    if row.ttft is not None:
        far = f"p99 {ms(row.ttft.p99)}" if row.ttft.p99 is not None else f"most {ms(row.ttft.most)}"
        words.append(f"first token p50 {ms(row.ttft.p50)} {far}")
    return Evidence(source=f"{row.concurrency} at once", excerpt=", ".join(words))


@check("server-requests-failed", severity="error", category="request_timeout", since="0.2")
def requests_failed(load: Load) -> Iterator[Finding]:
    """Requests of the measurement failed.

    ## Why it matters
    Under this load users lose answers. Connections that end without an answer leave no line in the
    server's log: its front end drops them.

    ## How it decides
    Every stream of --requests or --ramp counts as answered only with tokens and its end
    (finish_reason or [DONE]); the others are counted by kind. A full queue that answers 429 or 503
    at the end of a ramp is what the ramp looked for: a warning.

    ## Fix safety
    Manual.
    """
    for row in load.levels:
        if not row.failed:
            continue
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(row.failed.items()))
        polite = set(row.failed) <= {"HTTP 429", "HTTP 503"} and len(load.levels) > 1
        yield Finding(
            about=f"{row.concurrency} at once",
            message=f"{sum(row.failed.values())} of {row.requests} requests failed with "
            f"{row.concurrency} at once: {kinds}",
            severity="warning" if polite else None,
            evidence=(
                _level(row),
                *(Evidence(source=kind, excerpt=said) for kind, said in row.examples.items()),
            ),
            fixes=(read_server_log(""),),
        )


OUTSIDE_MS = 500.0
"""As in server-frontend-slow."""


@check("server-frontend-full", severity="warning", category="queueing", since="0.2")
def frontend_full(load: Load) -> Iterator[Finding]:
    """Under this load the first token waits outside the server's own count.

    ## Why it matters
    The front end is the bottleneck: it takes requests late, or writes tokens late, while its own
    histograms, which begin when it has read a request, look well.

    ## How it decides
    The mean time to the first token as the doctor's streams saw it, less the server's own mean of the
    same time (sum/count between two scrapes), is 0.5 s or more, half of the whole or more, and twice
    what the doctor's own event loop was late by. When the server counted other requests too nothing is
    told. Measured once: 1,273 ms against 406 ms, with 26 of
    1,200 requests lost.

    ## Fix safety
    Manual.
    """
    server, level = load.server_ttft, load.levels[-1]
    if server is None or level.ttft is None or len(load.levels) > 1:
        return
    if not level.answered <= server.count <= level.requests:
        raise Unavailable(
            f"the server counted {server.count:.0f} first tokens, the doctor {level.answered}: others "
            "asked too"
        )
    outside = level.ttft.mean - server.mean * 1000
    if outside < OUTSIDE_MS or outside < level.ttft.mean / 2 or outside < 2 * load.lag_ms:
        return
    yield Finding(
        about="front end",
        message=f"with {level.concurrency} at once the first token takes {ms(level.ttft.mean)}, of "
        f"which the server counts {ms(server.mean * 1000)}: the rest passes in its front end",
        evidence=(
            _level(level),
            Evidence(source="/metrics", excerpt=f"mean of {server.count:.0f} requests"),
        ),
        fixes=(give_frontend_cpu(""),),
    )


@check("server-knee-found", severity="info", category="queueing", since="0.2")
def knee_found(load: Load) -> Iterator[Finding]:
    """More requests at once bring no more tokens: here the server is full.

    ## Why it matters
    Beyond it requests only wait for each other: the first token comes later and nothing is gained.
    A gateway should hold back what is more.

    ## How it decides
    A ramp doubles the requests at once until twice as many bring less than 10 % more tokens a second,
    or requests fail. The knee is the step before.

    ## Fix safety
    Manual.
    """
    if load.knee is None or len(load.levels) < 2:
        return
    last = load.levels[-1]
    at = next(row for row in load.levels if row.concurrency == load.knee)
    yield Finding(
        about="knee",
        message=f"the server is full with {load.knee} requests at once: "
        f"{at.tokens_per_s:,.0f} tokens/s there, {last.tokens_per_s:,.0f} with {last.concurrency}",
        evidence=tuple(_level(row) for row in load.levels),
        fixes=(keep_below_knee(load.knee),),
    )
