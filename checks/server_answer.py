"""What a server answers before it makes tokens: nothing, garbage, a gateway's error, a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.server import Answers, Exchange, ms, unnamed_gateway
from infer_doctor.fixes.server import (
    follow_by_hand,
    look_behind_gateway,
    read_server_log,
    restart_frontend,
)
from infer_doctor.fixes.server_way import ask_inside_mesh, ask_with_tls
from infer_doctor.model import Finding
from infer_doctor.registry import check

BROKEN = {
    "not-http": "answers something that is no HTTP",
    "endless-headers": "sends headers without an end",
    "too-large": "sends a body that is larger than any answer of an engine",
    "bad-chunks": "breaks the form of its chunks",
    "bad-encoding": "sends a body that cannot be unpacked",
    "slow": "begins an answer and does not end it",
    "truncated": "ends an answer in the middle",
}
SETTINGS = re.compile(r"(?:\\x00){2}.{1,4}\\x04\\x00")
"""The first frame of a server of HTTP/2 (RFC 9113, sections 3.4 and 6.5)."""

ASIDE = ("health", "metrics")
LOST = ("closed", "reset", "refused", "tls")
GATEWAY_STATUS = (502, 503, 504)

JSON_GATEWAYS = ("kong", "litellm", "apisix")

SILENT_FACTOR, SILENT_MS = 10, 1000.0
"""How much longer than before a server must be silent to have stopped; a starved one is slow before too."""

LATE_MS = 3000.0
"""No proxy that is in use gives up earlier; what ends earlier was refused or lost."""


def _ours(answers: Answers) -> tuple[Exchange, ...]:
    """Exchanges that tell of the API: /metrics may be of another server, and is nobody's who asks for
    tokens; it counts only where nothing else was answered."""
    rows = tuple(row for row in answers.exchanges if row.name != "malformed")
    others = tuple(row for row in rows if row.name != "metrics")
    return others if any(row.answered for row in others) else rows


def _proof(answers: Answers, row: Exchange) -> tuple[Exchange, ...]:
    """The exchange and those of the same kind beside it, three at most."""
    like = [one for one in answers.exchanges if one is not row and one.error == row.error]
    return (row, *[one for one in like if one.status == row.status][:2])


def from_gateway(answers: Answers, row: Exchange) -> bool:
    """Whether what stands before the engine gave this answer and not the engine.

    An engine's own 503 has no body (vLLM's /health) or one of JSON; a proxy's is a page or a line.
    """
    if row.status not in GATEWAY_STATUS or row.server == "uvicorn":
        return False
    if unnamed_gateway(row):
        return True
    gateway = answers.gateway.lower().split("/")[0]
    if row.name == "health" and not row.said:
        return False
    return bool(gateway) and ("json" not in row.content_type or gateway in JSON_GATEWAYS)


def gave_up(answers: Answers, row: Exchange) -> bool:
    """Whether a proxy ended this request because the engine took too long for it.

    vLLM sends the headers of a stream before its first token, so a proxy can only cut it.
    """
    if row.status == 504:
        return True
    late = row.total_ms is not None and row.total_ms >= LATE_MS
    cut = row.name == "stream" and row.error in ("truncated", "closed", "reset")
    if not late or not answers.gateway:
        return late and cut and row.error == "truncated" and _answers_after(answers, row)
    return cut or (row.status == 502 and from_gateway(answers, row))


def _answers_after(answers: Answers, row: Exchange) -> bool:
    """Whether the server went on to answer: then it was not its own end that cut the stream."""
    place = answers.exchanges.index(row)
    return any(one.fine for one in answers.exchanges[place + 1 :])


def _all_silent(answers: Answers) -> bool:
    """Whether no light request was answered, and each waited for its time."""
    light = answers.light
    return bool(light) and not any(row.answered or row.error != "timeout" for row in light)


def waiting_gateway(answers: Answers) -> Exchange | None:
    """The refusal by which a proxy showed itself while nothing behind it answered."""
    row = answers.get("malformed")
    known = row is not None and row.answered and bool(answers.gateway)
    return row if known and _all_silent(answers) else None


def gone_silent(answers: Answers) -> tuple[Exchange, ...]:
    """What was answered first, the stream and what was asked after it, when neither was; else nothing."""
    rows = answers.exchanges
    stream = next((at for at, row in enumerate(rows) if row.name == "stream"), len(rows))
    before = [row for row in rows[:stream] if row.method == "GET" and row.answered]
    after = [row for row in rows[stream + 1 :] if row.method == "GET"]
    if not before or not after or rows[stream].error not in ("timeout", "slow"):
        return ()
    if any(row.answered or row.error != "timeout" for row in after):
        return ()
    usual = max(row.total_ms or 0 for row in before)
    if any((row.total_ms or 0) < max(SILENT_FACTOR * usual, SILENT_MS) for row in after):
        return ()
    return (before[0], rows[stream], after[-1])


@check("server-silent", severity="error", category="server_unreachable", since="0.2")
def silent(answers: Answers) -> Iterator[Finding]:
    """The server takes connections and answers nothing.

    ## Why it matters
    Clients connect at once and then wait for their whole read time-out. The kernel takes the
    connections; the process itself is stopped, blocks its event loop, or waits for something.

    ## How it decides
    GET /health, /v1/models and /metrics, for none of which a token is made, brought no byte within
    35 % of --timeout (3.5 of 10 s). On an idle vLLM each takes some milliseconds. Or they were answered
    before the request for tokens, and after it none was: the process was stopped in between. When a
    line that is no request is refused by a proxy meanwhile, it is what stands behind the proxy that is
    silent: server-gateway-failed.

    ## Fix safety
    Manual: the server has to be started again.
    """
    light = answers.light
    if rows := gone_silent(answers):
        yield Finding(
            about=answers.url,
            message=f"{answers.url} answers nothing any more: {rows[0].method} {rows[0].path} came back "
            f"after {ms(rows[0].total_ms)}, then neither a token nor {rows[-1].method} {rows[-1].path} "
            f"within {ms(rows[-1].total_ms)}",
            evidence=tuple(row.evidence for row in rows),
            fixes=(restart_frontend(answers.url),),
        )
        return
    if not _all_silent(answers) or waiting_gateway(answers) is not None:
        return
    waited = max(row.total_ms or 0 for row in light)
    yield Finding(
        about=answers.url,
        message=f"{answers.url} took the connection in {ms(answers.connect_ms)} and sent nothing for "
        f"{ms(waited)}, not even for GET /health",
        evidence=tuple(row.evidence for row in light),
        fixes=(restart_frontend(answers.url),),
    )


@check("server-connection-lost", severity="error", category="server_unreachable", since="0.2")
def connection_lost(answers: Answers) -> Iterator[Finding]:
    """The server ends connections without an answer.

    ## Why it matters
    Clients see "connection reset by peer" or "server disconnected without sending a response", and
    the log of the server has no line for it.

    ## How it decides
    A request was sent and the connection was closed or reset before the first byte. Reasons: the
    process ends, a front end that is overloaded drops connections, a port of another protocol, TLS
    where http:// was asked, or a mesh that wants mutual TLS: in TLS 1.3 its alert comes after the
    handshake (RFC 8446, section 6.2: certificate_required).

    ## Fix safety
    Manual.
    """
    lost = [row for row in _ours(answers) if row.error in LOST and not gave_up(answers, row)]
    if not lost:
        return
    row, count = lost[0], len(lost)
    if "certificate required" in row.said:
        yield Finding(
            about=answers.url,
            message=f"{answers.url} wants a certificate of its clients (mutual TLS), and none was given",
            category="auth",
            evidence=tuple(one.evidence for one in _proof(answers, row)),
            fixes=(ask_inside_mesh(),),
        )
        return
    yield Finding(
        about=answers.url,
        message=f"{count} of {len(answers.exchanges)} requests to {answers.url} got no answer: "
        f"{row.said or row.error}",
        confidence="certain" if count > 1 else "likely",
        evidence=tuple(one.evidence for one in _proof(answers, row)),
        fixes=(read_server_log(answers.url),),
    )


@check("server-answer-broken", severity="error", category="server_unreachable", since="0.2")
def answer_broken(answers: Answers) -> Iterator[Finding]:
    """What comes back is no answer of an HTTP server that one could use.

    ## Why it matters
    Clients fail with protocol errors, or read for ever. It is another service at this port, https
    asked as http, a proxy that cuts answers, or something hostile.

    ## How it decides
    RFC 9112, with bounds of the doctor's own: 64 KiB of headers, 4 MiB of body, 35 % of --timeout
    for an answer without tokens. A server of an engine needs a hundredth of each.

    ## Fix safety
    Manual.
    """
    row = next((row for row in _ours(answers) if row.error in BROKEN), None)
    if row is None or row.name == "stream" or wants_tls(answers):
        return
    how = f"{BROKEN[row.error]}: {row.said}"
    if row.error == "not-http" and SETTINGS.match(row.said):
        how = "speaks HTTP/2 only, as the port of gRPC does (Triton: 8001; its HTTP port is 8000)"
    yield Finding(
        about=answers.url,
        message=f"{answers.url} {how}",
        evidence=tuple(one.evidence for one in _proof(answers, row)),
        fixes=(look_behind_gateway(answers.gateway, answers.url),) if answers.gateway else (),
    )


def wants_tls(answers: Answers) -> Exchange | None:
    """An alert of TLS (RFC 8446, section 5.1: type 21, version 3), or nginx's own words."""
    for row in _ours(answers):
        if row.method != "GET":
            continue
        if row.error == "not-http" and row.said.startswith("\\x15\\x03"):
            return row
        if row.status in (400, 497) and "https" in row.said.lower():
            return row
    return None


