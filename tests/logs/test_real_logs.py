"""Logs of a real vLLM on an H200, two H200s and a CPU: the cause, its line, and the phases of a start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infer_doctor.facts.log import ColdStart, EngineLog
from infer_doctor.logs.read import read
from infer_doctor.logs.source import order

LOGS = Path(__file__).parent.parent / "captures" / "logs"

CAUSES = {
    "cpu-memory": ("oom_startup_free_mem", 51, "--gpu-memory-utilization 0.82"),
    "fail-70b-load-oom": ("oom_load", 41, "--tensor-parallel-size 2"),
    "fail-8b-len-kv": ("oom_kv_cache", 41, "--max-model-len 55840"),
    "fail-lfs-pointer": ("weights_corrupt", 79, "git lfs pull"),
    "fail-no-weights": ("model_files", 72, "hf download"),
    "fail-orphan-holds-gpu": ("oom_startup_free_mem", 40, "Free 120.9 GiB on cuda:0"),
    "fail-quant-mismatch": ("quantization", 23, "Drop --quantization awq"),
    "fail-tp2-one-gpu": ("gpu_count_ray", 22, "--tensor-parallel-size 1"),
    "fail-unknown-arch": ("transformers_version", 23, "NopeForCausalLM"),
    "fail-unknown-arg": ("launch_argument", 10, "Remove auto_warmup"),
    "fail-visible-none": ("device_ids", 35, "CUDA_VISIBLE_DEVICES"),
}
"""Log -> category, line of the cause, what its first fix says."""

HEALTHY = sorted(path.stem for pattern in ("fit-*", "x2-*") for path in LOGS.glob(f"{pattern}.log"))
KILLED = "fit-gemma3-hybrid"
"""Its process was ended from outside during warm-up: the log stops there."""

PRINTED = {
    "weights": re.compile(
        r"Loading weights took ([\d.]+) s|Model loading took [\d.]+ GiB and ([\d.]+)"
    ),
    "compile": re.compile(r"torch\.compile took ([\d.]+) s"),
    "profile run": re.compile(r"Initial profiling/warmup run took ([\d.]+) s"),
    "CUDA graphs": re.compile(r"Graph capturing finished in (\d+) secs"),
}


def facts(name: str) -> dict[type, object]:
    return read(order([str(LOGS / f"{name}.log")])[0])


def log_of(name: str) -> EngineLog:
    found = facts(name)[EngineLog]
    assert isinstance(found, EngineLog)
    return found


@pytest.mark.parametrize("name", CAUSES)
def test_cause_and_its_line(name: str) -> None:
    category, line, says = CAUSES[name]
    cause = log_of(name).cause
    assert cause is not None
    assert (cause.category, cause.evidence[0].line) == (category, line)
    assert says in cause.fixes[0].title
    assert cause.confidence == "certain"


def test_there_is_a_case_for_every_failure() -> None:
    failures = {path.stem for path in LOGS.glob("*.log")} - set(HEALTHY)
    assert failures == set(CAUSES)


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != KILLED])
def test_healthy(name: str) -> None:
    log = log_of(name)
    assert log.state == "ready"
    assert log.cause is None
    assert log.warnings == ()
    assert log.unexplained is None


def test_start_that_was_killed_is_not_called_healthy() -> None:
    log = log_of(KILLED)
    assert log.state == "incomplete"
    assert "warming up" in (log.unexplained or "")


@pytest.mark.parametrize("name", [name for name in HEALTHY if name != KILLED])
def test_phases_are_those_that_the_engine_printed(name: str) -> None:
    start = facts(name)[ColdStart]
    assert isinstance(start, ColdStart)
    assert start.unattributed <= 0.1 * start.seconds
    text = (LOGS / f"{name}.log").read_text()
    measured = {phase.name: phase.seconds for phase in start.phases}
    for phase, pattern in PRINTED.items():
        if match := pattern.search(text):
            seconds = float(next(group for group in match.groups() if group))
            assert measured[phase] == pytest.approx(seconds, abs=1), phase


def test_advice_of_the_log_is_held_against_its_numbers() -> None:
    cause = log_of("fail-70b-load-oom").cause
    assert cause is not None
    assert "weights take 131.45 GiB" in cause.message
    assert "It is 0.92; 0.99 would give the KV cache at least 3.1 GiB" in cause.wrong
    assert [row.line for row in cause.evidence] == [41, 21, 23]


def test_context_that_fits_and_the_share_that_would_do() -> None:
    cause = log_of("fail-8b-len-kv").cause
    assert cause is not None
    assert [fix.title for fix in cause.fixes] == [
        "Start with --max-model-len 55840",
        "Or start with --gpu-memory-utilization 0.25",
    ]
