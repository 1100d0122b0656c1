"""What surrounds a line is peeled off, and what is secret in it is masked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infer_doctor.facts.log import EngineLog
from infer_doctor.logs.line import Line, elapsed, read, seconds_of
from infer_doctor.logs.read import read_texts

TEXT = "ValueError: No available memory for the cache blocks."
VLLM = f"(EngineCore_DP0 pid=77) ERROR 11-30 12:00:01 [core.py:708] {TEXT}"


def one(raw: str) -> Line:
    (line,) = read(raw.encode())
    return line


@pytest.mark.parametrize(
    "raw",
    [
        VLLM,
        f"2026-11-30T12:00:01.123456789Z stderr F {VLLM}",
        f"2026-11-30T12:00:01.123456789Z {VLLM}",
        f"Nov 30 12:00:01 node1 vllm[12]: {VLLM}",
        f"2026-11-30T12:00:01+0000 node1 vllm[12]: {VLLM}",
        f"[pod/vllm-0/server] {VLLM}",
        f"vllm-1  | {VLLM}",
        f"[1,0]<stderr>:{VLLM}",
        f"\x1b[0;36m(EngineCore_DP0 pid=77)\x1b[0;0m \x1b[31mERROR\x1b[0m 11-30 12:00:01 [core.py:708] {TEXT}",
        json.dumps({"log": VLLM + "\n", "stream": "stderr", "time": "2026-11-30T12:00:01Z"}),
        json.dumps({"timestamp": "2026-11-30T12:00:01Z", "level": "error", "message": VLLM}),
        "Loading: 0%\rLoading: 100%\r" + VLLM,
    ],
)
def test_forms_around_a_line(raw: str) -> None:
    line = list(read(raw.encode()))[-1]
    assert (line.text, line.tag, line.pid, line.level) == (TEXT, "EngineCore_DP0", "77", "ERROR")
    assert line.time == seconds_of("11-30 12:00:01")


@pytest.mark.parametrize(
    ("raw", "tag", "level", "text"),
    [
        ("INFO 06-04 12:00:00 api_server.py:123] hello", "", "INFO", "hello"),
        (
            "(RayWorkerWrapper pid=4, ip=10.0.0.6) ERROR 03-27 10:29:13 [w.py:6] hello",
            "RayWorkerWrapper",
            "ERROR",
            "hello",
        ),
        ("[11/30/2026-12:00:00] [TRT-LLM] [E] hello", "", "ERROR", "hello"),
        ("[TensorRT-LLM][WARNING] hello", "", "WARNING", "hello"),
        ("W1130 12:00:00.5 77 torch/x.py:9] hello", "", "WARNING", "hello"),
        ("(Worker_TP1 pid=9) hello", "Worker_TP1", "", "hello"),
        ("2026-11-30 12:00:00,908 - INFO - hello", "", "INFO", "hello"),
    ],
)
def test_prefixes_of_engines(raw: str, tag: str, level: str, text: str) -> None:
    line = one(raw)
    assert (line.tag, line.level, line.text) == (tag, level, text)


def test_traceback_within_json() -> None:
    raw = json.dumps(
        {"message": "failed", "exc_info": f"Traceback (most recent call last):\n{TEXT}"}
    )
    assert [line.text for line in read(raw.encode())] == [
        "failed",
        "Traceback (most recent call last):",
        TEXT,
    ]


def test_turn_of_the_year() -> None:
    assert elapsed(seconds_of("12-31 23:59:50"), seconds_of("01-01 00:00:10")) == 20


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuvwx",
        "--api-key verysecretkey123",
        "'api_key': 'verysecretkey123'",
        "HF_TOKEN=abcdefgh12345678",
        "https://user:hunter22@proxy:3128",
        "Authorization: Bearer abcdefgh12345678",
    ],
)
def test_secrets_do_not_leave(secret: str) -> None:
    log = read_texts([f"{TEXT} {secret}"])[EngineLog]
    assert isinstance(log, EngineLog)
    assert log.cause is not None
    shown = repr(log)
    for part in ("abcdefgh12345678", "verysecretkey123", "hunter22", "hf_abcdefghij"):
        assert part not in shown


def test_a_pasted_log_is_read_without_its_indentation() -> None:
    text = (Path(__file__).parent.parent / "captures" / "logs" / "fail-8b-len-kv.log").read_text()
    plain = read_texts(text.splitlines())[EngineLog]
    pasted = read_texts(["    " + line for line in text.splitlines()])[EngineLog]
    assert isinstance(plain, EngineLog) and isinstance(pasted, EngineLog)
    assert plain.cause and plain.cause == pasted.cause
