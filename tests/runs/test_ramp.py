"""Which cause the server's own numbers name."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from infer_doctor.facts.run import Step
from infer_doctor.facts.server import EngineState
from infer_doctor.runs.ramp import Wanted, Watch, _counted, cause_of
from infer_doctor.server.metrics import Scrape

STEP = Step(
    concurrency=8,
    requests=16,
    failed=0,
    late=9,
    ttft_median=2.0,
    ttft_worst=5.0,
    ttft_mean=2.2,
    server_first=2.1,
    own_lag=0.01,
    total_median=4.0,
    total_worst=8.0,
    queue_mean=0.0,
    waiting_most=0.0,
    running_most=8.0,
    preemptions=0.0,
    kv_most=0.2,
    loop_lag=0.01,
    steps_made=900.0,
)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, "slow"),
        ({"steps_made": 0.0}, "stalled"),
        ({"preemptions": 4.0, "waiting_most": 3.0, "queue_mean": 1.5}, "preemption"),
        ({"waiting_most": 6.0, "queue_mean": 1.5}, "queueing"),
        ({"waiting_most": 6.0, "queue_mean": 0.1}, "slow"),
        ({"waiting_most": 0.0, "running_most": 0.0, "queue_mean": 1.5}, "queueing"),
        ({"loop_lag": 3.0}, "blocked-loop"),
        ({"loop_lag": 3.0, "queue_mean": 1.5}, "queueing"),
        ({"loop_lag": 3.0, "own_lag": 2.5}, "slow"),
        ({"running_most": 0.0, "steps_made": 0.0}, "slow"),
        ({"running_most": 0.0, "steps_made": 0.0, "ttft_median": None}, "stalled"),
        ({"running_most": None, "waiting_most": None, "steps_made": None}, "slow"),
    ],
)
def test_each_cause(changes: dict[str, object], cause: str) -> None:
    assert cause_of(replace(STEP, **changes), Wanted()) == cause


def test_a_queue_of_the_engine_behind_a_slow_way() -> None:
    """On a machine that the engine fills: the queue is small beside what the client waits in all, and
    most of what the server itself counts. Measured: vLLM 0.32, 16 at once, two of them run."""
    seen = replace(STEP, concurrency=16, queue_mean=0.55, server_first=0.6, ttft_mean=2.3)
    assert cause_of(seen, Wanted(max_num_seqs=2)) == "queueing"
    assert cause_of(replace(seen, running_most=2.0), Wanted()) == "queueing"
    assert cause_of(seen, Wanted(max_num_seqs=64)) == "slow"
    assert cause_of(replace(seen, loop_lag=2.0, own_lag=0.1), Wanted(max_num_seqs=2)) == (
        "blocked-loop"
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"late": 0, "failed": 16, "said": "HTTP 404: Not Found"}, "failed"),
        ({"late": 1, "failed": 15}, "slow"),
        ({"steps_made": 0.0, "total_worst": 0.3}, "slow"),
    ],
)
def test_what_proves_neither_slowness_nor_a_stall(changes: dict[str, object], cause: str) -> None:
    assert cause_of(replace(STEP, **changes), Wanted()) == cause


def test_a_counter_that_fell_is_of_a_new_process() -> None:
    def scrape(preempted: float) -> Scrape:
        return Scrape(kind="vllm", engines={"0": EngineState(preemptions=preempted)})

    assert _counted(scrape(3), scrape(5), "preemptions") == 2
    assert _counted(scrape(3), scrape(0), "preemptions") is None


def test_a_health_that_never_answered_was_late() -> None:
    watch = Watch()
    watch.asked = time.monotonic() - 7.0
    watch.end()
    assert watch.lag >= 7.0
