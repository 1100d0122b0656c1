"""Requests that a log shows refused or given up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.facts.log import EngineLog, Serving
from infer_doctor.fixes.log import cure
from infer_doctor.model import Category, Evidence, Finding
from infer_doctor.registry import check

LONGER = 4
"""Times the limit that was met: a proposal of ours. The log does not tell how long the answers that
were given up would have taken."""

MANY_REFUSED = 0.05
FEW_REFUSED = 10
"""Of all answers: below both clients err now and then; more is a client or flag that never works."""

WHO: dict[int, str] = {
    15: "Envoy's and Istio's route time-out",
    30: "gunicorn's worker time-out, and many clients'",
    50: "HAProxy's time-out server",
    60: "the read time-out of nginx, AWS and GCP load balancers",
    100: "Cloudflare's proxy",
    120: "many gateways'",
    300: "aiohttp's total time-out",
    600: "the OpenAI client's read time-out",
}
"""Seconds -> whose default that is (documentation of each, read 2026-11-30)."""

MEANING: dict[str, tuple[Category, str]] = {
    "400": ("client", "bad request"),
    "401": ("auth", "no or a wrong API key"),
    "403": ("auth", "forbidden"),
    "404": ("model_name", "wrong model name or path"),
    "413": ("client", "body too large"),
    "422": ("client", "a field that is not understood"),
    "429": ("queueing", "too many requests"),
    "500": ("wrapper_generic", "an error of the server: its traceback stands above the first"),
    "502": ("proxy", "bad gateway"),
    "503": ("queueing", "busy, or the engine is gone"),
    "504": ("request_timeout", "gateway time-out"),
}

ASKED = re.compile(r'"(?:GET|POST|PUT|HEAD|OPTIONS) (?P<path>/[^ ?"]*)')

BARE = ("/chat/completions", "/completions", "/embeddings", "/models", "/responses")
"""Paths of the OpenAI API without their /v1."""

MODEL = (
    "Give a name of GET /v1/models as model; when that is 404 too, this is the demo server: "
    "start with vllm serve"
)
KEY = "Send the header Authorization: Bearer KEY with the key of --api-key or VLLM_API_KEY"


def of_path(path: str) -> tuple[Category, str, str]:
    """Of a status 404: its category, what it means and what to do."""
    if path in BARE:
        return "client", f"{path} lacks its /v1", "End the client's base URL in /v1"
    if path.startswith("/v1/v1/"):
        return "client", "/v1 twice", "Take one /v1 out of the client's base URL"
    if path in ("/generate", "/generate_stream"):
        told = f"{path} is a path of the demo server, not of this one"
        return "client", told, "Send the request to /v1/completions or /v1/chat/completions"
    if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        told = "adapters cannot be loaded at run time, or this one was not found"
        return "launch_argument", told, "Start with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    if path.startswith("/v1/"):
        return (*MEANING["404"], MODEL)
    told = f"{path} is no path of this server"
    return "client", told, f"Find who asks for {path}; the API's paths begin with /v1/"


@check("log-requests-refused", severity="warning", category="client", since="0.2")
def requests_refused(log: EngineLog, serving: Serving) -> Iterator[Finding]:
    """Requests are refused.

    ## Why it matters
    A refused request looks like a broken server to its user; the reason stands only in the log.

    ## How it decides
    Answers with a status of 400 and above in the access log, by status, and the engine's own
    messages that name the reason (`effect = request` in the catalogue). A note below 5 % of all
    answers or below ten, a warning from there on, and where the log has no answers to compare with.

    ## Fix safety
    Manual: the client or the launch has to be changed.
    """
    refused = sum(serving.refused.values())
    share = refused / (refused + serving.served) if refused + serving.served else 1.0
    few = serving.served > 0 and (share < MANY_REFUSED or refused < FEW_REFUSED)
    for cause in log.requests:
        yield Finding(
            about=cause.signature,
            message=f"{cause.message} ({cause.count} line{'s' if cause.count > 1 else ''})"
            + (f". {cause.wrong}" if cause.wrong else ""),
            severity="info" if few else "warning",
            confidence=cause.confidence,
            category=cause.category,
            evidence=cause.evidence,
            fixes=cause.fixes,
        )
    if log.requests:
        return
    for status, count in sorted(serving.refused.items()):
        if status == "500" and (log.cause or log.unexplained):
            continue  # told with the engine's failure
        category, words = MEANING.get(status, ("client", "refused"))
        line = serving.refused_lines.get(status, Evidence(source=serving.source))
        advice = KEY if status == "401" else None
        if status == "404" and (asked := ASKED.search(line.excerpt)):
            category, words, advice = of_path(asked["path"])
        yield Finding(
            about=f"status {status}",
            message=f"{count:,} of {refused + serving.served:,} answers have status {status} ({words})",
            severity="info" if few else "warning",
            category=category,
            evidence=(line,),
            fixes=(replace(cure(f"request-{status}", advice), restarts=False),) if advice else (),
        )


@check("log-requests-aborted", severity="warning", category="request_timeout", since="0.2")
def requests_aborted(serving: Serving) -> Iterator[Finding]:
    """Clients give up before their answers are complete.

    ## Why it matters
    The engine worked for nothing, the client sees a time-out and often tries again, which makes the
    queue longer.

    ## How it decides
    "Aborted request" lines. With the lines of their arrival (--enable-log-requests) the time that
    each had waited is known; three or more within a second of a round number are a time-out of a
    client or proxy, and the number tells whose default it is. Other aborts are a note.

    ## Fix safety
    Manual: the time-out lies in the client or proxy.
    """
    burst = serving.aborts
    if burst is None:
        return
    if burst.seconds is None:
        yield Finding(
            about="aborted requests",
            message=f"{burst.count:,} request{'s were' if burst.count > 1 else ' was'} given up by "
            "the client; how long they had waited is not in the log",
            severity="info",
            confidence="possible",
            evidence=(burst.evidence,),
            fixes=(
                cure(
                    "client-timeout",
                    "Compare the client's and proxy's read time-out with the longest answer",
                    why="the engine aborts when the connection is closed; start with "
                    "--enable-log-requests to see how long each had waited",
                ),
            ),
        )
        return
    whose = WHO.get(burst.seconds)
    longer = burst.seconds * LONGER
    yield Finding(
        about="aborted requests",
        message=f"{burst.count:,} requests were given up {burst.seconds} s after they came"
        + (f": {whose} is {burst.seconds} s" if whose else ", a round number: a client or proxy"),
        confidence="likely",
        evidence=(burst.evidence,),
        fixes=(
            cure(
                "client-timeout",
                f"Raise the read time-out of {burst.seconds} s to {longer} s, or stream the answers",
                text=f"nginx: proxy_read_timeout {longer}s; OpenAI client: timeout={longer}",
            ),
        ),
    )
