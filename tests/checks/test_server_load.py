"""A measurement or a ramp."""

from __future__ import annotations

from server_facts import level, load, summary

from infer_doctor.checks.server_load import frontend_full, knee_found, requests_failed
from infer_doctor.facts.server import Pace
from infer_doctor.testing import contract, examine

REPORTED = {"server_ttft": Pace(count=1174, total=1174 * 0.406)}
LATE = level(24, ttft=summary(1273.0), requests=1200, failed={"closed": 26})
"""A front end that was the bottleneck: 1,273 ms as clients saw it, 406 ms as the server counted."""


def test_contracts() -> None:
    failed = level(failed={"closed": 2}, examples={"closed": "without an answer"})
    contract(requests_failed, fires=[load(failed)], passes=[load()])
    ramp = load(level(1, tokens=300), level(2, tokens=310), knee=1)
    contract(knee_found, fires=[ramp], passes=[load()])
    contract(frontend_full, fires=[load(LATE, **REPORTED)], passes=[load()])


def test_requests_of_others_are_not_compared_with_ours() -> None:
    shared = load(level(24, ttft=summary(1273.0)), **REPORTED)
    assert examine(frontend_full, shared).outcome == "blocked"


def test_a_full_queue_at_the_end_of_a_ramp_is_what_was_looked_for() -> None:
    full = level(8, failed={"HTTP 503": 3}, examples={"HTTP 503": "busy"})
    (finding,) = examine(requests_failed, load(level(4), full)).findings
    assert finding.severity == "warning"
    assert finding.message == "3 of 10 requests failed with 8 at once: 3 HTTP 503"


def test_our_own_lateness_is_not_the_servers() -> None:
    late = load(LATE, lag_ms=700.0, **REPORTED)
    assert examine(frontend_full, late).outcome == "passed"
