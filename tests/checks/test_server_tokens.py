"""Requests for tokens."""

from __future__ import annotations

import pytest
from server_facts import STALE, answers, metrics, only, row, state, streamed

from infer_doctor.checks.server_answer import connection_lost
from infer_doctor.checks.server_tokens import (
    bad_request_mishandled,
    chat_refused,
    error_hidden,
    feature_broken,
    proxy_timeout,
    request_refused,
    requests_rejected,
    server_error,
)
from infer_doctor.checks.server_tokens_stream import stream_broken, stream_buffered, token_missing
from infer_doctor.facts.server import Streamed
from infer_doctor.testing import contract, examine

NGINX = {"server": "nginx/1.22.1"}
CUT = row("stream", 200, error="truncated", total_ms=5003.0, **NGINX)
MERGED = streamed(events=510, segments=12, last_ms=700.0, total_ms=700.0)
AT_ONCE = streamed(events=34, segments=2, first_ms=3300.0, last_ms=3300.2, total_ms=4300.0)


def test_contracts() -> None:
    contract(proxy_timeout, fires=[answers(CUT)], passes=[answers()])
    contract(server_error, fires=[answers(row("chat", 500))], passes=[answers()])
    contract(requests_rejected, fires=[answers(row("chat", 429))], passes=[answers()])
    contract(
        error_hidden,
        fires=[answers(row("chat", 200, hidden_error=True, said="dead"))],
        passes=[answers()],
    )
    refused = only(row("models"), row("stream", 400, said="no chat for this model"))
    contract(request_refused, fires=[refused], passes=[answers()])
    contract(chat_refused, fires=[answers(row("chat", 400))], passes=[answers()])
    contract(bad_request_mishandled, fires=[answers(row("wrong", 500))], passes=[answers()])
    contract(
        feature_broken,
        fires=[answers(row("tools", 400, said='"auto" tool choice requires'))],
        passes=[answers(row("tools"))],
    )
    contract(stream_buffered, fires=[MERGED, answers()], passes=[streamed(), answers()])
    broken = streamed(error="truncated", done=False, finish="")
    contract(stream_broken, fires=[broken, answers()], passes=[streamed(), answers()])


@pytest.mark.parametrize(
    ("stream", "outcome"),
    [
        (
            streamed(events=510, segments=5, last_ms=190.0, total_ms=200.0),
            "blocked",
        ),  # too short to tell
        (
            streamed(events=510, segments=12, last_ms=700.0, total_ms=700.0, lag_ms=60.0),
            "blocked",
        ),  # we were late by a burst
        (streamed(events=510, segments=60, last_ms=700.0, total_ms=700.0), "passed"),  # no bursts
        (
            streamed(events=32, segments=9, first_ms=3000.0, last_ms=3040.0, total_ms=3041.0),
            "passed",
        ),  # a queue, then a quick engine
        (AT_ONCE, "failed"),
        (streamed(events=6, segments=1, total_ms=700.0), "passed"),
        (streamed(segments=None), "passed"),
        (MERGED, "failed"),
    ],
)
def test_buffering(stream: Streamed, outcome: str) -> None:
    assert examine(stream_buffered, stream, answers()).outcome == outcome


def test_tokens_that_are_made_and_never_come() -> None:
    """As behind a proxy that compresses the answer of an engine of usual speed."""
    begun = {**vars(STALE), "status": 200}
    made = metrics(second=state(running=1.0, tokens=640.0), own_request="no token")
    nginx = answers(row("models", **NGINX))
    (finding,) = examine(stream_buffered, Streamed(**begun), nginx, made).findings
    assert "made 140 tokens for our stream and none came within 8.0 s" in finding.message
    assert examine(token_missing, Streamed(**begun), nginx, made).outcome == "passed"
    others = metrics(state(running=1.0), state(running=2.0, tokens=640.0), own_request="no token")
    assert examine(stream_buffered, Streamed(**begun), nginx, others).outcome == "blocked"
    assert examine(token_missing, Streamed(**begun), nginx, others).outcome == "failed"


def test_bursts_are_told_by_their_distance() -> None:
    nginx = answers(row("models", **NGINX))
    (late,) = examine(stream_buffered, AT_ONCE, nginx).findings
    assert "34 tokens of a stream came in 2 segments after 3.3 s, all at once" in late.message
    (nagle,) = examine(stream_buffered, streamed(events=64, segments=10), nginx).findings
    assert "10 segments 39 ms apart" in nagle.message
    assert (late.confidence, nagle.confidence) == ("certain", "likely")


def test_a_proxy_that_cut_the_stream_is_no_lost_connection() -> None:
    lost = answers(row("stream", None, error="closed", total_ms=5003.0, **NGINX))
    assert examine(proxy_timeout, lost).outcome == "failed"
    assert examine(connection_lost, lost).outcome == "passed"
    cut = streamed(first_ms=None, events=0, error="truncated", done=False, finish="")
    assert examine(stream_broken, cut, answers(CUT)).outcome == "passed"


def test_an_engine_that_stands_still_is_the_cause() -> None:
    still = metrics(second=metrics().first["0"], own_request="no token")
    (finding,) = examine(proxy_timeout, answers(CUT), still).findings
    assert finding.confidence == "likely"


def test_a_wrong_request_that_is_clamped_is_only_told() -> None:
    (finding,) = examine(bad_request_mishandled, answers(row("wrong", 200))).findings
    assert finding.severity == "info"


def test_what_the_doctor_ended_is_not_broken() -> None:
    cut = streamed(cut=True, done=False, finish="")
    assert examine(stream_broken, cut, answers()).outcome == "passed"


def test_without_a_token_no_stream_is_healthy() -> None:
    for check in (stream_broken, stream_buffered):
        assert examine(check, STALE, answers()).outcome == "blocked"
