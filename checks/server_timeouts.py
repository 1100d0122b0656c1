"""The time-outs along the way: which one fires first, and what keeps streams back."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.server_limits import Limit, TimeoutChain
from infer_doctor.fixes.server import lengthen_limit, lengthen_probe, stop_buffering_of
from infer_doctor.model import Finding
from infer_doctor.registry import check

REQUEST = ("client", "proxy", "gateway")
"""Who ends a request; an engine's limit is for one step, a probe's for its own question."""

TIGHT = 0.5
"""A limit of which the measured answer takes half or more: the next queue will pass it."""


def _against(chain: TimeoutChain, limit: Limit) -> float | None:
    """The measured time that this limit stands against."""
    if limit.what == "whole answer":
        return chain.whole_s
    return chain.first_token_s if chain.first_token_s is not None else chain.whole_s


def _request_limits(chain: TimeoutChain) -> list[Limit]:
    return [row for row in chain.limits if row.who in REQUEST]


@check("server-timeout-fires", severity="error", category="request_timeout", since="0.2")
def timeout_fires(chain: TimeoutChain) -> Iterator[Finding]:
    """A time-out on the way is shorter than the server takes now.

    ## Why it matters
    The request is ended before its answer: clients see 504 or "timed out", and the engine's work is
    thrown away.

    ## How it decides
    Every limit that can be seen (client code, nginx, Envoy, Ingress, mesh) against the stream that
    was measured: limits for the next byte against the first token, limits for the whole answer
    against all of it. What the doctor gave up on took at least that long. A limit of which the answer
    takes half or more is a warning.

    ## Fix safety
    Manual.
    """
    if chain.whole_s is None:
        raise NotApplicable("no answer was measured")
    for limit in _request_limits(chain):
        measured = _against(chain, limit)
        if measured is None or measured < TIGHT * limit.seconds:
            continue
        fires = measured >= limit.seconds
        what = "the whole answer" if limit.what == "whole answer" else "the first token"
        least = "at least " if not chain.ended and chain.first_token_s is None else ""
        default = " (default)" if limit.default else ""
        yield Finding(
            about=limit.name,
            message=f"{limit.name} is {limit.seconds:g} s{default}; {what} took {least}"
            f"{measured:.1f} s",
            severity=None if fires else "warning",
            evidence=(limit.evidence,),
            fixes=(lengthen_limit(limit, measured),),
        )


@check("server-timeout-first", severity="info", category="request_timeout", since="0.2")
def timeout_first(chain: TimeoutChain) -> Iterator[Finding]:
    """Which of the time-outs on the way fires first.

    ## Why it matters
    The shortest limit decides what users see, and it is rarely the one that people change.

    ## How it decides
    The shortest limit of client, proxy and gateway that was read, beside the measured answer.

    ## Fix safety
    Nothing to fix.
    """
    limits = _request_limits(chain)
    if not limits:
        return
    first = min(limits, key=lambda row: row.seconds)
    measured = _against(chain, first)
    if measured is not None and measured >= TIGHT * first.seconds:
        return  # server-timeout-fires
    tail = f"; measured {measured:.2f} s" if measured is not None else ""
    yield Finding(
        about=first.name,
        message=f"{first.name} fires first, after {first.seconds:g} s without the {first.what}{tail}",
        evidence=tuple(row.evidence for row in sorted(limits, key=lambda row: row.seconds)[:4]),
    )


@check("server-proxy-buffers", severity="warning", category="proxy", since="0.2")
def proxy_buffers(chain: TimeoutChain) -> Iterator[Finding]:
    """The configuration of a proxy keeps back what the engine streams.

    ## Why it matters
    Tokens come in bursts: an answer without chunks in those of nginx's buffers, 4 or 8 KiB, and one
    in chunks, as vLLM's, up to 40 ms late, because nginx then leaves Nagle's algorithm on.

    ## How it decides
    proxy_buffering is on for the location that takes /v1/chat/completions, which is nginx's default;
    ingress-nginx has it off. Neither vLLM nor trtllm-serve sends X-Accel-Buffering: no. HAProxy waits
    up to 200 ms for full segments unless it is told option http-no-delay (measured with 2.6). When
    the tokens of the measured stream came one by one it is info: it may pass another way, or they
    are slower than what keeps them back.

    ## Fix safety
    Manual.
    """
    seen = "; the measured stream came token by token" if chain.one_by_one else ""
    for row in chain.buffering:
        if row.on:
            yield Finding(
                about=row.name,
                message=f"{row.name} buffers what the engine streams{seen}",
                severity="info" if chain.one_by_one else None,
                confidence="likely",
                evidence=(row.evidence,),
                fixes=(stop_buffering_of(row),),
            )


@check("server-probe-short", severity="error", category="engine_stalled", since="0.2")
def probe_short(chain: TimeoutChain) -> Iterator[Finding]:
    """A probe of the platform waits shorter than the server takes to answer it.

    ## Why it matters
    Kubernetes ends a container whose liveness probe fails a few times: a server that is only busy is
    killed, and its load goes to the others.

    ## How it decides
    timeoutSeconds of the liveness or readiness probe (Kubernetes' default is 1 s), or the time-out of
    a health check of Docker, against the time that GET /health took. Half of it or more is a warning.

    ## Fix safety
    Manual.
    """
    if chain.health_s is None:
        raise NotApplicable("the answer of /health was not measured")
    for limit in chain.limits:
        if limit.who != "probe" or chain.health_s < TIGHT * limit.seconds:
            continue
        fires = chain.health_s >= limit.seconds
        yield Finding(
            about=limit.name,
            message=f"the {limit.name} waits {limit.seconds:g} s; GET /health took "
            f"{chain.health_s:.1f} s",
            severity=None if fires else "warning",
            evidence=(limit.evidence,),
            fixes=(lengthen_probe(limit, chain.health_s),),
        )
