"""What a server may send to harm or hold a client: bounded in memory and time, with a finding."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sick_server
from doctor_process import COMMAND, Run
from sick_server import Handler, answer, path_of, serve

MEMORY_KB = 150_000
"""The doctor itself takes 32 MB; ten answers at the limit of 4 MiB come on top."""


WRAP = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(done.returncode)
"""
"""The most memory counts from the fork on, so the doctor is not started by this large process."""


def probed(folder: Path, *words: str, **variables: str) -> tuple[dict[str, Any], int]:
    """The report and the most memory that the process had, in KB."""
    run = Run(folder, variables)
    most = folder / "most"
    words = (COMMAND, "probe", "--format", "json", "--timeout", "4", *words)
    process = subprocess.run(
        [sys.executable, "-c", WRAP, str(most), *words],
        env=run.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    report = json.loads(process.stdout)
    assert report["duration_s"] < 6
    assert not [row for row in report["results"] if row["outcome"] == "crashed"]
    assert process.returncode == {"pass": 0, "fail": 1, "unknown": 3}[report["verdict"]]
    return report, int(most.read_text())


@pytest.mark.parametrize(
    ("handler", "check"),
    [
        (sick_server.endless_headers, "server-answer-broken"),
        (sick_server.endless_body, "server-answer-broken"),
        (sick_server.endless_chunks, "server-answer-broken"),
        (sick_server.endless_until_close, "server-answer-broken"),
        (sick_server.drip, "server-answer-broken"),
        (sick_server.garbage, "server-answer-broken"),
        (sick_server.greeting, "server-answer-broken"),
        (sick_server.bad_chunks, "server-answer-broken"),
        (sick_server.cut_short, "server-answer-broken"),
        (sick_server.hang_up, "server-connection-lost"),
        (sick_server.silence, "server-silent"),
        (sick_server.bad_utf_eight, "server-error-hidden"),
        (sick_server.packed_bomb, "server-answer-broken"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_it_ends_with_a_finding(handler: Handler, check: str, tmp_path: Path) -> None:
    with serve(handler) as port:
        report, memory = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert report["primary"]["check"] == check
    assert memory < MEMORY_KB


def test_a_port_that_is_filtered(tmp_path: Path) -> None:
    with sick_server.full_backlog() as port:
        report, _ = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert report["primary"]["check"] == "server-port-filtered"


def test_a_port_that_is_closed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    report, _ = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert report["primary"]["check"] == "server-port-closed"


def test_a_name_that_leads_nowhere(tmp_path: Path) -> None:
    report, _ = probed(tmp_path, "http://no-such-host.invalid:8000")
    assert report["primary"]["check"] == "server-name-unresolved"


def test_the_key_follows_no_redirect(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def other(connection: socket.socket, request: bytes) -> None:
        seen.append(request)
        connection.sendall(answer("200 OK", b"{}"))

    with (
        serve(other) as target,
        serve(sick_server.elsewhere(f"http://127.0.0.1:{target}/v1/models")) as port,
    ):
        url = f"http://127.0.0.1:{port}"
        report, _ = probed(tmp_path, url, VLLM_API_KEY="sk-0a1b2c3d4e5f6a7b")
    assert report["primary"]["check"] == "server-redirected"
    assert seen == []
    assert "sk-0a1b2c3d4e5f6a7b" not in json.dumps(report)


def test_a_key_of_somebody_else_is_sent_only_when_it_is_wanted(tmp_path: Path) -> None:
    """OPENAI_API_KEY may be OpenAI's: a server that wants no key never sees it."""
    lock, keyed = threading.Lock(), []

    def handler(connection: socket.socket, request: bytes) -> None:
        with lock:
            keyed.append(b"sk-0a1b2c3d4e5f6a7b" in request)
        models = b'{"object":"list","data":[{"id":"m"}]}'
        body = models if path_of(request) == "/v1/models" else b"{}"
        connection.sendall(answer("200 OK", body, "Content-Type: application/json"))

    with serve(handler) as port:
        probed(tmp_path, f"http://127.0.0.1:{port}", OPENAI_API_KEY="sk-0a1b2c3d4e5f6a7b")
    assert keyed
    assert not any(keyed)


@pytest.mark.parametrize(
    "words",
    [
        ["http://user:secret@127.0.0.1:1"],
        ["http://"],
        ["http://127.0.0.1:0"],
        ["http://127.0.0.1:99999"],
        ["http://a.example", "http://b.example"],
        ["http://a.example", "--key-file", "missing"],
        ["missing.prom"],
        ["unix://socket"],
    ],
)
def test_wrong_usage_is_one_line(words: list[str], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    done = Run(tmp_path)("probe", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr
