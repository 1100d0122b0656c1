"""Requests for tokens: refused, failed, rejected, hidden errors, chats, wrong requests, streams."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.checks.server_answer import from_gateway, gave_up
from infer_doctor.facts.server import Answers, Exchange, Models, ServerMetrics, Streamed, ms
from infer_doctor.fixes.server import (
    answer_with_client_error,
    back_off,
    lengthen_gateway,
    read_server_log,
    set_chat_template,
    show_errors,
    stop_buffering,
    turn_on_feature,
)
from infer_doctor.host import Unavailable
from infer_doctor.model import Confidence, Evidence, Finding
from infer_doctor.registry import check
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


@check("server-proxy-timeout", severity="error", category="request_timeout", since="0.2")
def proxy_timeout(
    answers: Answers, metrics: ServerMetrics | None, streamed: Streamed | None
) -> Iterator[Finding]:
    """A proxy gives up on the engine before the engine has answered.

    ## Why it matters
    Clients see 504 after a round number of seconds while the engine works on; its tokens are thrown
    away, and retries double the load.

    ## How it decides
    A request for tokens ends with 504, or, after 3 s and more without a token, with 502 or the end of
    the connection, from a proxy that its headers name, while requests without tokens come through.
    Likely only: HAProxy and load balancers name themselves nowhere, so a stream that is cut without a
    token, while the server answers on, counts too; and when the engine's own counters stand still,
    server-engine-stalled is the cause.

    ## Fix safety
    Manual.
    """
    row = next((one for one in answers.heavy if gave_up(answers, one)), None)
    if row is None or (streamed is not None and streamed.events and row.name == "stream"):
        return
    seconds = (row.total_ms or 0) / 1000
    stands = metrics is not None and metrics.gained("tokens") == 0
    queue = metrics.total("waiting") if metrics is not None else None
    more = f"; {queue:.0f} requests wait in the engine" if queue else ""
    unnamed = not answers.gateway and row.status not in (502, 504)
    confidence: Confidence = "likely" if stands or unnamed else "certain"
    how = str(row.status) if row.status in (502, 504) else "it cut the stream"
    yield Finding(
        about=answers.gateway or "proxy",
        message=f"{answers.gateway or 'a proxy'} gave up after {seconds:.1f} s ({how}) on "
        f"{row.method} {row.path}; the engine had made no token yet{more}",
        confidence=confidence,
        evidence=(row.evidence, *(one.evidence for one in answers.light[:1])),
        fixes=(lengthen_gateway(answers.gateway, seconds),),
    )


@check("server-error", severity="error", category="engine_stalled", since="0.2")
def server_error(answers: Answers) -> Iterator[Finding]:
    """A request that is right fails with an error of the server.

    ## Why it matters
    Every user sees it. vLLM answers 500 when its engine is dead or a request fails in it, and its log
    holds the cause.

    ## How it decides
    Status 500 and more for the list of models, a small chat, completion or stream, but for what a gateway answers
    (server-proxy-timeout) and a full queue (server-requests-rejected).

    ## Fix safety
    Manual.
    """
    models = answers.get("models")
    for row in (*((models,) if models is not None else ()), *answers.heavy):
        if row.status is None or row.status < 500 or row.status == 503 or gave_up(answers, row):
            continue
        if row.name == "models" and from_gateway(answers, row):
            continue  # server-gateway-failed
        yield Finding(
            about=row.path,
            message=f"{row.method} {row.path} fails with {row.status}: {row.said or 'no reason'}",
            evidence=(row.evidence,),
            fixes=(read_server_log(answers.url),),
        )
        return


@check("server-requests-rejected", severity="error", category="queueing", since="0.2")
def requests_rejected(answers: Answers) -> Iterator[Finding]:
    """The server takes no further request: 429 or 503.

    ## Why it matters
    A limit is reached: of a gateway for this key, or of the engine's queue (vLLM's
    --max-num-queued-reqs and --max-num-queued-tokens answer 503).

    ## How it decides
    A small request for tokens is answered with 429 or 503.

    ## Fix safety
    Manual.
    """
    row = next((one for one in answers.heavy if one.status in (429, 503)), None)
    if row is None:
        return
    who = answers.gateway if from_gateway(answers, row) or row.status == 429 else "the engine"
    yield Finding(
        about=row.path,
        message=f"{who or 'the server'} rejects {row.method} {row.path} with {row.status}: "
        f"{row.said or 'no reason'}",
        evidence=(row.evidence,),
        fixes=(back_off(row.status or 503),),
    )


@check("server-error-hidden", severity="error", category="wrapper_generic", since="0.2")
def error_hidden(answers: Answers) -> Iterator[Finding]:
    """An error comes with the status of success.

    ## Why it matters
    Clients, load balancers and monitors count it as an answer: nobody is called, nothing is retried,
    and users see an empty text.

    ## How it decides
    Status 200, and the body is an object with "error" or "detail" and without "choices", an event of
    a stream that is an error, or no JSON at all, such as a login page.

    ## Fix safety
    Manual.
    """
    for row in answers.exchanges:
        if row.hidden_error and row.name != "wrong":
            yield Finding(
                about=row.path,
                message=f"{row.method} {row.path} answers {row.status} with an error as its body: "
                f"{row.said}",
                evidence=(row.evidence,),
                fixes=(show_errors(row.path),),
            )
            return


@check("server-request-refused", severity="error", category="client", since="0.2")
def request_refused(answers: Answers, known: Models | None) -> Iterator[Finding]:
    """The server refuses both chats and completions as wrong requests.

    ## Why it matters
    It serves no text to anybody who asks as everybody asks: a model for embeddings or scores, a
    gateway that wants other fields, a route that is missing.

    ## How it decides
    Every small request for tokens, and one for an embedding, is answered with a 4xx other than 401,
    403 and 429, and the model is one that the server offers. Nothing is told when the server says that
    its model does not make text, or when the doctor chose one of several models itself.

    ## Fix safety
    Manual.
    """
    rows = [row for row in answers.heavy if row.status is not None]
    refused = [row for row in rows if _is_refusal(row) and "does not exist" not in row.said]
    models = answers.get("models")
    if not rows or len(refused) != len(rows) or models is None or not models.fine:
        return
    if known is not None and known.asked is None and len(known.offered) > 1:
        raise Unavailable(
            f"{known.used}, one of {len(known.offered)} models, was refused: name one with --model"
        )
    if any("does not support" in row.said for row in refused):
        raise Unavailable(
            f"{known.used if known else 'the model'} makes no text: {refused[0].said}"
        )
    yield Finding(
        about=answers.url,
        message=f"the server refuses {refused[0].path} with {refused[0].status}: "
        f"{refused[0].said or 'no reason'}",
        evidence=tuple(row.evidence for row in refused[:3]),
    )


def _is_refusal(row: Exchange) -> bool:
    return row.status is not None and 400 <= row.status < 500 and row.status not in (401, 403, 429)


@check("server-chat-refused", severity="warning", category="tokenizer", since="0.2")
def chat_refused(answers: Answers) -> Iterator[Finding]:
    """Completions work, chats do not.

    ## Why it matters
    Most clients chat. vLLM refuses it with 400 when the tokenizer has no chat template, as base
    models do not.

    ## How it decides
    The small chat is answered with a 4xx other than 401, 403 and 429, a completion with success.

    ## Fix safety
    Manual.
    """
    chat, completion = answers.get("chat"), answers.get("completion")
    if chat is None or completion is None or not _is_refusal(chat) or not completion.fine:
        return
    yield Finding(
        about=chat.path,
        message=f"{chat.path} is refused with {chat.status} while {completion.path} works: "
        f"{chat.said or 'no reason'}",
        evidence=(chat.evidence, completion.evidence),
        fixes=(set_chat_template(),),
    )


@check("server-bad-request-mishandled", severity="warning", category="wrapper_generic", since="0.2")
def bad_request_mishandled(answers: Answers) -> Iterator[Finding]:
    """A wrong request is not answered as the client's mistake.

    ## Why it matters
    With 500 the client retries what can never work, and the error rate of the server rises; with 200
    it never learns of its mistake.

    ## How it decides
    A chat with temperature -1 is answered with 500 and more (a warning) or with 200 and an error (a
    warning), or as if it were right (info: some servers clamp it). vLLM and OpenAI answer 400.

    ## Fix safety
    Manual.
    """
    row = answers.get("wrong")
    right = answers.get("chat")
    if row is None or row.status is None or 400 <= row.status < 500 or not (right and right.fine):
        return
    taken = row.fine
    yield Finding(
        about=row.path,
        message=f"a chat with temperature -1 is answered with {row.status}"
        + (", as if it were right" if taken else f": {row.said}"),
        severity="info" if taken else None,
        evidence=(row.evidence,),
        fixes=() if taken else (answer_with_client_error(),),
    )


@check("server-feature-broken", severity="warning", category="launch_argument", since="0.2")
def feature_broken(answers: Answers) -> Iterator[Finding]:
    """Structured output or tools were asked for and do not work.

    ## Why it matters
    Agents depend on both, and most servers must be started for them: vLLM wants
    --enable-auto-tool-choice and --tool-call-parser.

    ## How it decides
    Only with --structured or --tools: the request is refused, or the answer is not JSON of the schema
    that was given. An answer cut by its length decides nothing.

    ## Fix safety
    Manual.
    """
    for name in ("structured", "tools"):
        row = answers.get(name)
        if row is None or (row.fine and not row.problem):
            continue
        said = row.problem or row.said or row.error
        yield Finding(
            about=name,
            message=f"{name}: {row.path} answers {row.status or 'nothing'}: {said}",
            evidence=(row.evidence,),
            fixes=(turn_on_feature(name),),
        )


@check("server-stream-buffered", severity="warning", category="proxy", since="0.2")
def stream_buffered(streamed: Streamed, answers: Answers) -> Iterator[Finding]:
    """A stream arrives all at once: something keeps the tokens back.

    ## Why it matters
    Users look at nothing until the whole answer is made; time-outs that wait for the next byte fire
    although tokens are made.

    ## How it decides
    The kernel counts the TCP segments in which the stream came (tcp_info, tcpi_data_segs_in). Three
    tokens or more in each, and either all of them at once after 250 ms and more, or 20 ms and more
    between segments: something puts them together. When the doctor's own event loop was late by as
    much nothing is told: the proxy may run on the same machine.

    nginx with proxy_buffering on fills a buffer of 4 or 8 KiB when the engine's answer has no chunks
    (HTTP/1.0 to the engine). The chunks of vLLM's uvicorn it passes on, but without TCP_NODELAY: they
    wait up to 40 ms, which tokens that are slower than that do not show (measured with 1.22).

    ## Fix safety
    Manual.
    """
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
