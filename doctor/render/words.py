"""What every form of the report says in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def system(host: Mapping[str, Any]) -> list[str]:
    """Operating system, kernel, container."""
    found = [host.get("os")]
    if host.get("kernel"):
        found.append(f"Linux {host['kernel']} {host.get('machine') or ''}".strip())
    if host.get("container"):
        found.append(f"container ({host['container']})")
    return [part for part in found if part]


def gpus(host: Mapping[str, Any]) -> list[str]:
    """2 x NVIDIA H200."""
    names = list(host.get("gpus") or ())
    return [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]


def engine(report: Report) -> str:
    """vllm 0.26.0; "none" in an environment without one."""
    if found := report.target.engine:
        return f"{found.name} {found.version or 'of unknown version'}"
    return "none" if report.target.host.get("environment") else ""


def versions(report: Report) -> Iterator[tuple[str, str]]:
    """What a reader of a ticket asks first, a name and a value each; only what is known."""
    host = report.target.host
    yield report.tool.name, f"{report.tool.version} {report.command}, {report.started_at}"
    name = str(host.get("hostname") or host.get("subject") or "")
    yield "host", _joined([name, *system(host)])
    yield "GPU", _joined(gpus(host))
    yield "driver", _joined([host.get("driver"), host.get("cuda") and f"CUDA {host['cuda']}"])
    if found := engine(report):
        yield "engine", found
    yield "torch", str(host.get("torch") or "")
    yield "Python", _joined([host.get("python"), host.get("environment")])
    if report.target.launch:
        yield "launch", " ".join(report.target.launch)


def masked(report: Report) -> str:
    """How many values of which kind are not in the report."""
    return ", ".join(f"{row.count} {row.kind}" for row in report.redactions) or "nothing"


def _joined(parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part)
