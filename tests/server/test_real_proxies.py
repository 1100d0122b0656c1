"""A real nginx and a real HAProxy before a server that streams as an engine does."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run
from haproxy import haproxy
from nginx import free_port, nginx
from other_servers import Reply, Slow
from sick_server import serve

ZIPPED = """location / {{ proxy_pass http://127.0.0.1:{}; proxy_buffering {};
    gzip on; gzip_proxied any; gzip_min_length 0; gzip_types text/event-stream application/json; }}"""


def probed(folder: Path, *words: str, timeout: str = "5") -> dict[str, Any]:
    done = Run(folder)("probe", "--format", "json", "--timeout", timeout, *words)
    report: dict[str, Any] = json.loads(done.stdout)
    assert not [row for row in report["results"] if row["outcome"] == "crashed"]
    return report


def streamed(report: dict[str, Any]) -> dict[str, Any]:
    (facts,) = report["facts"].values()
    return dict(facts["Streamed"])


def test_compressed_answers_are_read(tmp_path: Path) -> None:
    with serve(Slow()) as engine, nginx(tmp_path / "n", ZIPPED.format(engine, "off")) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}")
    stream = streamed(report)
    assert (stream["encoding"], stream["events"], stream["done"]) == ("gzip", 61, True)
    assert report["counts"]["error"] == 0


def test_compression_that_keeps_a_stream_back(tmp_path: Path) -> None:
    with serve(Slow()) as engine, nginx(tmp_path / "n", ZIPPED.format(engine, "on")) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert report["primary"]["check"] == "server-stream-buffered"
    assert "compresses them (gzip)" in report["primary"]["message"]


@pytest.mark.parametrize("apart_s", [0.03, 0.1])
def test_nginx_fills_its_buffer(apart_s: float, tmp_path: Path) -> None:
    """An answer without chunks is kept until the buffer is full, however slow the tokens are."""
    plain = "location / {{ proxy_pass http://127.0.0.1:{}; proxy_buffering {}; }}"
    with serve(Slow(apart_s=apart_s, chunked=False)) as engine:
        with nginx(tmp_path / "on", plain.format(engine, "on")) as port:
            buffered = probed(tmp_path, f"http://127.0.0.1:{port}", timeout="10")
        with nginx(tmp_path / "off", plain.format(engine, "off")) as port:
            passed = probed(tmp_path, f"http://127.0.0.1:{port}", timeout="10")
    assert buffered["primary"]["check"] == "server-stream-buffered"
    assert buffered["primary"]["confidence"] == "certain"
    assert passed["primary"] is None


class Counted(Slow):
    """Tells at /metrics what it makes."""

    scrapes = 0

    def reply(self, path: str, head: bytes, body: dict[str, Any]) -> Reply:
        if path != "/metrics":
            return super().reply(path, head, body)
        self.scrapes += 1
        busy = self.scrapes > 1
        lines = [f"vllm:num_requests_running {int(busy)}", "vllm:num_requests_waiting 0"]
        return "200 OK", "\n".join([*lines, f"vllm:generation_tokens_total {40 + 10 * busy}", ""])


def test_nginx_keeps_more_than_a_probe_waits_for(tmp_path: Path) -> None:
    """A buffer of slow tokens: nothing comes, and the engine's own count tells that they are made."""
    place = "location / {{ proxy_pass http://127.0.0.1:{}; }}"
    slow = Counted(apart_s=0.4, chunked=False)
    with serve(slow) as engine, nginx(tmp_path / "n", place.format(engine)) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert report["primary"]["check"] == "server-stream-buffered"
    assert report["primary"]["message"].startswith("the engine made 10 tokens")


def test_nginx_passes_slow_chunks_on(tmp_path: Path) -> None:
    """Nagle's algorithm, which it leaves on, holds a token no longer than the next one takes."""
    place = "location / {{ proxy_pass http://127.0.0.1:{}; proxy_buffering on; }}"
    with serve(Slow(apart_s=0.06)) as engine, nginx(tmp_path / "n", place.format(engine)) as port:
        report = probed(tmp_path, f"http://127.0.0.1:{port}", timeout="10")
    assert report["primary"] is None
    assert streamed(report)["segments"] * 3 > streamed(report)["events"]