@check("server-tls-wanted", severity="error", category="server_unreachable", since="0.2")
def tls_wanted(answers: Answers) -> Iterator[Finding]:
    """The port speaks TLS and was asked without.

    ## Why it matters
    Every request fails, with words that do not name the reason: garbage, a reset, or 400.

    ## How it decides
    The answer is an alert of TLS, or a 400 whose text names HTTPS, as nginx writes it.

    ## Fix safety
    Manual: the URL has to be changed.
    """
    row = wants_tls(answers)
    if row is None:
        return
    yield Finding(
        about=answers.url,
        message=f"{answers.url} speaks TLS, and http:// was asked",
        evidence=(row.evidence,),
        fixes=(ask_with_tls(answers.url),),
    )


@check("server-gateway-failed", severity="error", category="proxy", since="0.2")
def gateway_failed(answers: Answers) -> Iterator[Finding]:
    """A proxy or gateway answers instead of the engine: 502, 503 or 504.

    ## Why it matters
    The proxy lives, the engine behind it does not answer it: not started, another port, crashed, or
    not ready for the load balancer.

    ## How it decides
    GET requests, for which no token is made, come back with 502 (no connection to the engine), 503
    (no engine is ready) or 504 (it does not answer), and the headers name a proxy (Server, Via). A
    504 for requests with tokens only is server-proxy-timeout. Or none of them is answered within 35 %
    of --timeout, and a line that is no request is refused at once by a proxy.

    ## Fix safety
    Manual.
    """
    alone = waiting_gateway(answers)
    if alone is not None:
        silent_for = max(one.total_ms or 0 for one in answers.light)
        yield Finding(
            about=answers.url,
            message=f"{answers.gateway} takes requests and what stands behind it answered none in "
            f"{ms(silent_for)}; it refused what is no request with {alone.status} after "
            f"{ms(alone.total_ms)}",
            evidence=(alone.evidence, *(one.evidence for one in answers.light)),
            fixes=(look_behind_gateway(answers.gateway, answers.url),),
        )
        return
    rows = [one for one in _ours(answers) if one.method == "GET" and from_gateway(answers, one)]
    row = next(iter(rows), None)
    if row is None:
        return
    means = {
        502: "it gets no connection to the engine",
        503: "it has no engine that is ready",
        504: "the engine does not answer it",
    }
    yield Finding(
        about=answers.url,
        message=f"{answers.gateway} answers {row.status} for GET {row.path} after "
        f"{ms(row.total_ms)}: {means[row.status or 502]}",
        evidence=tuple(one.evidence for one in rows),
        fixes=(look_behind_gateway(answers.gateway, answers.url),),
    )


