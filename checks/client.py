"""Code that asks an engine: deadlines, retries, connections, how much at once."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from infer_doctor.catalog.clients import (
    HTTPX_READ_S,
    OPENAI_CONNECTIONS,
    OPENAI_READ_S,
    OPENAI_RETRIES,
    PUBLIC_HOSTS,
)
from infer_doctor.facts.client_code import Attempts, Call, ClientCode
from infer_doctor.fixes.client import bound_requests, make_client_once, retry_once, set_timeout
from infer_doctor.launch.model import Place, Unknown
from infer_doctor.model import Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.units import plural

OPENAI = ("openai.", "?.")


def seen(place: Place, excerpt: str) -> Evidence:
    """The line that says it."""
    return Evidence(source=place.file, line=place.line, excerpt=excerpt)


@check("client-timeout-missing", severity="warning", category="request_timeout", since="0.2")
def timeout_missing(code: ClientCode) -> Iterator[Finding]:
    """A client of the engine has no deadline of its own.

    ## Why it matters
    When the engine is stuck or its queue is long, each caller waits for minutes or for ever, holds
    its connection and its thread, and the service in front of the engine goes down with it.

    ## How it decides
    OpenAI(...) and AsyncOpenAI(...) without `timeout`, nor in the request, nor asyncio.wait_for
    around it, nor an http_client: 600 s without a byte, and the SDK asks again twice (openai
    3.57.0, _constants.py; the same since 1.0). `timeout=None` and requests without `timeout` wait
    for ever (requests, "Timeouts"). aiohttp ends after 300 s in all and is not named; httpx:
    client-timeout-short. A client of a hosted service, or without base_url, is info. What
    **arguments hold is not known: no finding.

    ## Fix safety
    Unsafe where a keyword of the call is enough: an answer that takes longer is lost. Else manual.
    """
    for call in code.calls:
        if call.kind == "client" and call.name.startswith("openai."):
            yield from _openai_client(code, call)
        elif call.kind == "request" and call.name.startswith("requests."):
            given = call.given("timeout")
            if call.unread or (given is not None and given.value is not None):
                continue
            yield Finding(
                about=f"{code.file} {call.function.name} {call.name}",
                message=f"{call.name} in {call.function.name} has no timeout: it waits for ever "
                "for an answer",
                evidence=(seen(call.place, call.excerpt),),
                fixes=(set_timeout(call.name, call.place),),
            )


def _openai_client(code: ClientCode, client: Call) -> Iterator[Finding]:
    given = client.given("timeout")
    endless = given is not None and given.value is None
    if client.unread or client.given("http_client") or (given is not None and not endless):
        return
    requests = [row for row in code.calls if row.made_by == client.place and row.kind == "request"]
    bare = [row for row in requests if not _limited(row)]
    if requests and not bare:
        return
    retries = _retries(client)
    short = client.name.rpartition(".")[2]
    if endless:
        message = f"{short}(timeout=None) waits for ever for an answer"
    else:
        message = f"{short}(...) has no timeout: it waits {OPENAI_READ_S} s for the next byte"
        if retries:
            minutes = OPENAI_READ_S * (retries + 1) / 60
            message += f" and asks {retries + 1} times, up to {minutes:.0f} min for one call"
    yield Finding(
        about=f"{code.file} {client.function.name} {client.name}",
        message=message,
        severity=_severity(client.url),
        confidence="certain" if requests or endless else "likely",
        evidence=(
            seen(client.place, client.excerpt),
            *(seen(row.place, row.excerpt) for row in bare[:1]),
        ),
        fixes=(
            set_timeout(
                client.name,
                client.place,
                retries_given=client.given("max_retries") is not None,
            ),
        ),
    )


def _limited(request: Call) -> bool:
    """Whether something ends a request: its own arguments, with_options, or asyncio."""
    names = {word.name for word in request.options if word.value is not None}
    return (
        request.deadline
        or request.unread
        or request.given("timeout") is not None
        or bool(names & {"timeout", "http_client", "**"})
    )


def _severity(url: str | None) -> Severity:
    hosted = url is None or any(host in url for host in PUBLIC_HOSTS)
    return "info" if hosted else "warning"


def _retries(call: Call) -> int | None:
    """max_retries of a client, the SDK's own when it is not given; None when it is not known."""
    words = [*call.options, *call.keywords]
    if any(word.name == "**" for word in words):
        return None
    given = [word.value for word in words if word.name == "max_retries"]
    if not given:
        return OPENAI_RETRIES
    value = given[-1]
    return value if isinstance(value, int) and not isinstance(value, Unknown) else None


@check("client-timeout-short", severity="warning", category="request_timeout", since="0.2")
def timeout_short(code: ClientCode) -> Iterator[Finding]:
    """A request with httpx has no timeout, and httpx gives up after five seconds of silence.

    ## Why it matters
    A server that does not stream sends nothing until the last token is there: any answer of more
    than five seconds ends in httpx.ReadTimeout, and the engine has computed for nothing.

    ## How it decides
    httpx.post(...) or a method of httpx.Client and httpx.AsyncClient on a URL of an engine (/v1/,
    /generate, completions), without `timeout` in the client or the call: 5 s (httpx 0.28,
    _config.py, DEFAULT_TIMEOUT_CONFIG). A streamed request is not judged; /v1/models and other
    GETs answer at once and are not either.

    ## Fix safety
    Unsafe where a keyword of the call is enough: an answer that takes longer is lost. Else manual.
    """
    for call in code.calls:
        if call.kind != "request" or not call.name.startswith("httpx."):
            continue
        words = [*call.options, *call.keywords]
        verb = call.name.rpartition(".")[2]
        if verb != "post" or call.unread or any(w.name in ("timeout", "**") for w in words):
            continue
        yield Finding(
            about=f"{code.file} {call.function.name} {call.name}",
            message=f"{call.name} in {call.function.name} has no timeout: httpx gives up after "
            f"{HTTPX_READ_S} s without a byte, and an answer that is not streamed is silent until "
            "its last token",
            confidence="likely",
            evidence=(seen(call.place, call.excerpt),),
            fixes=(set_timeout(call.name, call.place),),
        )


