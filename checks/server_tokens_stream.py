"""A stream of tokens: none that came, kept back on the way, broken before its end."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.checks.server_answer import gave_up, gone_silent
from infer_doctor.checks.server_engine import is_full, numbers, took
from infer_doctor.checks.server_frontend import frontend_slow, light_ms
from infer_doctor.facts.server import Answers, ServerMetrics, Streamed, ms
from infer_doctor.fixes.server import read_server_log, stop_buffering, watch_engine
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.server.progress import nothing_moved, progress, stuck
from infer_doctor.units import plural

LONG_MS = 250.0
"""A stream that is shorter cannot be told from one that the machines on the way were late with."""

BURST_MS = 20.0
"""Between bursts. A buffer of 4 KiB holds some 18 tokens, at 10 ms each 180 ms; Nagle's algorithm
with delayed acknowledgements makes bursts of 40 ms (tcp(7)), which nginx leaves on when it buffers."""

NAGLE_MS = 50.0
"""Bursts no further apart may also be those of a proxy that gets no CPU."""

AT_ONCE_MS = 0.2
"""For each token: no engine makes 5,000 a second for one request."""

NO_EVENTS = {
    "bad-events": "events that are no JSON",
    "no-events": "something else than events",
}
BROKEN_STREAM = (
    "truncated",
    "reset",
    "bad-chunks",
    "bad-encoding",
    "too-large",
    "error-event",
    "bad-events",
    "no-events",
)


def _kept_back(streamed: Streamed, metrics: ServerMetrics | None) -> float:
    """Tokens that an engine that was idle made for our stream, of which none came; 0 when it is not so."""
    if streamed.error != "timeout" or streamed.first_ms is not None:
        return 0
    if streamed.status not in (None, 200):  # nginx keeps the headers too
        return 0
    if metrics is None or not metrics.second or metrics.total("waiting"):
        return 0
    alone = metrics.total("running", "first") == 0 and metrics.total("running") == 1
    return (metrics.gained("tokens") or 0) if alone else 0


@check("server-stream-buffered", severity="warning", category="proxy", since="0.2")
def stream_buffered(
    streamed: Streamed, answers: Answers, metrics: ServerMetrics | None
) -> Iterator[Finding]:
    """A stream arrives all at once: something keeps the tokens back.

    ## Why it matters
    Users look at nothing until the whole answer is made; time-outs that wait for the next byte fire
    although tokens are made.

    ## How it decides
    The kernel counts the TCP segments in which the stream came (tcp_info, tcpi_data_segs_in). Three
    tokens or more in each, and either all of them at once after 250 ms and more, or 20 ms and more
    between segments: something puts them together. When the doctor's own event loop was late by as
    much nothing is told: the proxy may run on the same machine. Or no token came at all, while the
    engine, idle before, made some with one request running and none waiting: ours.

    nginx with proxy_buffering on fills a buffer of 4 or 8 KiB when the engine's answer has no chunks
    (HTTP/1.0 to the engine). The chunks of vLLM's uvicorn it passes on, but without TCP_NODELAY: they
    wait up to 40 ms, which tokens that are slower than that do not show (measured with 1.22).

    ## Fix safety
    Manual.
    """
    if (kept := _kept_back(streamed, metrics)) and metrics is not None:
        yield Finding(
            about=answers.gateway or "stream",
            message=f"the engine made {kept:.0f} tokens for our stream and none came within "
            f"{ms(streamed.total_ms)}: {answers.gateway or 'something'} keeps them back",
            severity="error",
            confidence="certain" if answers.gateway else "likely",
            evidence=(
                *(row.evidence for row in answers.exchanges if row.name == "stream"),
                *numbers(metrics),
            ),
            fixes=(stop_buffering(answers.gateway),),
        )
        return
    if streamed.first_ms is None:
        raise Unavailable("no token came")
    if not streamed.merged or not streamed.segments:
        return
    span = (streamed.last_ms or streamed.first_ms) - streamed.first_ms
    at_once = span <= AT_ONCE_MS * streamed.events
    apart = streamed.total_ms if at_once else span / streamed.segments
    if apart < BURST_MS:
        return
    if streamed.total_ms < LONG_MS or streamed.lag_ms >= apart:
        raise Unavailable("the stream was too short to tell bursts from a late machine")
    gateway = answers.gateway
    segments = plural(streamed.segments, "segment")
    how = f"after {ms(streamed.first_ms)}, all at once" if at_once else f"{ms(apart)} apart"
    yield Finding(
        about=gateway or "stream",
        message=f"{streamed.events} tokens of a stream came in {segments} {how}: "
        f"{gateway or 'something'} keeps them back"
        + (f" and compresses them ({streamed.encoding})" if streamed.encoding else ""),
        confidence="certain" if gateway and apart >= NAGLE_MS else "likely",
        evidence=(
            Evidence(
                source=f"POST {streamed.path}",
                excerpt=f"{streamed.size:,} bytes in {segments}; first token after "
                f"{ms(streamed.first_ms)}, last after {ms(streamed.last_ms)} of "
                f"{ms(streamed.total_ms)}",
            ),
        ),
        fixes=(stop_buffering(gateway),),
    )


@check("server-stream-broken", severity="error", category="proxy", since="0.2")
def stream_broken(streamed: Streamed, answers: Answers) -> Iterator[Finding]:
    """A stream breaks before its end.

    ## Why it matters
    Users see half an answer; most clients raise "incomplete chunked read". A proxy with a time limit
    for whole answers, an engine that died, or a front end that drops connections.

    ## How it decides
    Tokens came, then the connection ended, an event held an error, or the body was no stream. A
    stream that the doctor itself ended for its time limit is none.

    ## Fix safety
    Manual.
    """
    if streamed.error == "timeout" and streamed.first_ms is None:
        raise Unavailable("no token came")
    if streamed.status is None or not 200 <= streamed.status < 300:
        raise Unavailable("no stream was answered with success")
    if streamed.first_ms is None and any(gave_up(answers, row) for row in answers.heavy):
        return  # server-proxy-timeout
    if streamed.done and not (streamed.error or streamed.events):
        raise Unavailable("the stream came to its end and brought no token")
    lost = streamed.error in BROKEN_STREAM
    unended = (
        not (streamed.error or streamed.cut)
        and streamed.events > 0
        and not (streamed.done or streamed.finish)
    )
    plain = streamed.error == "not-streamed"
    if not (lost or unended or plain):
        return
    how = "no finish_reason and no [DONE]"
    if lost:
        how = f"{NO_EVENTS.get(streamed.error, streamed.error)}: {streamed.said or 'nothing'}"
    message = (
        f"a stream ended after {streamed.events} of {streamed.asked_tokens} tokens and "
        f"{ms(streamed.total_ms)}: {how}"
    )
    if plain:
        message = f"{streamed.path} was asked for a stream and answered in one piece"
    yield Finding(
        about=streamed.path,
        message=message,
        severity="warning" if plain else None,
        evidence=tuple(row.evidence for row in answers.exchanges if row.name == "stream"),
        fixes=() if plain else (read_server_log(answers.url),),
    )


@check("server-token-missing", severity="error", category="request_timeout", since="0.2")
def token_missing(
    streamed: Streamed, answers: Answers, metrics: ServerMetrics | None
) -> Iterator[Finding]:
    """No token came, and the server has no numbers that tell why.

    ## Why it matters
    The server lives, answers questions without tokens, and makes none: its queue is long, its engine
    stands still, or a gateway holds the request.

    ## How it decides
    A stream was asked for and brought no token within 80 % of --timeout, and /metrics is not there,
    is of no known engine, or was scraped only once. With two scrapes the finding is
    server-engine-stalled, server-queueing or server-kv-full.

    ## Fix safety
    Manual.
    """
    if streamed.error != "timeout" or streamed.first_ms is not None or frontend_slow(answers):
        return
    if metrics is not None and metrics.second and _explains(metrics):
        return
    if gone_silent(answers) or _kept_back(streamed, metrics):
        return  # server-silent, server-stream-buffered
    health = answers.get("health")
    last = answers.light[-1] if answers.light else None
    others = f"while questions without tokens are answered in {ms(light_ms(answers))}"
    if last is not None and not last.answered:
        others = f"and {last.method} {last.path} got no answer within {ms(last.total_ms)}"
    yield Finding(
        about=streamed.path,
        message=f"no token came within {ms(streamed.total_ms)}, {others}",
        evidence=(
            *(row.evidence for row in answers.exchanges if row.name == "stream"),
            *((health.evidence,) if health is not None else ()),
        ),
        fixes=(watch_engine(answers.url),),
    )


def _explains(metrics: ServerMetrics) -> bool:
    """Whether the scrapes name a reason why no token came."""
    still = nothing_moved(metrics) or any(
        stuck(metrics, name, first) for name, first in metrics.first.items()
    )
    queued = bool(metrics.total("waiting")) and progress(metrics)
    return still or queued or bool(took(metrics)) or is_full(metrics, None)
