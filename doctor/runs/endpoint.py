"""A server with OpenAI's API: the way to it, its key, its model, and which requests it takes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any

from infer_doctor.redact import mask_line
from infer_doctor.server import load
from infer_doctor.server.address import BadAddress, parse
from infer_doctor.server.connect import Route, reach
from infer_doctor.server.http import Answer
from infer_doctor.server.key import BadKey, Key, find
from infer_doctor.server.message import request
from infer_doctor.server.sse import error_text

CONNECT_S = 10.0

REFUSED = (401, 403)

NO_SUCH_API = (404, 405, 501)
"""Answers of a server that has no such path."""

WRONG_BODY = (400, 422)
"""Answers to a field that the server does not know, or to a chat with a model that has no template."""


class NoServer(Exception):
    """The server does not answer; the text says how."""


@dataclass(frozen=True)
class Endpoint:
    """What is needed to ask it. `key` is None where it asks for none."""

    route: Route
    key: Key | None
    model: str

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        return dict(self.key.headers) if self.key is not None else {}

    def get(self, path: str) -> bytes:
        """A request for a path beside the API, such as /metrics."""
        address = self.route.address
        return request("GET", address.root + path, address.authority, headers=self.headers)

    async def post(self, path: str, body: dict[str, Any], limit_s: float) -> Answer:
        """The answer to a body under the API."""
        address = self.route.address
        headers = {"Accept": "application/json", **self.headers}
        data = json.dumps(body).encode()
        wire = request("POST", address.api + path, address.authority, body=data, headers=headers)
        return await self.route.ask(wire, time.monotonic() + limit_s)


async def open_endpoint(url: str, model: str = "") -> Endpoint:
    """Reach it, and take its first model where none is named. Raises NoServer.

    A key that may belong to somebody else is sent only where the server refuses without one.
    """
    try:
        address = parse(url)
        key = find(address, None, os.environ)
    except (BadAddress, BadKey) as error:
        raise NoServer(str(error)) from None
    found, route = await reach(address, os.environ, time.monotonic() + CONNECT_S)
    if route is None:
        said = next((row.error for row in found.tried if row.error), found.name_error)
        raise NoServer(f"{address.url} does not answer: {said}")
    sent = key if key is not None and key.eager else None
    first, refusal = await _models(route, sent)
    if refusal and key is not None and sent is None:
        sent = key
        first, refusal = await _models(route, sent)
    if refusal and sent is not None and (other := sent.otherwise(refusal)) is not None:
        sent = other
        first, refusal = await _models(route, sent)
    if refusal and not model:
        how = f"the key of {sent.source} is refused" if sent else "it wants a key (VLLM_API_KEY)"
        raise NoServer(f"{address.url}: {how}")
    if not model and first is None:
        raise NoServer(f"{address.api}/models names no model")
    return Endpoint(route=route, key=sent, model=model or first or "")


async def _models(route: Route, key: Key | None) -> tuple[str | None, str]:
    """The first model that the server offers, and with what words it refuses to tell."""
    asked = Endpoint(route=route, key=key, model="")
    path = f"{route.address.api.removeprefix(route.address.root)}/models"
    answer = await route.ask(asked.get(path), time.monotonic() + CONNECT_S)
    if answer.status in REFUSED:
        return None, f"HTTP {answer.status} {answer.headers} {_said(answer)}"
    try:
        return str(json.loads(answer.body)["data"][0]["id"]), ""
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None, ""


async def way(endpoint: Endpoint, limit_s: float) -> load.Spec:
    """How streams are asked for here: completions or chats, exactly so many tokens or not, in which words.

    Completions first: they need no template. What is slow or busy was taken. Raises NoServer.
    """
    said = ""
    for chat in (False, True):
        spec = load.Spec(
            model=endpoint.model,
            requests=1,
            concurrency=1,
            api=endpoint.route.address.api,
            tokens=1,
            chat=chat,
            exact=True,
            key=endpoint.key,
        )
        path = spec.path.removeprefix(spec.api)
        while True:
            body = spec.body(0)
            answer = await endpoint.post(path, body, limit_s)
            if answer.status not in (*NO_SUCH_API, *WRONG_BODY):
                return replace(spec, exact="ignore_eos" in body)
            told = _said(answer)
            said = f"{path}: HTTP {answer.status} {told}".rstrip()
            if not spec.dialect.learn(body, answer.status, told):
                if answer.status in NO_SUCH_API or not spec.exact:
                    break
                spec = replace(spec, exact=False)
    raise NoServer(f"{endpoint.route.address.url} takes neither completions nor chats; {said}")


def _said(answer: Answer) -> str:
    try:
        told = error_text(json.loads(answer.body))
    except (ValueError, RecursionError):
        told = ""
    return mask_line(told or answer.reason)[:200]