@check("server-redirected", severity="error", category="proxy", since="0.2")
def redirected(answers: Answers) -> Iterator[Finding]:
    """The server sends clients to another address.

    ## Why it matters
    The OpenAI client follows and sends the body again, or turns a POST into a GET; most others fail.
    A key that follows to another host is lost.

    ## How it decides
    Status 301, 302, 303, 307 or 308, for the API: /health and /metrics are often for others. The doctor follows none, so that a key reaches nobody who was
    not named. A redirect to a login page is a gateway that wants another kind of authentication.

    ## Fix safety
    Manual.
    """
    rows = [row for row in answers.exchanges if row.status in (301, 302, 303, 307, 308)]
    api = [row for row in rows if row.name not in ASIDE]
    if not api:
        return
    row = api[0]
    yield Finding(
        about=answers.url,
        message=f"{row.method} {row.path} is sent to {row.location or 'nowhere'} ({row.status}); "
        "it was not followed",
        evidence=tuple(one.evidence for one in api[:3]),
        fixes=(follow_by_hand(row.location),) if row.location else (),
    )


@check("server-health-failing", severity="error", category="engine_stalled", since="0.2")
def health_failing(answers: Answers) -> Iterator[Finding]:
    """The server itself says that it is not healthy.

    ## Why it matters
    vLLM answers 503 at /health when its engine process is dead; trtllm-serve when its executor is.
    The platform will end the container.

    ## How it decides
    GET /health is 500 or more, and no gateway gave that answer.

    ## Fix safety
    Manual: the server has to be started again, after its log was kept.
    """
    row = answers.get("health")
    if row is None or row.status is None or row.status < 500:
        return
    if from_gateway(answers, row):
        raise NotApplicable(f"{answers.gateway} gave the answer")
    yield Finding(
        about=answers.url,
        message=f"GET {row.path} is {row.status}: the server says that its engine is not "
        + (f"ready: {row.said}" if row.said else "alive"),
        evidence=(row.evidence,),
        fixes=(read_server_log(answers.url, dead=not row.said),),
    )
