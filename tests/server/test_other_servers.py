"""Engines, gateways and services that answer otherwise than vLLM: healthy ones stay healthy."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from doctor_process import Run
from other_servers import (
    HEALTHY,
    NGINX_PAGE,
    SICK,
    WORDS,
    Api,
    Counting,
    Slow,
    Stops,
    error,
    events,
)
from sick_server import Handler, answer, serve

KEY = "sk-own-0123456789abcdef"


def probed(folder: Path, handler: Handler, *words: str) -> tuple[dict[str, Any], int]:
    """The report and the exit code; a key is there when the server wants one."""
    keyed = isinstance(handler, Api) and handler.key is not None
    prefix = handler.prefix.removesuffix("/v1") if isinstance(handler, Api) else ""
    if isinstance(handler, Api) and handler.query:
        prefix += f"/chat/completions{handler.query}"
    with serve(handler) as port:
        run = Run(folder, {"OPENAI_API_KEY": KEY} if keyed else {})
        url = f"http://127.0.0.1:{port}{prefix}"
        done = run("probe", "--format", "json", "--timeout", "5", url, *words)
    assert KEY not in done.stdout
    report = json.loads(done.stdout)
    assert not [row for row in report["results"] if row["outcome"] == "crashed"]
    return report, done.returncode


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name: str, tmp_path: Path) -> None:
    report, code = probed(tmp_path, HEALTHY[name])
    counts = report["counts"]
    assert (counts["error"], counts["warning"], code) == (0, 0, 0), report["primary"]
    (facts,) = report["facts"].values()
    assert len(facts["Answers"]["exchanges"]) <= 8


def test_metrics_of_nim(tmp_path: Path) -> None:
    report, _ = probed(tmp_path, HEALTHY["nim"])
    assert report["target"]["engine"]["name"] == "nim"
    (facts,) = report["facts"].values()
    assert facts["ServerMetrics"]["source"] == "GET /v1/metrics"
    assert facts["ServerMetrics"]["second"]["0"]["tokens"] == 40


@pytest.mark.parametrize("name", SICK)
def test_sick(name: str, tmp_path: Path) -> None:
    handler, check, words = SICK[name]
    report, code = probed(tmp_path, handler)
    if check is None:
        assert (report["verdict"], code, report["primary"]) == ("unknown", 3, None)
        return
    assert (report["primary"]["check"], code) == (check, 1)
    assert words in report["primary"]["message"]


def test_a_measurement_speaks_as_the_probe_learned(tmp_path: Path) -> None:
    report, code = probed(tmp_path, HEALTHY["newer openai"], "--requests", "3")
    (level,) = report["measurements"]["load"]["levels"]
    assert (level["failed"], code) == ({}, 0)


def test_a_few_refusals_end_a_measurement(tmp_path: Path) -> None:
    counting = Counting(allowed=8, every=3, headers=("Connection: close",))
    report, code = probed(tmp_path, counting, "--requests", "90", "--concurrency", "2")
    assert (report["primary"]["check"], code) == ("server-requests-failed", 1)
    assert counting.posts < 8 + 3 * 4 + 6
    assert "requests failed" in report["measurements"]["load"]["stopped"]


def test_a_watch_ends_when_nobody_reads_it(tmp_path: Path) -> None:
    with serve(Api()) as port:
        with Run(tmp_path).start("probe", PLAIN.format(port), "--watch", "1") as process:
            assert process.stdout is not None
            assert "pass" in process.stdout.readline()
            process.stdout.close()
            assert process.wait(60) == 0
        wrong = Run(tmp_path)("probe", PLAIN.format(port), "--watch", "1", "--format", "html")
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_a_key_that_the_server_says_back_is_masked(tmp_path: Path) -> None:
    word = "horsebatterystaple"  # of no known form

    def says_it(connection: socket.socket, request: bytes) -> None:
        sent = f"no such key: {word}" if word.encode() in request else "a key is wanted"
        connection.sendall(answer("401 Unauthorized", json.dumps(error(sent)).encode()))

    with serve(says_it) as port:
        for style in ("text", "json", "html"):
            words = ["probe", PLAIN.format(port), "--format", style]
            done = Run(tmp_path, {"OPENAI_API_KEY": word})(*words)
            assert done.returncode == 1
            assert "no such key" in done.stdout
            assert word not in done.stdout + done.stderr


@pytest.mark.parametrize("timeout", ["1", "2", "5"])
def test_headers_are_no_token(timeout: str, tmp_path: Path) -> None:
    """However short the time limit is, a server that sends them and no token is not healthy."""
    report, code = probed(tmp_path, Slow(first_s=9), "--timeout", timeout)
    assert (report["primary"]["check"], code) == ("server-token-missing", 1)


@pytest.mark.parametrize("tokens", [-5, 10**400, True, "3"])
def test_a_count_of_tokens_that_is_none(tokens: object, tmp_path: Path) -> None:
    rows = [*WORDS[:-1], {"choices": [], "usage": {"completion_tokens": tokens}}]
    counted = Api(stream=events(*rows), models=[{"id": "m", "max_model_len": -3}])
    report, code = probed(tmp_path, counted)
    (facts,) = report["facts"].values()
    assert (code, facts["Streamed"]["tokens"], facts["Models"]["longest"]) == (0, None, None)


MANY_SERIES = "".join(f'vllm:x{{le="{n}"}} 0\n' for n in range(300_000))
ASIDE = {
    "metrics behind a login": ("302 Found", ""),
    "metrics of too many series": ("200 OK", MANY_SERIES),
    "metrics of a dead exporter": ("502 Bad Gateway", NGINX_PAGE.format("502 Bad Gateway")),
}


@pytest.mark.parametrize("name", ASIDE)
def test_metrics_that_cannot_be_read_are_no_fault_of_the_server(name: str, tmp_path: Path) -> None:
    report, code = probed(tmp_path, Api(fixed={"/metrics": ASIDE[name]}))
    assert (report["counts"]["error"], report["counts"]["warning"], code) == (0, 0, 0)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/metrics", "http://nowhere.invalid/metrics"]
)
def test_metrics_elsewhere_that_cannot_be_reached(address: str, tmp_path: Path) -> None:
    report, code = probed(tmp_path, Api(), address)
    assert (report["counts"]["error"], report["counts"]["warning"], code) == (0, 0, 0)
    blocked = {
        row["check"]: row["reason"] for row in report["results"] if row["outcome"] == "blocked"
    }
    assert "server-engine-stalled" in blocked


@pytest.mark.parametrize("with_metrics", [True, False])
def test_one_that_is_stopped_in_the_middle(with_metrics: bool, tmp_path: Path) -> None:
    text = ("200 OK", "vllm:num_requests_running 0\nvllm:generation_tokens_total 4\n")
    fixed = {"/metrics": text if with_metrics else ("404 Not Found", {})}
    report, code = probed(tmp_path, Stops(fixed=fixed), "--timeout", "8")
    assert (report["primary"]["check"], code) == ("server-silent", 1)
    assert "answers nothing any more" in report["primary"]["message"]


@pytest.mark.parametrize(
    "words", [["--requests", "9"], ["--ramp", "8"], ["--ramp", "8", "--requests", "9"]]
)
@pytest.mark.parametrize("allowed", [0, 3, 1000])
def test_never_more_requests_than_asked_for(words: list[str], allowed: int, tmp_path: Path) -> None:
    """And the first refusals end a measurement."""
    counting = Counting(
        allowed=allowed + 3, headers=("Connection: close",)
    )  # three are the probe's
    report, _ = probed(tmp_path, counting, *words)
    (facts,) = report["facts"].values()
    own = sum(row["method"] == "POST" for row in facts["Answers"]["exchanges"])
    sent = counting.posts - own
    levels = (report["measurements"].get("load") or {"levels": []})["levels"]
    assert sent == sum(row["requests"] for row in levels)
    most = {"--requests": 9, "--ramp": 4 + 4 + 8 + 16}[words[0]]
    assert sent <= (9 if "--requests" in words else most)
    if allowed == 0:
        assert sent <= 8
    for row in levels:
        assert row["time_to_first_token_ms"] is None or not row["time_to_first_token_ms"]["p99"]


PLAIN = "http://127.0.0.1:{}"


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("/v1", "http://localhost:{}/"),
        ("/v1", PLAIN + "/v1/chat/completions"),
        ("/v1beta/openai", PLAIN + "/v1beta/openai"),
        ("/v1beta/openai", PLAIN + "/v1beta/openai/chat/completions"),
        ("/api/v3", PLAIN + "/api/v3/"),
    ],
)
def test_the_base_as_a_client_takes_it(prefix: str, url: str, tmp_path: Path) -> None:
    with serve(Api(prefix=prefix)) as port:
        words = ["probe", "--format", "json", "--requests", "2", url.format(port)]
        done = Run(tmp_path)(*words)
    report = json.loads(done.stdout)
    assert (report["verdict"], done.returncode) == ("pass", 0), report["primary"]
    assert report["measurements"]["load"]["levels"][0]["failed"] == {}


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_address_of_ipv_six(tmp_path: Path) -> None:
    with serve(Api(), host="::1") as port:
        done = Run(tmp_path)("probe", f"http://[::1]:{port}/v1")
    assert done.returncode == 0, done.stdout


def test_what_a_server_says_moves_no_cursor(tmp_path: Path) -> None:
    def handler(connection: socket.socket, request: bytes) -> None:
        connection.sendall(answer("500 Oops", b"\x1b[31mred\x07\x9b", "Server: \x1b[2J"))

    with serve(handler) as port:
        done = Run(tmp_path)("probe", PLAIN.format(port))
    assert "\\x1b[31mred" in done.stdout
    assert not set(done.stdout) & {"\x1b", "\x07", "\x9b"}


def test_mutual_tls(tmp_path: Path) -> None:
    authority = Authority.begin(tmp_path / "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(*authority.make("server", "IP:127.0.0.1"))
    context.load_verify_locations(authority.trust)
    context.verify_mode = ssl.CERT_REQUIRED
    with serve(Api(), context) as port:
        run = Run(tmp_path, {"SSL_CERT_FILE": authority.trust})
        done = run("probe", "--format", "json", f"https://127.0.0.1:{port}")
    primary = json.loads(done.stdout)["primary"]
    assert (primary["check"], primary["category"]) == ("server-connection-lost", "auth")
    assert "mutual TLS" in primary["message"]
