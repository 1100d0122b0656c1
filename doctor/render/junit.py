"""The report as JUnit XML, for CI that shows tests: a suite a subject, a test case a check.

A check fails with the findings that count for the verdict, so that the file is red exactly when the
exit code is not 0. Other findings stand in the case's output. What is undecided is skipped, or an
error where it was required.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from xml.sax.saxutils import escape, quoteattr

from infer_doctor.model import CheckResult, Finding, Report, Severity
from infer_doctor.render import words
from infer_doctor.render.plain import plain
from infer_doctor.report import SEVERITIES

NO_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 allows nowhere (section 2.2)."""


def render(
    report: Report, fail_on: Severity = "error", required: Collection[str] = frozenset()
) -> str:
    """The report as XML with a final line end."""
    return "\n".join(_lines(report, fail_on, required)) + "\n"


def _lines(report: Report, fail_on: Severity, required: Collection[str]) -> Iterator[str]:
    by_subject: dict[str, list[CheckResult]] = {}
    for row in report.results:
        by_subject.setdefault(row.subject, []).append(row)
    cases = {
        name: [_case(row, fail_on, required) for row in rows] for name, rows in by_subject.items()
    }
    kinds = [kind for rows in cases.values() for kind, _ in rows]
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f"<testsuites name={_value(f'{report.tool.name} {report.command}')} "
        f'{_counts(kinds)} time="{report.duration_s:.3f}">'
    )
    for name, rows in cases.items():
        seconds = sum(row.duration_ms for row in by_subject[name]) / 1000
        yield (
            f"  <testsuite name={_value(name)} {_counts([kind for kind, _ in rows])} "
            f'time="{seconds:.3f}" timestamp={_value(report.started_at.rstrip("Z"))}>'
        )
        yield "    <properties>"
        for key, value in words.versions(report):
            if value:
                yield f"      <property name={_value(key)} value={_value(value)}/>"
        yield "    </properties>"
        for _, lines in rows:
            yield from lines
        yield "  </testsuite>"
    yield "</testsuites>"


def _counts(kinds: list[str]) -> str:
    return (
        f'tests="{len(kinds)}" failures="{kinds.count("failure")}" '
        f'errors="{kinds.count("error")}" skipped="{kinds.count("skipped")}"'
    )


def _case(row: CheckResult, fail_on: Severity, required: Collection[str]) -> tuple[str, list[str]]:
    """What became of the case, and its lines."""
    limit = SEVERITIES.index(fail_on)
    failing = [
        f
        for f in row.findings
        if SEVERITIES.index(f.severity or "info") <= limit and not f.suppressed
    ]
    others = [f for f in row.findings if f not in failing]
    kind, inner = "passed", []
    if failing:
        kind = "failure"
        inner.append(_element("failure", failing[0].message, failing[0].severity or "", failing))
    elif row.outcome in ("blocked", "crashed") and row.check in required:
        kind = "error"
        inner.append(f"<error message={_value(row.reason or '')} type={_value(row.outcome)}/>")
    elif row.outcome in ("blocked", "crashed", "not_applicable"):
        kind = "skipped"
        inner.append(f"<skipped message={_value(f'{row.outcome}: {row.reason or str()}')}/>")
    if others:
        inner.append(f"<system-out>{_text(_account(others))}</system-out>")
    head = (
        f"    <testcase classname={_value(f'infer-doctor.{row.subject}')} name={_value(row.check)} "
        f'time="{row.duration_ms / 1000:.6f}"'
    )
    if not inner:
        return kind, [f"{head}/>"]
    return kind, [f"{head}>", *(f"      {line}" for line in inner), "    </testcase>"]


def _element(name: str, message: str, type: str, findings: list[Finding]) -> str:
    return f"<{name} message={_value(message)} type={_value(type)}>{_text(_account(findings))}</{name}>"


def _account(findings: list[Finding]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{finding.severity}: {finding.message} [{finding.check}]")
        if finding.suppressed:
            lines.append(f"  suppressed: {finding.suppressed}")
        for evidence in finding.evidence:
            lines.append(f"  {words.place(evidence)}: {' '.join(evidence.excerpt.split())}")
        for fix in finding.fixes:
            lines.append(f"  fix: {words.title(fix)}")
            lines += [f"    {words.step(action)[1]}" for action in fix.actions]
    return "\n".join(lines)


def _clean(text: str) -> str:
    return NO_XML.sub("\ufffd", plain(text))


def _text(text: str) -> str:
    return escape(_clean(text))


def _value(text: str) -> str:
    return quoteattr(_clean(text))
