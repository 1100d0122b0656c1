"""A load ramp, judged."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.run_load import load_late
from infer_doctor.facts.run import Ramp, Step
from infer_doctor.model import Finding
from infer_doctor.testing import contract, examine

GOOD = Step(
    concurrency=2,
    requests=4,
    failed=0,
    late=0,
    ttft_median=0.1,
    ttft_worst=0.2,
    total_median=1.0,
    total_worst=1.2,
    running_most=2,
    waiting_most=0,
)
LATE = replace(
    GOOD,
    concurrency=4,
    requests=8,
    late=5,
    ttft_median=1.4,
    total_worst=3.0,
    waiting_most=2,
    queue_mean=1.2,
)
RAMP = Ramp(
    url="http://h:8000",
    limit_s=2.0,
    first_token_s=None,
    tokens=64,
    steps=(GOOD, LATE),
    safe=2,
    broken=LATE,
    cause="queueing",
    max_num_seqs=2,
)


def late(**changes: object) -> Finding:
    (found,) = examine(load_late, replace(RAMP, **changes)).findings
    return found


def test_answers_after_the_limit() -> None:
    contract(load_late, fires=[RAMP], passes=[replace(RAMP, broken=None, cause="", safe=4)])
    found = late()
    assert found.category == "queueing" and found.confidence == "certain"
    assert found.message == (
        "with 4 at once 5 of 8 answers came late or not at all (limit 2 s): they wait in the "
        "engine's queue, 1.2 s of the 1.4 s to the first token on average; at most 2 run at once"
    )
    assert [fix.title for fix in found.fixes] == [
        "Send at most 2 requests at once to one server, or use 2 replicas for 4",
        "Or start with --max-num-seqs 4",
        "Or let clients wait 4 s, and retry only after that",
    ]
    assert [fix.restarts for fix in found.fixes] == [False, True, False]
    assert [row.excerpt.split(":")[0] for row in found.evidence] == ["2 at once", "4 at once"]


def test_the_other_causes() -> None:
    assert late(cause="preemption", broken=replace(LATE, preemptions=3.0)).message.endswith(
        "the KV cache was full and 3 requests preempted"
    )
    stalled = late(cause="stalled")
    assert stalled.category == "engine_stalled" and "no step while 2 requests" in stalled.message
    assert (
        "/health took 2.0 s"
        in late(cause="blocked-loop", broken=replace(LATE, loop_lag=2.0)).message
    )
    outside = late(broken=replace(LATE, queue_mean=0.25, server_first=0.5, ttft_mean=2.1))
    assert "250 ms of the 2.1 s" in outside.message
    assert outside.message.endswith(
        "1.6 s pass outside the engine: its front end or the client is short of CPU"
    )
    unknown = late(cause="slow", broken=replace(LATE, running_most=None))
    assert unknown.confidence == "likely" and "shows no metrics" in unknown.message
    few = late(cause="slow", broken=replace(LATE, queue_mean=0.02, own_lag=0.1, preemptions=0.0))
    assert few.confidence == "certain" and few.message.endswith(
        "so many at once: 20 ms in the queue on average, nothing was preempted"
    )
    starved = late(cause="slow", broken=replace(LATE, queue_mean=0.0, own_lag=1.5))
    assert starved.confidence == "likely"
    assert starved.message.endswith("the doctor itself wait 1.5 s, which is part of it")
    one = late(cause="slow", safe=None, broken=replace(LATE, concurrency=1, queue_mean=None))
    assert one.message.endswith("that slow with one alone")
    assert [fix.title for fix in one.fixes] == ["Let clients wait 4 s, and retry only after that"]
    refused = replace(LATE, late=0, failed=8, said="HTTP 404: Not Found")
    lost = late(cause="failed", broken=refused)
    assert "8 of 8 requests failed" in lost.message and lost.message.endswith("HTTP 404: Not Found")
    assert not [fix for fix in lost.fixes if "clients wait" in fix.title]
    alone = late(safe=None)
    assert not [fix for fix in alone.fixes if "at most" in fix.title]
    unended = late(cause="slow", safe=None, broken=replace(LATE, unended=2, total_worst=6.0))
    assert "2 of them not within 6.0 s" in unended.message
    assert not [fix for fix in unended.fixes if "wait" in fix.title]  # how long is not known
    dead = late(cause="failed", broken=refused, died="ended with exit code 1 after 9 s")
    assert dead.message.endswith("; the engine ended with exit code 1 after 9 s")
    assert [fix.id for fix in dead.fixes] == ["run-diagnose-stall"]
    assert "8 failed" in late(steps=(refused,)).evidence[0].excerpt
    mixed = late(cause="slow", broken=replace(LATE, failed=2, said="HTTP 500: no"))
    assert mixed.message.endswith("; 2 failed: HTTP 500: no")
