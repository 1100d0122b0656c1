"""What cold and warm starts of the doctor's own showed."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.run import ColdWarm, Timed
from infer_doctor.fixes.run import cure
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check

SPARE = 1.5
"""Times the measured start that a limit should allow; ours: starts from a disk that others use vary so."""

WORTH_S = 10.0
"""One period of Kubernetes' default probes: saving less changes no deployment."""

WORTH_SHARE = 0.1
"""Of the cold start: starts of one launch on one machine differ by some percent."""


def _row(runs: ColdWarm, caches: str, *, eager: bool) -> Timed | None:
    rows = (row for row in runs.rows if row.caches == caches and row.eager is eager)
    return next((row for row in rows if row.seconds is not None), None)


def savings(runs: ColdWarm) -> list[tuple[float, Fix]]:
    """What each option would save of the cold start, as measured, the largest first."""
    eager = not any(not row.eager for row in runs.rows)
    cold = _row(runs, "empty", eager=eager)
    if cold is None or cold.seconds is None:
        return []
    found = []
    warm = _row(runs, "filled", eager=eager)
    if warm is not None and warm.seconds is not None:
        saved = cold.seconds - warm.seconds
        found.append(
            (
                saved,
                cure(
                    "keep-caches",
                    f"Keep the caches (VLLM_CACHE_ROOT, ~/.triton, ~/.nv) and the weights near: "
                    f"saved {saved:.1f} s here",
                    why=f"the warm start took {warm.seconds:.1f} s",
                ),
            )
        )
    other = _row(runs, "empty", eager=True) if not eager else None
    if other is not None and other.seconds is not None:
        saved = cold.seconds - other.seconds
        found.append(
            (
                saved,
                cure(
                    "start-eager",
                    f"Or start with --enforce-eager: saved {saved:.1f} s here; tokens come slower",
                    why="no compilation and no graphs",
                ),
            )
        )
    found.sort(key=lambda row: -row[0])
    return [row for row in found if row[0] >= max(WORTH_SHARE * cold.seconds, 0.5)]


@check("run-start-slow", severity="warning", category="cold_start", since="0.3")
def start_slow(runs: ColdWarm) -> Iterator[Finding]:
    """A cold start takes longer than it may, or longer than it must.

    ## Why it matters
    A platform kills a server that is not ready in time and starts the next one, as cold as the first.

    ## How it decides
    The launch was started with empty caches of its own and its weights dropped from the page cache,
    then again with those caches, and both in eager mode. Beyond --limit it is an error. Without a limit
    it is told when one of these saves at least 10 s (one period of Kubernetes' default probes) and a
    tenth of the start. The phases are those of the engine's log.

    ## Fix safety
    Manual: the launch or its volumes have to be changed; each saving was measured.
    """
    cold = next((row for row in runs.rows if row.caches == "empty"), None)
    if cold is None:
        raise Unavailable("no cold start was made")
    if cold.seconds is None:
        raise Unavailable("the cold start did not become ready")
    saved = savings(runs)
    late = runs.limit_s is not None and cold.seconds > runs.limit_s
    enough = bool(saved) and saved[0][0] >= max(WORTH_S, WORTH_SHARE * cold.seconds)
    if not late and (runs.limit_s is not None or not enough):
        lost = next((row.label for row in runs.rows if row.seconds is None), None)
        if lost is not None:
            raise Unavailable(f"the start {lost!r} did not become ready")
        return
    message = f"the cold start took {cold.seconds:.1f} s"
    if late:
        message += f"; the limit is {runs.limit_s:g} s"
    if cold.phases:
        name, most = max(cold.phases.items(), key=lambda row: row[1])
        message += f". Most of it: {name}, {most:.1f} s"
    fixes = [fix for _, fix in saved]
    if late:
        fixes.append(
            cure(
                "allow-longer",
                f"Allow at least {cold.seconds * SPARE:.0f} s until ready (startupProbe: "
                f"failureThreshold x periodSeconds)",
                why="half as much again as was measured",
            )
        )
    yield Finding(
        about="start",
        message=message,
        severity="error" if late else None,
        evidence=tuple(
            Evidence(
                source=row.log or "run",
                excerpt=f"{row.label}: {row.seconds:.1f} s"
                if row.seconds
                else f"{row.label}: failed",
            )
            for row in runs.rows
        ),
        fixes=tuple(fixes),
    )
