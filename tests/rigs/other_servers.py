"""Servers of other engines, gateways and services, as their public documentation shows their answers.

Each is a handler for `sick_server.serve`. What they have in common is `Api`; each states only what it
answers otherwise.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sick_server import Handler, answer, path_of

JSON = "Content-Type: application/json"
Reply = tuple[str, Any]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """An event of a streamed chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


USAGE = {"prompt_tokens": 8, "completion_tokens": 3, "total_tokens": 11}
WORDS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "one"}),
    chunk({"content": " two"}),
    chunk({}, "stop"),
    {"choices": [], "usage": USAGE},
]


def events(*rows: dict[str, Any], end: str = "\n\n", done: str = "data: [DONE]") -> str:
    """A body of server-sent events."""
    parts = [f"data: {json.dumps(row)}" for row in rows]
    return end.join([*parts, *([done] if done else [])]) + end


def chat_of(message: dict[str, Any], finish: str = "stop") -> dict[str, Any]:
    """A whole chat."""
    full = {"role": "assistant", **message}
    choice = {"index": 0, "message": full, "finish_reason": finish}
    return {"object": "chat.completion", "choices": [choice], "usage": USAGE}


def error(message: str, **more: Any) -> dict[str, Any]:
    """OpenAI's form."""
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def refuses(*names: str, said: str = "Unrecognized request argument supplied: {}") -> Any:
    """A rule: 400 for a request that holds one of these fields."""

    def rule(body: dict[str, Any]) -> Reply | None:
        found = next((name for name in names if name in body), None)
        return None if found is None else ("400 Bad Request", error(said.format(found)))

    return rule


def no_negative_temperature(body: dict[str, Any]) -> Reply | None:
    """As all of them check it."""
    if body.get("temperature", 0) < 0:
        return "400 Bad Request", error("temperature must be between 0 and 2")
    return None


@dataclass
class Api:
    """What a server answers: fixed replies by path, and chats, completions and streams."""

    models: Any = field(default_factory=lambda: [{"id": "m", "object": "model"}])
    stream: str = events(*WORDS)
    chat: Any = field(default_factory=lambda: chat_of({"content": "one"}))
    completion: Any = field(default_factory=lambda: {"choices": [{"text": "one"}]})
    prefix: str = "/v1"
    fixed: dict[str, Reply] = field(default_factory=dict)
    rules: tuple[Callable[[dict[str, Any]], Reply | None], ...] = (no_negative_temperature,)
    headers: tuple[str, ...] = ()
    key: tuple[str, str] | None = None
    refusal: Reply = ("401 Unauthorized", {"error": "Unauthorized"})
    query: str = ""
    """Without which nothing is found."""
    padding: str = ""
    """Before every answer of JSON."""
    open: tuple[str, ...] = ()
    """Paths that need no key."""

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        status, found = self.reply(path_of(request), head, json.loads(body or b"{}"))
        if isinstance(found, str):
            kind = "text/event-stream" if "data:" in found else "text/plain"
            parts = [f"Content-Type: {kind}", *self.headers]
            connection.sendall(answer(status, found.encode(), *parts))
            return
        text = self.padding + json.dumps(found)
        connection.sendall(answer(status, text.encode(), JSON, *self.headers))

    def reply(self, path: str, head: bytes, body: dict[str, Any]) -> Reply:
        """Status and body."""
        if self.key is not None and path not in self.open:
            name, value = self.key
            if f"{name}: {value}".lower() not in head.decode().lower():
                return self.refusal
        if not path.endswith(self.query):
            return "404 Not Found", error("Resource not found")
        path = path.removesuffix(self.query)
        if path in self.fixed:
            return self.fixed[path]
        if path == f"{self.prefix}/models":
            return "200 OK", {"object": "list", "data": self.models}
        for rule in self.rules if body else ():
            if (refused := rule(body)) is not None:
                return refused
        if path == f"{self.prefix}/chat/completions":
            return "200 OK", self.stream if body.get("stream") else self.chat
        if path == f"{self.prefix}/completions":
            return "200 OK", self.completion
        return "404 Not Found", {"detail": "Not Found"}


