"""What every form of the report says in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infer_doctor.model import Evidence, Finding, Fix, Report
from infer_doctor.report import rank
from infer_doctor.units import plural

SENTENCES = ("text", "edit")
"""Kinds of steps whose text is no command."""


def findings(report: Report) -> list[Finding]:
    """All findings that count, worst first."""
    found = (f for row in report.results for f in row.findings if not f.suppressed)
    return sorted(found, key=rank)


def suppressed(report: Report) -> list[Finding]:
    """Those that do not count, by a suppression or the baseline."""
    found = (f for row in report.results for f in row.findings if f.suppressed)
    return sorted(found, key=rank)


def place(evidence: Evidence) -> str:
    """`file:line` or the source alone."""
    return evidence.source if evidence.line is None else f"{evidence.source}:{evidence.line}"


def title(fix: Fix) -> str:
    """The imperative, with what is to be known before one does it."""
    notes: list[str] = [] if fix.safety == "safe" else [fix.safety]
    notes += ["restarts the engine"] if fix.restarts else []
    return fix.title + (f" ({', '.join(notes)})" if notes else "")


def step(action: Any) -> tuple[bool, str]:
    """Whether one step of a fix is a line for a shell, and its text, whatever kind it is of."""
    return action.kind not in SENTENCES, str(getattr(action, "text", "") or action)


def totals(report: Report) -> str:
    """`fail: 1 error, 0 warnings, 2 notes; 61 passed, 3 undecided, 9 n/a`."""
    counts = report.counts
    text = (
        f"{report.verdict}: {plural(counts.error, 'error')}, {plural(counts.warning, 'warning')}, "
        f"{plural(counts.info, 'note')}; {counts.passed} passed, {counts.blocked} undecided, "
        f"{counts.not_applicable} n/a"
    )
    return text + (f", {counts.crashed} crashed" if counts.crashed else "")


def versions(report: Report) -> Iterator[tuple[str, str]]:
    """What a reader of a ticket asks first, a name and a value each; only what is known."""
    host = report.target.host
    yield report.tool.name, f"{report.tool.version} {report.command}, {report.started_at}"
    place = [str(host.get("hostname") or host.get("subject") or ""), host.get("os")]
    if host.get("kernel"):
        place.append(f"Linux {host['kernel']} {host.get('machine') or ''}".strip())
    if host.get("container"):
        place.append(f"container ({host['container']})")
    yield "host", _joined(place)
    gpus = list(host.get("gpus") or ())
    yield "GPU", _joined(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus))
    yield "driver", _joined([host.get("driver"), host.get("cuda") and f"CUDA {host['cuda']}"])
    if engine := report.target.engine:
        yield "engine", f"{engine.name} {engine.version or 'of unknown version'}"
    elif host.get("environment"):
        yield "engine", "none"
    yield "torch", str(host.get("torch") or "")
    yield "Python", _joined([host.get("python"), host.get("environment")])
    if report.target.launch:
        yield "launch", " ".join(report.target.launch)


def masked(report: Report) -> str:
    """How many values of which kind are not in the report."""
    return ", ".join(f"{row.count} {row.kind}" for row in report.redactions) or "nothing"


def _joined(parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)
