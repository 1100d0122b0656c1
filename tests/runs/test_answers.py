"""Answers of servers that do not keep to the form, and what is asked of them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sick_server
from doctor_process import Run

from infer_doctor.runs.answers import Answers, ask, read, write
from infer_doctor.runs.endpoint import NoServer
from infer_doctor.runs.prompts import built_in
from infer_doctor.runs.quality import compare

PROMPTS = built_in()[:30]

Rule = Callable[[str, dict[str, Any]], "tuple[int, str] | None"]


def _say(connection: socket.socket, status: int, body: object) -> None:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode() + data)


@pytest.mark.parametrize(
    "choice",
    ["text", {"message": "text"}, {"message": {"content": "a"}, "logprobs": {"content": [{}]}}],
)
def test_another_form_is_no_answer(choice: object) -> None:
    def handler(connection: socket.socket, request: bytes) -> None:
        _say(connection, 200, {"choices": [choice]})

    with sick_server.serve(handler) as port, pytest.raises(NoServer, match="form of OpenAI"):
        ask(f"http://127.0.0.1:{port}", built_in()[:2], model="m")


def test_a_chat_that_fails_is_not_asked_as_a_completion() -> None:
    asked: list[bytes] = []

    def handler(connection: socket.socket, request: bytes) -> None:
        if not request:  # the way to it was tried
            return
        asked.append(request.split(b" ")[1])
        _say(connection, 503, {"error": "busy"})

    with sick_server.serve(handler) as port, pytest.raises(NoServer, match="busy"):
        ask(f"http://127.0.0.1:{port}", built_in()[:2], model="m")
    assert set(asked) == {b"/v1/models", b"/v1/chat/completions"}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    kept = tmp_path / "a.json"
    kept.write_text('{"form": 1, "name": "a", "model": "m", "answers": {}}')
    run = Run(tmp_path)("compare", str(kept), str(kept), "--keep", str(kept / "x"))
    assert run.returncode == 2 and "fault" not in run.stderr and str(kept) in run.stderr


def server(rule: Rule, asked: list[tuple[str, dict[str, Any]]]) -> sick_server.Handler:
    """Answers "a b" to whatever the rule lets pass, with log probabilities where they are asked for."""

    def handler(connection: socket.socket, request: bytes) -> None:
        if not request:
            return
        path = request.split(b" ")[1].decode()
        if path == "/v1/models":
            _say(connection, 200, {"data": [{"id": "m"}]})
            return
        body = json.loads(request.partition(b"\r\n\r\n")[2])
        refusal = rule(path, body)
        if refusal is not None:
            _say(connection, refusal[0], {"error": {"message": refusal[1]}})
            return
        asked.append((path, body))
        by_id = "return_tokens_as_token_ids" in body
        rows = [
            {"token": f"token_id:{n}" if by_id else word, "logprob": -0.1, "top_logprobs": []}
            for n, word in enumerate("ab")
        ]
        for row in rows:
            row["top_logprobs"] = [{"token": row["token"], "logprob": -0.1}]
        choice: dict[str, Any] = {"finish_reason": "stop"}
        if "messages" in body:
            choice["message"] = {"content": "ab"}
            choice["logprobs"] = {"content": rows} if body.get("logprobs") else None
        else:
            choice["text"] = "ab"
        _say(connection, 200, {"choices": [choice]})

    return handler


def ask_all(rule: Rule, score: Answers | None = None) -> tuple[Answers, set[str]]:
    asked: list[tuple[str, dict[str, Any]]] = []
    with sick_server.serve(server(rule, asked)) as port:
        found = ask(f"http://127.0.0.1:{port}", PROMPTS, score=score)
    return found, {path for path, _ in asked}


def everything(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return None


def one_too_long(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    said = "This model's maximum context length is 64 tokens."
    return (400, said) if PROMPTS[3].text in json.dumps(body, ensure_ascii=False) else None


def strict(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return (422, "Extra inputs are not permitted") if "return_token_ids" in body else None


def bare(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return (400, "no such thing here") if "logprobs" in body else None


def no_chat(path: str, body: dict[str, Any]) -> tuple[int, str] | None:
    return (400, "there is no template") if "messages" in body else None


def test_a_prompt_that_is_refused_changes_nothing_for_the_others() -> None:
    found, _ = ask_all(one_too_long)
    assert {row.prompt for row in found.rows.values() if row.error} == {PROMPTS[3].id}
    tokens = {row.tokens for row in found.rows.values() if not row.error}
    assert tokens == {("token_id:0", "token_id:1")}


@pytest.mark.parametrize(
    ("rule", "chat", "tokens"),
    [
        (everything, True, ("token_id:0", "token_id:1")),
        (strict, True, ("a", "b")),
        (bare, True, ()),
        (no_chat, False, ()),
    ],
)
def test_what_is_asked_for_is_what_the_server_takes(
    rule: Rule, chat: bool, tokens: tuple[str, ...]
) -> None:
    found, paths = ask_all(rule)
    assert found.chat is chat and len(paths) == 1
    assert {row.tokens for row in found.rows.values()} == {tokens}
    assert {row.text for row in found.rows.values()} == {"ab"}


def test_both_sides_answer_the_same_prompts() -> None:
    """A candidate is asked as the baseline was; one without a template is told."""
    chats, _ = ask_all(everything)
    texts, _ = ask_all(no_chat)
    asked_so, paths = ask_all(everything, score=texts)
    assert asked_so.chat is False and paths == {"/v1/completions"}
    worse = compare(PROMPTS, chats, texts)
    assert worse.verdict == "degraded" and "takes no chats" in worse.reasons[0]


def test_tokens_by_id_and_by_text_are_not_compared() -> None:
    one, _ = ask_all(everything)
    other, _ = ask_all(strict)
    found = compare(PROMPTS, one, other)
    assert found.verdict == "same" and found.divergence is None
    assert found.agreement is not None and found.agreement.value == 1.0


def test_answers_are_kept_whole(tmp_path: Path) -> None:
    found, _ = ask_all(one_too_long)
    write(found, str(tmp_path / "a.json"))
    assert read(str(tmp_path / "a.json")) == found