@dataclass
class Slow(Api):
    """Streams its tokens one by one, as an engine does."""

    tokens: int = 60
    apart_s: float = 0.01
    first_s: float = 0.0
    """Before the first token."""
    head_s: float = 0.0
    """Before the headers."""
    chunked: bool = True
    """Otherwise the end of the connection is the end of the answer, as for HTTP/1.0."""

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        body = request.partition(b"\r\n\r\n")[2]
        if b'"stream":true' not in body:
            super().__call__(connection, request)
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(self.head_s)
        how = b"Transfer-Encoding: chunked" if self.chunked else b"Connection: close"
        kind = b"Content-Type: text/event-stream\r\n" + how + b"\r\n\r\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\n" + kind)
        time.sleep(self.first_s)
        for number in range(self.tokens):
            self._send(connection, events(chunk({"content": f"{number}"}), done=""))
            time.sleep(self.apart_s)
        self._send(connection, events(chunk({}, "length")))
        connection.sendall(b"0\r\n\r\n" if self.chunked else b"")

    def _send(self, connection: socket.socket, text: str) -> None:
        data = text.encode()
        connection.sendall(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)


@dataclass
class Stops(Api):
    """Answers until it is asked for a stream, and then nothing more, as a process that is stopped."""

    stopped: bool = False

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        self.stopped = self.stopped or b'"stream":true' in request
        if self.stopped:
            time.sleep(30)
            return
        super().__call__(connection, request)


@dataclass
class Counting(Api):
    """Counts the requests for tokens; refuses those after the first ones, as a gateway with a limit."""

    allowed: int = 0
    every: int = 1
    """Which of those after the first ones is refused."""
    posts: int = 0

    def reply(self, path: str, head: bytes, body: dict[str, Any]) -> Reply:
        """429 when the limit is reached."""
        self.posts += bool(body)
        if body and self.posts > self.allowed and self.posts % self.every == 0:
            return "429 Too Many Requests", error("Rate limit reached")
        return super().reply(path, head, body)


GONE: Reply = ("404 Not Found", "404 page not found")

THOUGHTS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "let"}),
    chunk({"reasoning_content": " me"}),
    chunk({"content": ""}, "length"),
    {"choices": [], "usage": USAGE},
]

