"""Requests for tokens: refused, failed, rejected, hidden errors, chats, wrong requests."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.checks.server_answer import from_gateway, gave_up
from infer_doctor.facts.server import Answers, Exchange, Models, ServerMetrics, Streamed
from infer_doctor.fixes.server import (
    answer_with_client_error,
    back_off,
    lengthen_gateway,
    read_server_log,
    set_chat_template,
    show_errors,
    turn_on_feature,
)
from infer_doctor.host import Unavailable
from infer_doctor.model import Confidence, Finding
from infer_doctor.registry import check


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
