"""Answers of servers that do not keep to the form, and what is asked of them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import sick_server
from doctor_process import Run

from infer_doctor.runs.answers import ask
from infer_doctor.runs.endpoint import NoServer
from infer_doctor.runs.prompts import built_in


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
