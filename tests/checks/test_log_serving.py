"""What the statistics of a serving log show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infer_doctor.checks.log_serving import engine_stalled, kv_full, queue_grows
from infer_doctor.facts.log import Sample, Serving
from infer_doctor.testing import contract, examine

ROW = Sample(time=0, line=5, prompt=0, generation=0, running=64, waiting=2, kv=60)
FULL = replace(ROW, line=90, waiting=70, kv=99.8)
CALM = Serving(source="serve.log", samples=60)
QUEUE = replace(CALM, queue_from=ROW, queue_to=FULL)
CACHE = replace(CALM, kv_full=FULL, kv_full_samples=12, preemptions=400)
STALL = replace(CALM, stalled=ROW, stalled_samples=9, stalled_s=80, stalled_at_end=True)


def test_contract() -> None:
    contract(queue_grows, fires=[QUEUE], passes=[CALM])
    contract(kv_full, fires=[CACHE], passes=[CALM])
    contract(engine_stalled, fires=[STALL], passes=[CALM])


def test_the_cure_of_a_queue_depends_on_the_cache() -> None:
    full = examine(queue_grows, QUEUE).findings[0]
    idle = examine(queue_grows, replace(QUEUE, queue_to=replace(FULL, kv=20))).findings[0]
    assert full.fixes[0].id == "log-more-cache"
    assert idle.fixes[0].id == "log-more-sequences"


def test_a_stall_that_ended_is_a_warning() -> None:
    assert examine(engine_stalled, STALL).findings[0].severity == "error"
    over = replace(STALL, stalled_at_end=False)
    assert examine(engine_stalled, over).findings[0].severity == "warning"


def test_numbers_stand_in_the_message() -> None:
    message = examine(kv_full, CACHE).findings[0].message
    assert message == (
        "in 12 of 60 statistics lines the KV cache is full while requests wait; 400 preemptions"
    )


@pytest.mark.parametrize("check", [queue_grows, kv_full, engine_stalled])
def test_a_log_without_statistics_proves_no_health(check: Any) -> None:
    result = examine(check, Serving(source="serve.log", samples=0))
    assert result.outcome == "not_applicable"


@pytest.mark.parametrize("check", [queue_grows, kv_full, engine_stalled])
def test_a_text_of_something_else_decides_nothing(check: Any) -> None:
    result = examine(check, Serving(source="notes.log", samples=0, gaps=("no engine's line",)))
    assert result.outcome == "blocked"
