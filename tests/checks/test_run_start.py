"""Starts of the doctor's own, judged."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.run_start import memory_boundary, process_left, start_failed
from infer_doctor.facts.log import Cause, EngineLog
from infer_doctor.facts.run import Boundary, Start, Starts
from infer_doctor.model import Evidence, Finding
from infer_doctor.testing import contract, examine

UP = Start(
    label="as asked",
    why="the launch as it is",
    command=("vllm", "serve", "m"),
    ready=True,
    ended="",
    seconds=22.0,
    log="1.log",
)
DOWN = replace(UP, ready=False, ended="exited", status=1, tail="RuntimeError: no", seconds=9.0)
LOG = EngineLog(
    source="1.log", lines=9, engine="vllm", version=None, starts=1, state="failed", stage=""
)
CAUSE = Cause(
    signature="s",
    category="oom_kv_cache",
    confidence="certain",
    effect="fatal",
    stage="kv",
    process="",
    message="no room",
    evidence=(Evidence(source="1.log", line=1),),
)


def starts(*rows: Start) -> Starts:
    return Starts(question="oom", rows=rows)


def failed(start: Start) -> Finding:
    (found,) = examine(start_failed, starts(start), LOG).findings
    return found


def test_a_start_without_a_named_cause() -> None:
    contract(start_failed, fires=[starts(DOWN), LOG], passes=[starts(UP), LOG])
    assert examine(start_failed, starts(DOWN), replace(LOG, cause=CAUSE)).outcome == "passed"
    one = failed(DOWN)
    assert one.message == "the engine ended with exit code 1 after 9 s"
    assert one.evidence[1] == Evidence(source="1.log", excerpt="RuntimeError: no")
    killed = failed(replace(DOWN, status=None, signal=9))
    assert "killed by signal 9" in killed.message and killed.category == "host_ram"
    memory = failed(replace(DOWN, ended="memory", limit="9.0 GiB of host memory"))
    assert "9.0 GiB of host memory" in memory.message and memory.category == "host_ram"
    idle = failed(replace(DOWN, ended="idle", limit="600 s without a line in the log"))
    assert "600 s without a line" in idle.message and idle.category == "engine_stalled"
    wall = replace(DOWN, ended="wall", limit="--wall allows 9 s to ready", stage="compiling")
    ended = "was ended by the watchdog after 9 s, while compiling (--wall allows 9 s to ready)"
    assert failed(wall).message == f"the engine {ended}"
    line = "INFO 12-01 00:01:02 [backends.py:1] Cache the graph of compile range"
    assert replace(wall, tail=line).why_not == f"it {ended}; its log ends with: {line}"
    assert replace(wall, cause="no room").why_not == f"no room; it {ended}"
    assert replace(DOWN, cause="no room").why_not == "no room"
    refused = failed(replace(DOWN, ended="refused", tail="No such file or directory: /x"))
    assert "could not be started: No such file" in refused.message


def test_a_process_that_does_not_die() -> None:
    left = starts(replace(DOWN, left=(41,)))
    contract(process_left, fires=[left], passes=[starts(UP)])
    assert "PID 41 of as asked is still there" in examine(process_left, left).findings[0].message


BOUNDARY = Boundary(
    option="max-model-len",
    asked=1_500_000,
    works=1_048_448,
    fails=1_064_160,
    starts=3,
    within=0.0148,
    plan=1_040_000,
    engine=1_048_448,
    category="oom_kv_cache",
    stage="kv",
    log="1.log",
)


def test_the_boundary() -> None:
    contract(memory_boundary, fires=[BOUNDARY], passes=[replace(BOUNDARY, works=None, fails=None)])
    (near,) = examine(memory_boundary, BOUNDARY).findings
    assert near.message == (
        "the launch does not start with --max-model-len 1500000; it starts with 1048448 and not with "
        "1064160, 1.5 % apart, in 3 starts (the memory plan said 1040000, the engine said 1048448)"
    )
    assert near.category == "oom_kv_cache"
    all_work = replace(BOUNDARY, asked=None, fails=None, within=None, plan=None, engine=None)
    (one,) = examine(memory_boundary, all_work).findings
    assert one.message == (
        "the launch does not start with --max-model-len its default; it starts with 1048448, in 3 starts"
    )
    assert near.fixes[0].title == "Start with --max-model-len 1048448"
    (none,) = examine(memory_boundary, replace(BOUNDARY, works=None, fails=16.0)).findings
    assert "nor with any of 2 other values" in none.message and not none.fixes
    two = replace(
        BOUNDARY,
        option="tensor-parallel-size",
        asked=1,
        works=2,
        fails=1,
        within=None,
        smallest=True,
        plan=None,
        engine=None,
    )
    (ranks,) = examine(memory_boundary, two).findings
    assert ranks.message.endswith("it starts with 2, in 3 starts")
    (alone,) = examine(memory_boundary, replace(two, works=None, starts=1)).findings
    assert alone.message == (
        "the launch does not start with --tensor-parallel-size 1, and there is no other value to try"
    )
    up = replace(
        two, option="gpu-memory-utilization", asked=0.92, works=0.97, fails=0.96, within=0.0103
    )
    (share,) = examine(memory_boundary, up).findings
    assert share.message == (
        "the launch does not start with --gpu-memory-utilization 0.92; it starts with 0.97 and not "
        "with 0.96, 1.0 % apart, in 3 starts"
    )
    (all_fail,) = examine(memory_boundary, replace(up, works=None, fails=0.98)).findings
    assert "nor with any of 2 other values up to 0.98" in all_fail.message
