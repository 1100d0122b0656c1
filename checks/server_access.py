"""Who is let in, and under which name: keys, gateways, paths, models."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.checks.server_answer import wants_tls
from infer_doctor.facts.server import Answers, Exchange, Models
from infer_doctor.fixes.server import (
    ask_other_path,
    ask_without_password,
    give_key,
    name_model,
    see_gateway_rules,
)
from infer_doctor.model import Finding
from infer_doctor.registry import check


def _refused(answers: Answers, status: int) -> Exchange | None:
    """The last answer of this status that no later success of the same name has replaced."""
    row = next((one for one in reversed(answers.exchanges) if _of_api(one, status)), None)
    if row is None:
        return None
    later = answers.get(row.name)
    return None if later is not None and later.fine else row


def _of_api(row: Exchange, status: int) -> bool:
    """Whether this refusal is one of the API and not of /health or /metrics."""
    return row.status == status and (row.name == "models" or row.method == "POST")


def _basic(row: Exchange) -> bool:
    return row.challenge.lower().startswith("basic")


@check("server-key-missing", severity="error", category="auth", since="0.2")
def key_missing(answers: Answers) -> Iterator[Finding]:
    """The server wants a key and none was given.

    ## Why it matters
    Every request under /v1 is refused; /health and /metrics of vLLM need no key, so a probe of the
    platform stays green.

    ## How it decides
    Status 401 and no key in --key-file, VLLM_API_KEY, OPENAI_API_KEY or the like. vLLM answers
    {"error":"Unauthorized"} under /v1 when it was started with --api-key or VLLM_API_KEY.

    ## Fix safety
    Manual.
    """
    row = _refused(answers, 401)
    if row is None or answers.key_source is not None:
        return
    what = "user and password (Basic)" if _basic(row) else "a key"
    yield Finding(
        about=answers.url,
        message=f"{row.method} {row.path} is refused with 401: the server wants {what}, and none was "
        "given",
        evidence=(row.evidence,),
        fixes=(ask_without_password(answers.gateway) if _basic(row) else give_key(None),),
    )


@check("server-key-wrong", severity="error", category="auth", since="0.2")
def key_wrong(answers: Answers) -> Iterator[Finding]:
    """The server refuses the key.

    ## Why it matters
    Every request under /v1 is refused; health checks, which need no key, stay green.

    ## How it decides
    Status 401 although a key was sent as "Authorization: Bearer", or in the header that the refusal
    names (x-api-key, api-key). The source of the key is named, never the key. A refusal that asks for
    Basic wants user and password instead of a key.

    ## Fix safety
    Manual.
    """
    row = _refused(answers, 401)
    if row is None or answers.key_source is None or not row.keyed:
        return
    why = "is not the server's"
    if _basic(row):
        why = "was sent as Bearer, and user and password are wanted (Basic)"
    yield Finding(
        about=answers.url,
        message=f"{row.method} {row.path} is refused with 401: the key of {answers.key_source} {why}",
        evidence=(row.evidence,),
        fixes=(
            ask_without_password(answers.gateway) if _basic(row) else give_key(answers.key_source),
        ),
    )


@check("server-forbidden", severity="error", category="auth", since="0.2")
def forbidden(answers: Answers) -> Iterator[Finding]:
    """A gateway forbids the request: 403.

    ## Why it matters
    vLLM and trtllm-serve never answer 403: a gateway, a web application firewall or a service mesh
    does, by address, path, key or content, before the engine sees the request.

    ## How it decides
    Status 403 for a request under /v1.

    ## Fix safety
    Manual.
    """
    row = _refused(answers, 403)
    if row is None:
        return
    who = answers.gateway or "a gateway"
    yield Finding(
        about=answers.url,
        message=f"{who} forbids {row.method} {row.path} (403): {row.said or 'without a reason'}",
        evidence=(row.evidence,),
        fixes=(see_gateway_rules(who),),
    )


@check("server-api-missing", severity="error", category="client", since="0.2")
def api_missing(answers: Answers) -> Iterator[Finding]:
    """There is no OpenAI API under /v1 at this address.

    ## Why it matters
    Clients get 404 for every request. A base URL that lacks /v1 or has one too many, a proxy that
    cuts the prefix, another service, or a Triton without its OpenAI front end.

    ## How it decides
    GET /v1/models is 404 or another 4xx than 401, 403 and 429, no request for tokens came through,
    and this is no Triton that answers under /v2. GET /models, one step higher, tells whether only the prefix is wrong.

    ## Fix safety
    Manual.
    """
    models = answers.get("models")
    if models is None or models.status is None or not 400 <= models.status < 500:
        return
    if models.status in (401, 403, 429) or wants_tls(answers):
        return
    if any(row.fine for row in answers.heavy) or _is_triton(answers):
        return
    bare = answers.get("models-bare")
    found = bare is not None and bare.fine
    more = f"; GET {bare.path} is there" if bare is not None and found else ""
    yield Finding(
        about=answers.url,
        message=f"GET {models.path} is {models.status}: no OpenAI API there{more}",
        evidence=tuple(row.evidence for row in answers.exchanges if row.status is not None)[:4],
        fixes=(ask_other_path(answers.url, models.path, bare.path if bare and found else None),),
    )


def _is_triton(answers: Answers) -> bool:
    row = answers.get("triton-ready")
    return row is not None and row.status is not None


@check("server-model-unknown", severity="error", category="model_name", since="0.2")
def model_unknown(models: Models, answers: Answers) -> Iterator[Finding]:
    """The server does not offer the model that is asked for.

    ## Why it matters
    Every request is refused with 404. The name in a request is that of --served-model-name, else the
    path or id exactly as the server was started with.

    ## How it decides
    The name of --model is not in the list of /v1/models, or the server says so itself. The nearest
    offered name is that with the same last part, else the most similar one.

    ## Fix safety
    Manual.
    """
    asked = models.asked
    if asked is None or asked in models.offered:
        return
    refused = next((row for row in answers.heavy if row.status == 404), None)
    if not models.offered and (refused is None or "model" not in refused.said.lower()):
        return
    if any(row.fine for row in answers.heavy):
        return  # a gateway that knows more names than it lists
    others = ", ".join(models.offered[:3]) or "nothing"
    yield Finding(
        about=asked,
        message=f"the server does not offer {asked}; it offers {others}",
        evidence=(models.evidence, *((refused.evidence,) if refused else ())),
        fixes=(name_model(asked, models.nearest),),
    )


@check("server-models-none", severity="warning", category="model_name", since="0.2")
def models_none(models: Models) -> Iterator[Finding]:
    """The list of models is empty.

    ## Why it matters
    A gateway without an engine behind it, or one whose key may use none: no request can work.

    ## How it decides
    GET /v1/models answers with an empty list.

    ## Fix safety
    Manual.
    """
    if models.offered or models.asked is not None:
        return
    yield Finding(
        about="/v1/models",
        message="the server offers no model: the list of /v1/models is empty",
        evidence=(models.evidence,),
    )
