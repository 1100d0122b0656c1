"""Which requests a server takes, and which key it gets."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sick_server
from doctor_process import Run

from infer_doctor.runs.ramp import Wanted, measure

MODELS = {"data": [{"id": "m"}]}


def say(connection: socket.socket, status: int, body: object) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode() + data)


def stream(connection: socket.socket, tokens: int) -> None:
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    )
    for number in range(tokens):
        choice = {"index": 0, "text": " a", "delta": {"content": " a"}, "finish_reason": None}
        if number == tokens - 1:
            choice["finish_reason"] = "length"
        connection.sendall(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    usage = {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 1}}
    connection.sendall(b"data: " + json.dumps(usage).encode() + b"\n\ndata: [DONE]\n\n")


Rule = Callable[[str, dict[str, Any]], "tuple[int, str] | None"]


def api(rule: Rule, asked: list[tuple[str, dict[str, Any]]]) -> sick_server.Handler:
    """A server that refuses by a rule and else answers as many tokens as are wanted."""

    def handler(connection: socket.socket, request: bytes) -> None:
        if not request:  # the way to it was tried
            return
        head, _, data = request.partition(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        body = json.loads(data) if data else {}
        if path == "/v1/models":
            say(connection, 200, MODELS)
        elif not path.startswith("/v1/"):
            say(connection, 404, {"error": "no such page"})
        elif (refusal := rule(path, body)) is not None:
            say(connection, refusal[0], {"error": {"message": refusal[1]}})
        else:
            asked.append((path, body))
            stream(connection, body.get("max_tokens") or body["max_completion_tokens"])

    return handler


def everything(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return None


def chat_only(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    """As hosted APIs do."""
    if path != "/v1/chat/completions":
        return 404, "Unknown request URL"
    return (400, "Unrecognized request argument: ignore_eos") if "ignore_eos" in body else None


def newer(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    """As OpenAI's newer models do."""
    if "max_tokens" in body:
        return 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    return chat_only(path, body)


def no_template(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return None if path == "/v1/completions" else (400, "chat template is not defined")


@pytest.mark.parametrize(
    ("rule", "path", "exact"),
    [
        (everything, "/v1/completions", True),
        (chat_only, "/v1/chat/completions", False),
        (newer, "/v1/chat/completions", False),
        (no_template, "/v1/completions", True),
    ],
)
def test_the_ramp_asks_what_the_server_takes(rule: Rule, path: str, exact: bool) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    with sick_server.serve(api(rule, asked)) as port:
        found = measure(f"http://127.0.0.1:{port}", Wanted(most=4, tokens=8, limit_s=60))
    assert {row[0] for row in asked} == {path}
    assert all(("ignore_eos" in body) == exact for _, body in asked)
    assert found.broken is None and found.safe == 4
    assert [row.requests for row in found.steps] == [2, 4, 8]


def test_a_server_that_takes_nothing_is_told_with_its_words(tmp_path: Path) -> None:
    def nothing(path: str, body: dict[str, Any]) -> tuple[int, str]:
        return 404, f"no {path} here"

    with sick_server.serve(api(nothing, [])) as port:
        run = Run(tmp_path)("reproduce", "timeout", f"http://127.0.0.1:{port}")
    assert run.returncode == 2
    assert "takes neither completions nor chats" in run.stderr
    assert "no /v1/chat/completions here" in run.stderr


@pytest.mark.parametrize(
    ("variable", "at_once"), [("OPENAI_API_KEY", False), ("VLLM_API_KEY", True)]
)
def test_a_key_of_somebody_else_is_sent_only_where_it_is_wanted(
    variable: str, at_once: bool, tmp_path: Path
) -> None:
    """A server that wants a key, and one that does not."""
    for wants in (True, False):
        keys: list[bool] = []
        inner = api(everything, [])

        def handler(
            connection: socket.socket,
            request: bytes,
            wants: bool = wants,
            keys: list[bool] = keys,
            inner: sick_server.Handler = inner,
        ) -> None:
            if request:
                keys.append(b"Bearer sk-somebody" in request)
            if request and wants and not keys[-1]:
                say(connection, 401, {"error": {"message": "a key, please"}})
            else:
                inner(connection, request)

        run = Run(tmp_path, {variable: "sk-somebody"})
        with sick_server.serve(handler) as port:
            done = run("reproduce", "timeout", f"http://127.0.0.1:{port}", "--most", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert any(keys) == (wants or at_once)
        assert keys[0] == at_once and (all(keys[1:]) or not wants)


def test_a_refused_key_is_named(tmp_path: Path) -> None:
    def handler(connection: socket.socket, request: bytes) -> None:
        if request:
            say(connection, 401, {"error": "no"})

    with sick_server.serve(handler) as port:
        url = f"http://127.0.0.1:{port}"
        with_key = Run(tmp_path, {"VLLM_API_KEY": "sk-wrong"})("reproduce", "timeout", url)
        without = Run(tmp_path)("reproduce", "timeout", url)
    assert with_key.returncode == 2 and "the key of VLLM_API_KEY is refused" in with_key.stderr
    assert without.returncode == 2 and "it wants a key" in without.stderr
    assert "sk-wrong" not in with_key.stdout + with_key.stderr


@pytest.mark.parametrize(("most", "steps"), [(1, [1]), (3, [1, 2, 3]), (4, [1, 2, 4])])
def test_the_ramp_goes_as_far_as_was_asked(most: int, steps: list[int]) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    with sick_server.serve(api(everything, asked)) as port:
        found = measure(f"http://127.0.0.1:{port}", Wanted(most=most, tokens=2))
    assert [row.concurrency for row in found.steps] == steps and found.safe == most
    assert len(asked) == 1 + 2 * sum(steps)  # the way, and no more than two for each