HEALTHY: dict[str, Handler] = {
    "plain": Api(),
    "ollama": Api(
        models=[
            {"id": "nomic-embed-text:latest", "object": "model", "owned_by": "library"},
            {"id": "llama3.2:latest", "object": "model", "owned_by": "library"},
        ],
        fixed={"/health": GONE, "/metrics": GONE},
        stream=events(
            chunk({"role": "assistant", "content": "one"}),
            chunk({"role": "assistant", "content": " two"}),
            chunk({"role": "assistant", "content": ""}, "stop"),
            {"choices": [], "usage": USAGE},
        ),
    ),
    "llama.cpp": Api(
        models=[{"id": "/models/m.gguf", "object": "model", "owned_by": "llamacpp", "meta": {}}],
        fixed={
            "/health": ("200 OK", {"status": "ok"}),
            "/metrics": (
                "501 Not Implemented",
                error("This server does not support metrics endpoint. Start it with `--metrics`"),
            ),
        },
        headers=("Server: llama.cpp",),
    ),
    "tgi": Api(
        models=[{"id": "org/m", "object": "model", "owned_by": "org/m"}],
        fixed={
            "/health": ("200 OK", ""),
            "/metrics": ("200 OK", "# TYPE tgi_queue_size gauge\ntgi_queue_size 0\n"),
        },
        rules=(no_negative_temperature, refuses("ignore_eos")),
        stream=events(
            chunk({"role": "assistant", "content": "one"}),
            chunk({"role": "assistant", "content": " two"}, "length"),
        ),
    ),
    "sglang": Api(
        models=[{"id": "org/m", "owned_by": "sglang", "root": "org/m", "max_model_len": 4096}],
        fixed={
            "/health": ("200 OK", ""),
            "/metrics": (
                "200 OK",
                '# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs{model="m"} 0.0\n',
            ),
        },
    ),
    "litellm": Api(
        models=[
            {"id": name, "object": "model", "created": 1677610602, "owned_by": "openai"}
            for name in ("text-embedding-3-small", "openai/*", "chat-large", "chat-small")
        ],
        key=("Authorization", "Bearer sk-own-0123456789abcdef"),
        open=("/metrics",),
        fixed={"/metrics": ("404 Not Found", {"detail": "Not Found"})},
        refusal=(
            "401 Unauthorized",
            error("Authentication Error, No api key passed in.", code="401"),
        ),
    ),
    "newer openai": Api(
        rules=(
            no_negative_temperature,
            refuses(
                "max_tokens",
                said="Unsupported parameter: '{}' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
            ),
        ),
        fixed={"/v1/completions": ("404 Not Found", error("This is a chat model"))},
        stream=events(chunk({"role": "assistant", "content": ""}), chunk({}, "length")),
        chat=chat_of({"content": ""}, "length"),
    ),
    "mistral": Api(
        rules=(
            no_negative_temperature,
            lambda body: (
                (
                    "422 Unprocessable Entity",
                    {
                        "object": "error",
                        "message": {
                            "detail": [
                                {
                                    "type": "extra_forbidden",
                                    "loc": ["body", "stream_options"],
                                    "msg": "Extra inputs are not permitted",
                                }
                            ]
                        },
                    },
                )
                if "stream_options" in body
                else None
            ),
        ),
    ),
    "azure": Api(
        prefix="/openai/v1",
        key=("api-key", "sk-own-0123456789abcdef"),
        refusal=("401 Unauthorized", error("Access denied: the header api-key is missing")),
        stream=events({"choices": [], "prompt_filter_results": [{}]}, *WORDS),
    ),
    "azure deployment": Api(
        prefix="/openai/deployments/gpt",
        query="?api-version=2024-10-21",
        fixed={"/openai/deployments/gpt/models": ("404 Not Found", error("Resource not found"))},
    ),
    "anthropic key": Api(
        key=("x-api-key", "sk-own-0123456789abcdef"),
        refusal=(
            "401 Unauthorized",
            {
                "type": "error",
                "error": {
                    "type": "authentication_error",
                    "message": "x-api-key header is required",
                },
            },
        ),
    ),
    "together": Api(fixed={"/v1/models": ("200 OK", [{"id": "org/m", "type": "chat"}])}),
    "reasoning": Api(
        stream=events(*THOUGHTS), chat=chat_of({"content": None, "reasoning_content": "let"})
    ),
    "all thoughts hidden": Api(
        stream=events(
            chunk({"role": "assistant", "content": ""}),
            chunk({"role": "assistant", "content": ""}, "length"),
            {"choices": [], "usage": USAGE},
        ),
    ),
    "tool model": Api(
        stream=events(
            chunk({"role": "assistant", "content": None}),
            chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}),
            chunk({}, "tool_calls"),
        ),
        chat=chat_of({"content": None, "tool_calls": []}, "tool_calls"),
    ),
    "no usage": Api(stream=events(*WORDS[:-1])),
    "no [DONE]": Api(stream=events(*WORDS, done="")),
    "no blank after data": Api(stream=events(*WORDS).replace("data: ", "data:")),
    "carriage returns": Api(stream=events(*WORDS, end="\r\n\r\n")),
    "comments": Api(stream=": ping\n\n" + events(*WORDS).replace("data:", "event: x\ndata:")),
    "no last newline": Api(stream=events(*WORDS).rstrip("\n")),
    "data of several lines": Api(
        stream="".join(
            "".join(f"data: {line}\n" for line in json.dumps(row, indent=1).splitlines()) + "\n"
            for row in WORDS
        )
        + "data: [DONE]\n\n"
    ),
    "blanks before JSON": Api(padding="\n\n \n"),
    "byte order mark": Api(padding="\ufeff"),
    "nim": Api(
        fixed={
            "/v1/metrics": (
                "200 OK",
                '# TYPE num_requests_running gauge\nnum_requests_running{model_name="m"} 0.0\n'
                'generation_tokens_total{model_name="m"} 40.0\n',
            ),
            "/v1/health/ready": ("200 OK", {"object": "health.response", "message": "ready"}),
        }
    ),
    "embeddings": Api(
        models=[{"id": "m", "owned_by": "vllm", "max_model_len": 512}],
        fixed={
            "/v1/chat/completions": ("404 Not Found", {"detail": "Not Found"}),
            "/v1/completions": ("404 Not Found", {"detail": "Not Found"}),
            "/v1/embeddings": ("200 OK", {"data": [{"embedding": [0.1]}], "usage": USAGE}),
        },
    ),
    "model in a home folder": Api(
        models=[{"id": "/home/someone/models/m", "owned_by": "vllm"}],
        rules=(
            no_negative_temperature,
            lambda body: (
                ("404 Not Found", error(f"The model `{body['model']}` does not exist."))
                if body["model"] != "/home/someone/models/m"
                else None
            ),
        ),
    ),
}

