"""Cold and warm starts, judged."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.checks.run_cold import start_slow
from infer_doctor.facts.run import ColdWarm, Timed
from infer_doctor.testing import contract, examine


def row(caches: str, seconds: float | None, *, eager: bool = False) -> Timed:
    return Timed(
        label=caches,
        caches=caches,  # type: ignore[arg-type]
        eager=eager,
        seconds=seconds,
        phases={"compile": 40.0, "weights": 9.0},
    )


SLOW = ColdWarm(
    rows=(
        row("empty", 90.0),
        row("filled", 48.0),
        row("empty", 40.0, eager=True),
        row("filled", 39.0, eager=True),
    ),
    limit_s=60.0,
)
FAST = replace(SLOW, rows=(row("empty", 50.0), row("filled", 48.0)))


def test_a_start_beyond_its_limit() -> None:
    contract(start_slow, fires=[SLOW], passes=[FAST])
    (found,) = examine(start_slow, SLOW).findings
    assert found.severity == "error"
    assert found.message == (
        "the cold start took 90.0 s; the limit is 60 s. Most of it: compile, 40.0 s"
    )
    eager, caches, longer = (fix.title for fix in found.fixes)
    assert "--enforce-eager: saved 50.0 s" in eager
    assert "saved 42.0 s" in caches
    assert "at least 135 s" in longer


def test_without_a_limit_a_saving_is_a_warning() -> None:
    (found,) = examine(start_slow, replace(SLOW, limit_s=None)).findings
    assert found.severity == "warning"
    assert examine(start_slow, replace(FAST, limit_s=None)).outcome == "passed"


def test_a_start_that_failed_is_no_pass() -> None:
    broken = replace(SLOW, rows=(row("empty", None),))
    assert examine(start_slow, broken).outcome == "blocked"
    assert examine(start_slow, replace(SLOW, rows=())).outcome == "blocked"
    warm = replace(SLOW, rows=(row("empty", 30.0), row("filled", None)), limit_s=60.0)
    assert examine(start_slow, warm).outcome == "blocked"
    assert examine(start_slow, replace(warm, limit_s=20.0)).outcome == "failed"
