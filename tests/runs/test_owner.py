"""The engine that answers is ours, its log is its own, and a kept log holds no secret whatever ends us."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sick_server
import standin_engine
from doctor_process import Run

from infer_doctor.runs import owner, starting
from infer_doctor.runs.starting import Plan, start
from infer_doctor.runs.words import NoRun

HANG_S = 60.0
SECRET = "sk-of-a-run-1234567890"


def plan(folder: Path, *words: str) -> Plan:
    return Plan(words=words, variables=dict(os.environ), folder=str(folder), logs=str(folder))


def healthy(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("program", ["import time; time.sleep(600)", "raise SystemExit(1)"])
def test_a_server_that_took_the_port_is_not_ours(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it the engine, nor is the launch at fault that cannot bind."""
    with sick_server.serve(healthy) as port:
        monkeypatch.setattr(starting, "free_port", lambda: port)
        with pytest.raises(NoRun, match="taken by another process"):
            start(plan(tmp_path, sys.executable, "-c", program))


def test_whose_socket_it_is(tmp_path: Path) -> None:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = made.getsockname()[1]
        assert not owner.listens(port) and owner.is_below(port, os.getppid()) is None
        made.listen()
        assert owner.listens(port)
        assert owner.is_below(port, os.getppid()) is True
        assert owner.is_below(port, os.getpid()) is False  # below, not itself
    path = standin_engine.program(tmp_path / "bin")
    seen = start(plan(tmp_path, str(path / "vllm"), "serve", "m"))
    assert seen.start.ready


def test_an_earlier_log_is_never_written_on(tmp_path: Path) -> None:
    """Of three kept logs the first was deleted; its error is not that of this start."""
    (tmp_path / "02-as-asked.log").write_text("RuntimeError: of another day\n")
    seen = start(plan(tmp_path, sys.executable, "-c", "print('hello')"))
    assert Path(seen.start.log).name == "03-as-asked.log" and seen.start.tail == "hello"


ENGINE = f"""#!{sys.executable}
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("non-default args: {{'api_key': ['{SECRET}']}}", "HF_TOKEN=hf_" + "x" * 34, flush=True)
open(sys.argv[0] + ".up", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_kept_log_holds_no_secret_however_the_doctor_ends(number: Any, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text(ENGINE)
    program.chmod(0o755)
    run = Run(tmp_path, {"PATH": f"{program.parent}:/usr/bin:/bin"})
    doctor = run.start("reproduce", "engine-load", "--keep", "kept", "--", "vllm", "serve", "m")
    until(lambda: Path(f"{program}.up").exists())
    doctor.send_signal(number)
    doctor.communicate(timeout=HANG_S)
    until(lambda: not run.living())
    logs = list((tmp_path / "kept").glob("*.log"))
    assert bool(logs) == (number == signal.SIGINT)  # the guard knows no masks, so it removes it
    for log in logs:
        assert "<token>" in log.read_text() and SECRET not in log.read_text()


def until(condition: Any) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < HANG_S
        time.sleep(0.05)