@check("client-retries-multiply", severity="warning", category="client", since="0.2")
def retries_multiply(code: ClientCode) -> Iterator[Finding]:
    """Retries stand inside retries: one failed call becomes many requests.

    ## Why it matters
    An engine that is overloaded answers late, the client asks again, and each layer multiplies:
    the load grows just when the engine has no room, and it does not come back by itself.

    ## How it decides
    The attempts of decorators (tenacity's stop_after_attempt, backoff's max_tries, stamina, a
    `retry` with a number) and of loops that try until it works, around the call and around the
    functions of the file that lead to it, times max_retries + 1 of the OpenAI SDK, which is 3 when
    it is not given (openai 3.57.0, _constants.py; it retries time-outs, lost connections, 408,
    409, 429 and 5xx). A finding when two layers each try more than once. A number that the file
    does not tell counts once and is said.

    ## Fix safety
    Unsafe where a keyword of the call is enough: an answer that takes longer is lost. Else manual.
    """
    for call in code.calls:
        if call.kind != "request" or (not call.name.startswith(OPENAI) and not call.attempts):
            continue
        layers = [row for row in call.attempts if row.endless or row.count != 1]
        retries = _retries(call) if call.name.startswith("openai.") else None
        inner = (retries or 0) + 1
        if len(layers) + (inner > 1) < 2 or not layers:
            continue
        total: float = inner
        for row in layers:
            total *= float("inf") if row.endless else row.count or 1
        parts = [_layer(row) for row in layers]
        if inner > 1:
            default = "" if any(w.name == "max_retries" for w in call.options) else ", its default"
            parts.append(f"the SDK asks {plural(inner, 'time')} (max_retries={retries}{default})")
        unsure = any(row.count is None and not row.endless for row in layers)
        many = (
            "requests without end"
            if isinf(total)
            else f"{'at least ' if unsure else ''}{total:.0f} requests"
        )
        yield Finding(
            about=f"{code.file} {call.function.name} {call.name}",
            message=f"one failed call in {call.function.name} becomes {many}: {'; '.join(parts)}",
            confidence="likely" if unsure else "certain",
            evidence=(
                *(seen(row.place, row.excerpt) for row in layers),
                seen(call.place, call.excerpt),
            ),
            fixes=(retry_once(layers[-1].place, call.made_by, layers[-1].count),),
        )


def _layer(row: Attempts) -> str:
    name = "a loop" if row.kind == "loop" else row.kind
    if row.endless:
        return f"{name} never gives up"
    if row.count is None:
        return f"{name} tries again"
    return f"{name} tries {plural(row.count, 'time')}"


@check("client-made-per-request", severity="info", category="client", since="0.2")
def made_per_request(code: ClientCode) -> Iterator[Finding]:
    """A client of the engine is made anew for each request.

    ## Why it matters
    Each client has a pool of connections of its own: nothing is reused, every request pays for
    connecting, and under load the sockets that wait to be closed run out.

    ## How it decides
    OpenAI(...), AsyncOpenAI(...), httpx clients, aiohttp.ClientSession or requests.Session are made
    in a handler of HTTP requests or in a function that one calls, and neither kept in a global or
    an attribute nor behind a cache.

    ## Fix safety
    Manual.
    """
    for call in code.calls:
        function = call.function
        if call.kind != "client" or not function.served or function.cached or call.kept:
            continue
        yield Finding(
            about=f"{code.file} {function.name} {call.name}",
            message=f"{call.name} is made in {function.name} for each request: no connection is "
            "used again",
            evidence=(seen(call.place, call.excerpt),),
            fixes=(make_client_once(call.name, call.place),),
        )


@check("client-requests-unbounded", severity="warning", category="queueing", since="0.2")
def requests_unbounded(code: ClientCode) -> Iterator[Finding]:
    """All items of a collection are sent to the engine at once.

    ## Why it matters
    The engine runs as many sequences as --max-num-seqs says and queues the others, while the clock
    of each request already runs: those at the end of the queue time out and are sent again.

    ## How it decides
    asyncio.gather over a comprehension whose calls lead to a request to an engine, and no
    semaphore, limiter or pool in the file. How long the collection is, is not known: possible. The
    SDK itself opens up to 1,000 connections (openai 3.57.0, _constants.py).

    ## Fix safety
    Manual.
    """
    for call in code.calls:
        if not call.gathered:
            continue
        own = call.name.startswith("openai.")
        yield Finding(
            about=f"{code.file} {call.function.name} {call.name}",
            message=f"asyncio.gather sends a request of {call.function.name} for every item at once"
            + (
                f"; only the SDK's pool of {OPENAI_CONNECTIONS:,} connections bounds it"
                if own
                else ""
            ),
            confidence="possible",
            evidence=(seen(call.place, call.excerpt),),
            fixes=(bound_requests(call.place),),
        )
