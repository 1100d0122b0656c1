"""What the engine's own numbers say."""

from __future__ import annotations

import pytest
from server_facts import STALE, answers, metrics, only, row, state, streamed

from infer_doctor.checks.server_engine import (
    engine_asleep,
    engine_stalled,
    first_token_slow,
    kv_full,
    queueing,
)
from infer_doctor.checks.server_frontend import frontend
from infer_doctor.checks.server_tokens_stream import token_missing
from infer_doctor.facts.server import EngineState, Pace, ServerMetrics
from infer_doctor.server.probe import refused
from infer_doctor.testing import contract, examine

BUSY = state(running=2.0)
LONG = EngineState(running=2.0, waiting=0.0, finished=9.0)
"""TensorRT-LLM's Prometheus path counts requests that have ended, and no steps."""

SLOW = answers(*(row(name, total_ms=900.0) for name in ("health", "models", "metrics")))
QUEUED = {"ttft": Pace(count=10, total=30.0), "queue": Pace(count=10, total=28.0)}
PREFILL = {
    "ttft": Pace(count=3, total=9.0),
    "queue": Pace(count=3, total=0.1),
    "itl": Pace(count=90, total=1.8),
    "prefill": Pace(count=3, total=8.5),
}
WORKED = {name: Pace(count=3, total=0.02) for name in ("queue", "prefill", "decode")}


def test_contracts() -> None:
    contract(engine_stalled, fires=[metrics(BUSY, BUSY)], passes=[metrics()])
    contract(
        engine_asleep,
        fires=[metrics(second=state(asleep=True))],
        passes=[metrics(second=state(asleep=False))],
    )
    assert examine(engine_asleep, metrics()).outcome == "not_applicable"
    contract(queueing, fires=[metrics(**QUEUED)], passes=[metrics()])
    full = metrics(second=state(preemptions=4.0, tokens=600.0))
    contract(kv_full, fires=[full], passes=[metrics()])
    contract(
        first_token_slow,
        fires=[metrics(**PREFILL), streamed(first_ms=3000.0)],
        passes=[metrics(), streamed()],
    )
    contract(frontend, fires=[SLOW], passes=[answers()])
    contract(token_missing, fires=[STALE, answers()], passes=[streamed(), answers()])


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        (metrics(BUSY, BUSY), "failed"),
        (metrics(BUSY, state(running=2.0, tokens=501.0)), "passed"),
        (metrics(BUSY, state(running=2.0, prompt_tokens=4196.0)), "passed"),  # a long prompt
        (metrics(BUSY, state(running=2.0, iterations=401.0)), "passed"),
        (metrics(state(), state(), own_request="no token"), "failed"),
        (metrics(state(), state()), "passed"),  # idle
        (metrics(BUSY, BUSY, seconds=0.4), "passed"),  # our own request got its tokens
        (metrics(BUSY, BUSY, seconds=0.4, own_request=""), "blocked"),
        (metrics(BUSY, BUSY, seconds=None), "blocked"),
        (metrics(EngineState(running=1.0), EngineState(running=1.0)), "passed"),  # no counter known
        (metrics(LONG, LONG, own_request="no token"), "blocked"),  # long answers look the same
        (metrics(LONG, LONG), "passed"),
    ],
)
def test_stalled(facts: ServerMetrics, outcome: str) -> None:
    assert examine(engine_stalled, facts).outcome == outcome


def test_one_of_several_engines_stalls() -> None:
    facts = ServerMetrics(
        source="GET /metrics",
        kind="vllm",
        first={"0": BUSY, "1": BUSY},
        second={"0": state(running=2.0, tokens=900.0), "1": BUSY},
        seconds=5.0,
    )
    (finding,) = examine(engine_stalled, facts).findings
    assert finding.message == "engine 1 made no token in 5.0 s with 2 requests running"


def test_one_of_several_engines_took_our_request_and_stands_still() -> None:
    facts = ServerMetrics(
        source="GET /metrics",
        kind="vllm",
        first={"0": BUSY, "1": state()},
        second={"0": state(running=2.0, tokens=900.0), "1": state(running=1.0)},
        seconds=8.0,
        own_request="no token",
    )
    (finding,) = examine(engine_stalled, facts).findings
    assert (finding.about, finding.confidence) == ("engine 1", "likely")
    assert examine(token_missing, STALE, answers(), facts).outcome == "passed"