NGINX_PAGE = "<html><head><title>{0}</title></head><body><h1>{0}</h1></body></html>"
HAPROXY_PAGE = "<html><body><h1>{0}</h1>\n{1}\n</body></html>\n"
NO_SERVER = "No server is available to handle this request."


def everywhere(status: str, body: Any, *headers: str) -> Handler:
    """The same answer to every request."""

    def handler(connection: socket.socket, request: bytes) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        connection.sendall(answer(status, data, f"Content-Type: {kind}", *headers))

    return handler


def raw(data: bytes) -> Handler:
    """These bytes, whatever was asked."""

    def handler(connection: socket.socket, request: bytes) -> None:
        connection.sendall(data)

    return handler


SETTINGS = bytes.fromhex("000012040000000000000300000064000400100000000600004000")
"""The first frame of a gRPC server."""

SICK: dict[str, tuple[Handler, str | None, str]] = {
    "haproxy without a server": (
        everywhere("503 Service Unavailable", HAPROXY_PAGE.format("503", NO_SERVER)),
        "server-gateway-failed",
        "haproxy answers 503",
    ),
    "traefik without a server": (
        everywhere("503 Service Unavailable", "no available server\n"),
        "server-gateway-failed",
        "traefik answers 503",
    ),
    "a gateway without a name": (
        everywhere("502 Bad Gateway", "Bad Gateway"),
        "server-gateway-failed",
        "a gateway answers 502",
    ),
    "llama.cpp that loads": (
        everywhere(
            "503 Service Unavailable",
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
            "Server: llama.cpp",
        ),
        "server-health-failing",
        "not ready: Loading model",
    ),
    "an engine that is dead behind nginx": (
        Api(fixed={"/health": ("503 Service Unavailable", "")}, headers=("Server: nginx/1.22.1",)),
        "server-health-failing",
        "not alive",
    ),
    "basic authentication": (
        everywhere(
            "401 Unauthorized", NGINX_PAGE.format("401"), 'WWW-Authenticate: Basic realm="x"'
        ),
        "server-key-missing",
        "user and password (Basic)",
    ),
    "a stream in one piece": (
        Api(stream=json.dumps(chat_of({"content": "one"}))),
        "server-stream-broken",
        "in one piece",
    ),
    "a stream of garbage": (
        Api(stream="data: {broken\n\ndata: {also\n\n"),
        "server-stream-broken",
        "events that are no JSON: {broken",
    ),
    "an error in a stream": (
        Api(stream=events(WORDS[0], WORDS[1], {"error": {"message": "engine died", "code": 500}})),
        "server-error-hidden",
        "engine died",
    ),
    "a stream without an end": (
        Api(stream=events(*WORDS[:3], done="")),
        "server-stream-broken",
        "no finish_reason",
    ),
    "nothing but [DONE]": (Api(stream="data: [DONE]\n\n"), None, ""),
    "one of several models is refused": (
        Api(
            models=[{"id": "a"}, {"id": "b"}],
            rules=(lambda body: ("400 Bad Request", error("no such deployment")),),
        ),
        None,
        "",
    ),
    "a model for scores": (
        Api(
            rules=(
                lambda body: (
                    "400 Bad Request",
                    error("The model does not support Chat Completions API"),
                ),
            )
        ),
        None,
        "",
    ),
    "only Anthropic's API": (
        Api(
            fixed={
                "/v1/chat/completions": ("404 Not Found", error("Not found")),
                "/v1/completions": ("404 Not Found", error("Not found")),
                "/v1/embeddings": ("404 Not Found", error("Not found")),
            }
        ),
        "server-request-refused",
        "/v1/chat/completions",
    ),
    "gRPC": (raw(SETTINGS), "server-answer-broken", "HTTP/2"),
    "HTTP/0.9": (raw(b"<html>hello</html>"), "server-answer-broken", "no HTTP"),
    "interim answers without an end": (
        raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        "server-answer-broken",
        "interim",
    ),
    "two lengths": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}}"),
        "server-answer-broken",
        "Content-Length",
    ),
    "a negative length": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"),
        "server-answer-broken",
        "Content-Length",
    ),
    "an encoding that nobody offered": (
        Api(headers=("Content-Encoding: br",)),
        "server-answer-broken",
        "Content-Encoding: br",
    ),
    "no gzip although it says so": (
        Api(headers=("Content-Encoding: gzip",)),
        "server-answer-broken",
        "cannot be unpacked",
    ),
}
