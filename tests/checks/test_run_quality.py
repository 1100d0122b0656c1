"""A comparison of answers, judged."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.run_quality import quality_degraded
from infer_doctor.facts.run import Bounds, Quality
from infer_doctor.testing import contract, examine

SAME = Quality(
    baseline="a",
    candidate="b",
    prompts=110,
    compared=108,
    verdict="same",
    reasons=(),
    divergence=Bounds(value=0.001, low=0.0005, high=0.002),
)
WORSE = replace(SAME, verdict="degraded", reasons=("answers differ by 0.2 nats",))


def test_worse_answers() -> None:
    contract(quality_degraded, fires=[WORSE], passes=[SAME])
    (found,) = examine(quality_degraded, WORSE).findings
    assert found.message == "answers differ by 0.2 nats"
    assert "switch one thing" in found.fixes[0].title
    fp8 = "--kv-cache-dtype fp8"
    named = replace(WORSE, cause=f"{fp8} (baseline: not given)", cure=f"without {fp8}")
    (found,) = examine(quality_degraded, replace(named, tried=("x",))).findings
    assert found.fixes[0].title == f"Start without {fp8}"
    assert found.message.endswith(
        f"0.2 nats; the cause is {fp8} (baseline: not given): the same without {fp8}"
    )
    (found,) = examine(quality_degraded, named).findings
    assert found.message.endswith("nothing else of the launches differs")


def test_too_few_prompts_are_no_pass() -> None:
    result = examine(quality_degraded, replace(SAME, verdict="cannot-tell", compared=8))
    assert result.outcome == "blocked" and "8 answered prompts cannot tell" in (result.reason or "")