def test_a_long_prompt_fills_the_cache_and_is_no_stall() -> None:
    """Its parts bring no token, and vLLM counts no step without one."""
    assert examine(engine_stalled, metrics(BUSY, state(running=2.0, kv=0.14))).outcome == "passed"


def test_one_that_has_just_come_is_no_queue() -> None:
    full = metrics(state(waiting=1.0), state(waiting=2.0, kv=0.97, running=256.0, tokens=900.0))
    assert examine(kv_full, full, streamed(first_ms=30.0)).outcome == "passed"
    (finding,) = examine(queueing, full, streamed(first_ms=30.0)).findings
    assert finding.severity == "info"
    assert examine(kv_full, full, streamed(first_ms=900.0)).outcome == "failed"
    both = metrics(full.second["0"], full.second["0"])
    assert examine(kv_full, both, streamed(first_ms=30.0)).outcome == "failed"


def test_no_token_and_then_no_answer_is_told_as_it_was() -> None:
    last = row("metrics", None, error="timeout", total_ms=600.0)
    begun = [row(name) for name in ("health", "models", "metrics")]
    (finding,) = examine(token_missing, STALE, only(*begun, last)).findings
    assert finding.message.endswith("and GET /metrics got no answer within 600 ms")


def test_a_starved_front_end_is_no_stalled_engine() -> None:
    still = metrics(state(), state(), own_request="no token")
    assert examine(engine_stalled, still, SLOW).outcome == "passed"


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        (metrics(second=state(waiting=9.0, tokens=900.0), own_request="no token"), "error"),
        (metrics(**QUEUED), "warning"),
        (metrics(state(waiting=3.0), state(waiting=7.0, tokens=900.0)), "warning"),
        (metrics(second=state(waiting=1.0, running=9.0, tokens=900.0)), None),
    ],
)
def test_queueing(facts: ServerMetrics, severity: str | None) -> None:
    findings = examine(queueing, facts).findings
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_a_full_cache_is_the_cause_of_its_queue() -> None:
    full = metrics(second=state(kv=0.99, waiting=9.0, tokens=900.0))
    assert examine(kv_full, full).outcome == "failed"
    assert examine(queueing, full).outcome == "not_applicable"


def test_a_request_that_was_refused_proves_no_stall() -> None:
    idle = metrics(state(), state(), own_request="refused")
    assert examine(engine_stalled, idle).outcome == "blocked"
    stuck = metrics(BUSY, BUSY, own_request="refused")
    assert examine(engine_stalled, stuck).outcome == "failed"
    assert [refused(status) for status in (None, 200, 429, 500, 502, 504)] == [
        *(False, False, True, True, False, False)
    ]


def test_counters_of_a_new_process_are_no_progress_and_no_loss() -> None:
    anew = metrics(state(preemptions=40.0), state(preemptions=0.0, tokens=3.0))
    assert anew.gained("preemptions") is None and anew.gained("tokens") is None
    assert examine(kv_full, anew).outcome == "passed"


def test_time_outside_the_engine() -> None:
    slow = answers(*(row(name, total_ms=900.0) for name in ("stream", "chat", "completion")))
    late = only(*slow.exchanges, row("metrics"), row("chat", total_ms=9.0))
    (finding,) = examine(frontend, late, metrics(**WORKED)).findings
    assert "spends 880 ms outside the engine" in finding.message
    others = {name: Pace(count=40, total=9.0) for name in WORKED}
    assert examine(frontend, late, metrics(**others)).outcome == "passed"


def test_our_own_lateness_is_not_the_servers() -> None:
    rows = (row(name, total_ms=900.0) for name in ("health", "models", "metrics"))
    assert examine(frontend, answers(*rows, lag_ms=800.0)).outcome == "passed"


def test_requests_that_ended_are_the_only_count() -> None:
    """Then nothing tells a stall, and that no token came is told as it is."""
    quiet = metrics(LONG, LONG, own_request="no token")
    assert examine(token_missing, STALE, answers(), quiet).outcome == "failed"
    behind = EngineState(running=2.0, waiting=3.0, finished=12.0)
    queue = metrics(LONG, behind, own_request="no token")
    assert examine(token_missing, STALE, answers(), queue).outcome == "passed"
    (finding,) = examine(queueing, queue, STALE, answers()).findings
    assert "while the engine worked on others" in finding.message