def test_haproxy_is_transparent(tmp_path: Path) -> None:
    """`timeout client` of 2 s ends nothing while the server is waited for."""
    more = "option http-no-delay"
    with (
        serve(Slow(first_s=2.5)) as engine,
        haproxy(tmp_path / "h", f"127.0.0.1:{engine}", more=more) as (port, config),
    ):
        report = probed(tmp_path, f"http://127.0.0.1:{port}", str(config))
    assert report["counts"]["error"] == report["counts"]["warning"] == 0, report["primary"]
    assert streamed(report)["first_ms"] >= 2500


@pytest.mark.parametrize("late", ["head_s", "first_s"])
def test_haproxy_gives_up(late: str, tmp_path: Path) -> None:
    """With 504 before the headers; after them it can only cut, and its configuration tells."""
    with (
        serve(Slow(**{late: 9.0})) as engine,
        haproxy(tmp_path / "h", f"127.0.0.1:{engine}", "3500ms") as (port, config),
    ):
        url = f"http://127.0.0.1:{port}"
        report, told = probed(tmp_path, url), probed(tmp_path, url, str(config))
    assert report["verdict"] == told["verdict"] == "fail"
    assert report["primary"]["check"] == "server-proxy-timeout"
    how = "haproxy gave up after 3.5 s (504)" if late == "head_s" else "a proxy gave up after 3.5 s"
    assert report["primary"]["message"].startswith(how)
    assert report["primary"]["confidence"] == ("certain" if late == "head_s" else "likely")
    found = {row["check"]: row["findings"] for row in told["results"] if row["findings"]}
    assert (
        "timeout server of haproxy backend engine is 3.5 s"
        in (found["server-timeout-fires"][0]["message"])
    )


def test_haproxy_without_an_engine(tmp_path: Path) -> None:
    """It tries four times, a second apart, before it says so."""
    with haproxy(tmp_path / "h", f"127.0.0.1:{free_port()}") as (port, _):
        report = probed(tmp_path, f"http://127.0.0.1:{port}", timeout="20")
    assert report["primary"]["check"] == "server-gateway-failed"
    assert report["primary"]["message"].startswith("haproxy answers 503")


@pytest.fixture
def full_backlog() -> Iterator[int]:
    """A port that answers no further SYN, as behind a firewall."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(listener.getsockname())
        yield int(listener.getsockname()[1])


def test_a_proxy_that_waits_for_its_engine_is_named(full_backlog: int, tmp_path: Path) -> None:
    """Longer than a probe waits; the proxy shows itself by what it refuses alone."""
    with haproxy(tmp_path / "h", f"127.0.0.1:{full_backlog}") as (port, _):
        by_haproxy = probed(tmp_path, f"http://127.0.0.1:{port}")
    place = f"location / {{ proxy_pass http://127.0.0.1:{full_backlog}; }}"
    with nginx(tmp_path / "n", place) as port:
        by_nginx = probed(tmp_path, f"http://127.0.0.1:{port}")
    for report, name in ((by_haproxy, "haproxy "), (by_nginx, "nginx/")):
        assert report["primary"]["check"] == "server-gateway-failed"
        assert report["primary"]["message"].startswith(name)
        assert report["counts"]["error"] == 1


def test_haproxy_as_it_comes_waits_for_full_segments(tmp_path: Path) -> None:
    with (
        serve(Slow()) as engine,
        haproxy(tmp_path / "h", f"127.0.0.1:{engine}") as (port, config),
    ):
        report = probed(tmp_path, f"http://127.0.0.1:{port}", str(config))
    found = {row["check"] for row in report["results"] if row["findings"]}
    assert {"server-stream-buffered", "server-proxy-buffers"} <= found
    titles = {row["title"] for row in report["fixes"]}
    assert any("option http-no-delay" in title for title in titles)


def test_haproxy_that_compresses_keeps_tokens_back(tmp_path: Path) -> None:
    more = "compression algo gzip\n    compression type text/event-stream"
    with (
        serve(Slow(tokens=120)) as engine,
        haproxy(tmp_path / "h", f"127.0.0.1:{engine}", more=more) as (port, _),
    ):
        report = probed(tmp_path, f"http://127.0.0.1:{port}")
    assert streamed(report)["encoding"] == "gzip"
    assert report["primary"]["check"] == "server-stream-buffered"
