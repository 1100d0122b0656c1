"""What says nothing about a model's answers is no verdict on them."""

from __future__ import annotations

import dataclasses
import json
import socket
from pathlib import Path

import pytest
import sick_server
from doctor_process import Run

from infer_doctor.runs import answers as asking
from infer_doctor.runs.answers import Answer, Answers, ask, read, write
from infer_doctor.runs.prompts import built_in
from infer_doctor.runs.quality import compare

PROMPTS = built_in()
LETTERS = 30


def said(connection: socket.socket, status: int, body: object, *headers: str) -> None:
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}", "Connection: close", *headers]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + data)


class Server:
    """Answers by turns of a rule: None is an answer, else a status and headers; "cut" ends within one."""

    def __init__(self, *rules: tuple[int, str] | str | None, message: object = None) -> None:
        self.rules, self.asked = rules, 0
        self.message = message or {"content": "abc"}

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        if not request:
            return
        if b"/models" in request.split(b"\r\n")[0]:
            said(connection, 200, {"data": [{"id": "m"}]})
            return
        rule = self.rules[self.asked % len(self.rules)] if self.asked else None
        self.asked += 1
        if rule == "cut":
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"choices": ')
        elif isinstance(rule, tuple):
            said(connection, rule[0], {"error": {"message": "not now"}}, *filter(None, [rule[1]]))
        else:
            choice = {"finish_reason": "length", "message": self.message}
            said(connection, 200, {"choices": [choice]})


def recorded(server: Server) -> Answers:
    with sick_server.serve(server) as port:
        return ask(f"http://127.0.0.1:{port}", PROMPTS[:40])


@pytest.mark.parametrize("rule", [(503, ""), (502, ""), "cut"])
def test_a_server_that_is_away_is_no_worse(rule: tuple[int, str] | str) -> None:
    one, other = recorded(Server(None)), recorded(Server(None, rule))
    lost = [row for row in other.rows.values() if row.error]
    assert len(lost) >= 10 and all(row.passing for row in lost)
    for found in (compare(PROMPTS[:40], one, other), compare(PROMPTS[:40], other, one)):
        assert found.verdict == "cannot-tell", found
        assert f"{len(lost)} of 40 prompts got no answer" in found.gaps[0]


def test_a_request_that_fails_by_itself_is_worse() -> None:
    one, other = recorded(Server(None)), recorded(Server(None, (500, "")))
    found = compare(PROMPTS[:40], one, other)
    assert found.verdict == "degraded" and "prompts failed: not now" in found.reasons[0]


def test_who_is_told_to_come_again_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "BACK_OFF_S", 0.01)
    for rule in ((429, ""), (429, "Retry-After: 0"), (503, "Retry-After: 0")):
        found = recorded(Server(None, rule))
        assert not [row for row in found.rows.values() if row.error], rule


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota of a day, and an hour that is asked for."""
    monkeypatch.setattr(asking, "BACK_OFF_S", 0.01)
    monkeypatch.setattr(asking, "PATIENCE_S", 0.05)
    for rule in ((429, ""), (429, "Retry-After: 3600")):
        found = recorded(Server(None, rule, rule, rule, rule, rule, rule, rule, rule))
        assert [row for row in found.rows.values() if row.passing], rule


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_are_answers(name: str) -> None:
    """With few tokens a reasoning model writes nothing else."""
    one = recorded(Server(None, message={"content": None, name: "it is a question of"}))
    other = recorded(Server(None, message={"content": None, name: "of question a is it"}))
    assert compare(PROMPTS[:40], one, one).verdict == "same"
    assert compare(PROMPTS[:40], one, other).verdict == "cannot-tell"
    broken = recorded(Server(None, message={"content": None, name: "!" * 40}))
    assert compare(PROMPTS[:40], one, broken).verdict == "degraded"


def test_two_that_say_nothing_are_not_the_same() -> None:
    silent = recorded(Server(None, message={"content": ""}))
    assert compare(PROMPTS[:40], silent, silent).verdict == "cannot-tell"


def cut(name: str, size: int, *, other_from: int = LETTERS) -> Answers:
    """The same letters in tokens of so many; from a place on others."""
    rows = {}
    for prompt in PROMPTS:
        text = "abcdefghijklmnopqrstuvwxyz0123456789"[:other_from] + "-" * (LETTERS - other_from)
        tokens = tuple(text[at : at + size] for at in range(0, len(text), size))
        top = tuple({token: -0.1, "else": -3.0} for token in tokens)
        rows[prompt.id] = Answer(prompt=prompt.id, text=text, tokens=tokens, top=top)
    return Answers(name=name, model=name, rows=rows)


def test_tokens_of_another_tokenizer_are_not_compared() -> None:
    assert compare(PROMPTS, cut("a", 2), cut("b", 2)).verdict == "same"
    assert compare(PROMPTS, cut("a", 2), cut("b", 3)).verdict == "same"
    found = compare(PROMPTS, cut("a", 2), cut("b", 3, other_from=12))
    assert found.verdict == "cannot-tell" and found.divergence is None
    assert "tokenizer" in found.gaps[0]
    assert compare(PROMPTS, cut("a", 2), cut("b", 2, other_from=12)).verdict == "degraded"


def test_longer_answers_are_not_compared_with_shorter_ones(tmp_path: Path) -> None:
    """The longer they are, the more of them loop."""
    for name, tokens in (("a", 16), ("b", 64)):
        write(dataclasses.replace(cut(name, 2), tokens=tokens), str(tmp_path / f"{name}.json"))
    run = Run(tmp_path)
    done = run("compare", "a.json", "b.json")
    assert done.returncode == 2 and "at most 16 and of at most 64 tokens" in done.stderr
    server = Server(None)
    with sick_server.serve(server) as port:
        done = run("compare", "b.json", f"http://127.0.0.1:{port}", "--tokens", "8")
        assert "asks for 64 tokens" in done.stderr
    (tmp_path / "own.txt").write_text("another prompt\n")
    done = run("compare", "a.json", "a.json", "--prompts", "own.txt")
    assert done.returncode == 2 and "none of these prompts" in done.stderr


def test_answers_of_an_earlier_version(tmp_path: Path) -> None:
    """It kept neither how many tokens were asked for nor thoughts."""
    tokens = tuple("abcd")
    row = {"prompt": "p", "text": "abcd", "finish": "length", "tokens": tokens}
    whole = {"form": 1, "name": "a", "model": "m", "answers": {"p": row}}
    (tmp_path / "a.json").write_text(json.dumps(whole))
    found = read(str(tmp_path / "a.json"))
    assert found.tokens == len(tokens) and not found.rows["p"].passing
