"""What preflight says: why a command was not started, for people who read `kubectl logs`."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import textwrap
import time
from collections import Counter
from collections.abc import Collection, Iterator

from infer_doctor.model import Finding, Report, Severity
from infer_doctor.render import words
from infer_doctor.report import SEVERITIES

TERMINATION_LOG = "/dev/termination-log"
TERMINATION_LIMIT = 4096
"""Kubernetes' default path, and the bytes that it keeps of it (Pod: terminationMessagePath)."""

SHOWN = 5
"""Findings that are told; the report has all."""

EXCERPT = 160

WIDTH = 80
"""Columns: `kubectl logs` breaks no lines, and a terminal breaks them within words."""

ENDINGS = {
    "json": "json",
    "text": "txt",
    "markdown": "md",
    "junit": "xml",
    "sarif": "sarif",
    "html": "html",
}

COMING_CATEGORIES = frozenset(
    ("fabric_manager", "model_files", "oom_startup_free_mem", "port_in_use", "weights_corrupt")
)
COMING_CHECKS = frozenset(
    (
        "cache-disk-low",
        "cache-not-writable",
        "container-without-gpu",
        "cuda-gpus-missing",
        "cuda-init-failed",
        "driver-missing",
        "driver-not-answering",
        "gpu-fewer-than-bus",
        "gpu-none",
    )
)
"""What may be there a minute later: a fabric that trains, a download or mount in the making, a port
or memory that an ending engine gives back, a driver that the operator installs."""


def _refusing(report: Report, fail_on: Severity) -> list[Finding]:
    limit = SEVERITIES.index(fail_on)
    return [f for f in words.findings(report) if SEVERITIES.index(f.severity or "info") <= limit]


def _undecided(report: Report, required: Collection[str]) -> Iterator[tuple[str, str]]:
    for row in report.results:
        if row.check in required and row.outcome in ("blocked", "crashed"):
            yield row.check, row.reason or row.outcome


def reasons(report: Report, fail_on: Severity, required: Collection[str]) -> list[str]:
    """The ids of the checks that refuse the start."""
    ids = [finding.check for finding in _refusing(report, fail_on)]
    return list(dict.fromkeys([*ids, *(id for id, _ in _undecided(report, required))]))


def may_come(report: Report, fail_on: Severity, required: Collection[str]) -> bool:
    """Whether everything that refuses the start may still become right by waiting."""
    return all(
        finding.check in COMING_CHECKS or finding.category in COMING_CATEGORIES
        for finding in _refusing(report, fail_on)
    )


def started(report: Report, program: str) -> str:
    """What is said before the command is started: the counts, a line for each that is wrong."""
    lines = [f"{words.totals(report)} in {report.duration_s:.1f} s; starting {program}"]
    told = [f for f in words.findings(report) if f.severity != "info"]
    for finding in told[:SHOWN]:
        lines += _wrapped(f"{finding.severity}: {finding.message} [{finding.check}]", 2)
    if len(told) > SHOWN:
        lines.append(f"  and {len(told) - SHOWN} more")
    reasons = Counter(row.reason or "" for row in report.results if row.outcome == "blocked")
    if report.counts.blocked > report.counts.passed + report.counts.failed and reasons:
        lines += _wrapped(f"most was undecided: {reasons.most_common(1)[0][0]}", 2)
    return "\n".join(lines)


def refused(report: Report, fail_on: Severity, required: Collection[str]) -> str:
    """Why the command is not started and what to do, the cause first."""
    lines = [f"refused: {words.totals(report).partition(';')[0]}"]
    found = _refusing(report, fail_on)
    for finding in found[:SHOWN]:
        lines += _wrapped(f"{finding.severity}: {finding.message} [{finding.check}]", 2)
        for evidence in finding.evidence[:2]:
            excerpt = _line(evidence.excerpt)[:EXCERPT]
            lines += _wrapped(words.place(evidence) + (f": {excerpt}" if excerpt else ""), 4)
        for fix in finding.fixes[:2]:
            lines += _wrapped(f"fix: {words.title(fix)}", 4)
            lines += [
                f"      {text}" for is_command, text in map(words.step, fix.actions) if is_command
            ]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more")
    by_reason: dict[str, list[str]] = {}
    for id, reason in _undecided(report, required):
        by_reason.setdefault(reason, []).append(id)
    for reason, ids in by_reason.items():
        lines += _wrapped(f"undecided, but required: {', '.join(ids)}: {reason}", 2)
    lines += _wrapped(f"not started: {' '.join(report.target.launch or ())}", 2)
    lines.append("  To start it all the same: INFER_DOCTOR_SKIP=1, or INFER_DOCTOR_WARN_ONLY=1")
    return "\n".join(lines)


def _line(text: str) -> str:
    return " ".join(text.split())


def _wrapped(text: str, indent: int) -> list[str]:
    """Lines of at most 80 columns where words allow it; paths and options stay whole."""
    return textwrap.wrap(
        _line(text),
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def leave_message(text: str) -> None:
    """Put the text where Kubernetes looks for the reason of an end, if there is such a file."""
    data = text.encode("utf-8", "replace")
    if len(data) > TERMINATION_LIMIT:
        cut = data[: TERMINATION_LIMIT - 5].decode("utf-8", "ignore")
        data = f"{cut}\n...\n".encode()
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(TERMINATION_LOG, flags)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)


def report_path(place: str, format: str) -> str:
    """FILE as it is; in a folder a name with the pod's name and the time."""
    if not (place.endswith("/") or os.path.isdir(place)):
        return place
    pod = os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or socket.gethostname()
    name = re.sub(r"[^\w.-]", "-", pod)[:80]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return os.path.join(place, f"{name}-{stamp}.{ENDINGS[format]}")
