"""The report for an issue: versions on top, findings, the rest folded.

What comes from files of strangers cannot become a heading, a link, a mention or HTML: sentences are
escaped, excerpts stand in fences that are longer than any run of backticks in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from infer_doctor.model import Evidence, Finding, Fix, Report
from infer_doctor.render import words
from infer_doctor.render.plain import plain

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&$])")
"""Characters that mean something in GitHub's Markdown, which shows each after a backslash."""

MENTION = re.compile(r"@(?=\w)")
"""GitHub tells people who are named; an empty comment takes the name apart."""

EXCERPT_LIMIT = 600
"""Characters of one piece of evidence; an issue may have 65,536 in all (GitHub)."""

MESSAGE_LIMIT = 4000
FINDINGS_LIMIT = 40_000
"""Characters of all findings that are told whole; the rest of the report needs its room too."""

NAMES = {"error": "Error", "warning": "Warning", "info": "Note"}


def render(report: Report) -> str:
    """The report as GitHub-flavoured Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"### {text(words.totals(report))}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    for name, value in words.versions(report):
        if value:
            yield f"| {text(name)} | {text(value)} |"
    if report.plan is not None and report.command == "plan":
        from infer_doctor.render.plan import lines as of_plan

        yield ""
        yield from fence("\n".join(line for line, _ in of_plan(report.plan, 80)))
    shown: set[str] = set()
    room = FINDINGS_LIMIT
    untold: Counter[str] = Counter()
    for finding in words.findings(report):
        if room <= 0:
            untold[finding.check] += 1
            continue
        lines = list(_finding(finding, shown))
        room -= sum(len(line) + 1 for line in lines)
        yield from lines
        shown.update(fix.id for fix in finding.fixes)
    if untold:
        names = ", ".join(f"`{id}` ({count})" for id, count in untold.items())
        yield ""
        yield f"And {untold.total()} more, which are in the JSON report: {names}"
    yield ""
    for outcome, title in (
        ("blocked", "could not be decided"),
        ("crashed", "crashed: a fault of infer-doctor"),
        ("not_applicable", "cannot apply here"),
        ("passed", "passed"),
    ):
        yield from _folded(report, outcome, title)
    if hidden := words.suppressed(report):
        yield f"<details><summary>{len(hidden)} suppressed</summary>"
        yield ""
        for finding in hidden:
            yield f"- `{finding.check}`: {text(finding.message)}: {text(finding.suppressed or '')}"
        yield ""
        yield "</details>"
        yield ""
    yield f"Masked before this was written: {text(words.masked(report))}."


def _finding(finding: Finding, shown: set[str]) -> Iterator[str]:
    sure = "" if finding.confidence == "certain" else f", {finding.confidence}"
    yield ""
    yield f"**{NAMES[finding.severity or 'info']}**: {text(finding.message)}"
    yield f"(`{finding.check}`{sure}, {text(finding.subject)}, {finding.category or ''})"
    if finding.evidence:
        yield ""
        yield from fence("\n".join(_evidence(evidence) for evidence in finding.evidence))
    for fix in finding.fixes:
        yield ""
        if fix.id in shown:
            yield f"Fix: as above, {text(fix.title)}"
        else:
            yield from _fix(fix)


def _evidence(evidence: Evidence) -> str:
    excerpt = evidence.excerpt.strip()
    if len(excerpt) > EXCERPT_LIMIT:
        excerpt = excerpt[: EXCERPT_LIMIT - 4] + " ..."
    return f"{words.place(evidence)}: {excerpt}" if excerpt else words.place(evidence)


def _fix(fix: Fix) -> Iterator[str]:
    yield f"Fix: {text(words.title(fix))}"
    if fix.why:
        yield f"({text(fix.why)})"
    for action in fix.actions:
        is_command, content = words.step(action)
        yield ""
        if is_command:
            yield from fence(content, "sh")
        else:
            yield text(content)


def _folded(report: Report, outcome: str, title: str) -> Iterator[str]:
    rows = [row for row in report.results if row.outcome == outcome]
    if not rows:
        return
    yield f"<details><summary>{len(rows)} {title}</summary>"
    yield ""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row.reason or "", []).append(row.check)
    for reason, ids in by_reason.items():
        names = ", ".join(f"`{id}`" for id in dict.fromkeys(ids))
        yield f"- {names}" + (f": {text(reason)}" if reason else "")
    yield ""
    yield "</details>"
    yield ""


def text(value: str) -> str:
    """A sentence in which no character is markup, on one line."""
    line = " ".join(plain(value).split())
    if len(line) > MESSAGE_LIMIT:
        line = line[: MESSAGE_LIMIT - 4] + " ..."
    escaped = SPECIAL.sub(r"\\\1", line)
    return MENTION.sub("@<!-- -->", escaped)


def fence(content: str, language: str = "") -> Iterator[str]:
    """A block of code that its content cannot end."""
    clean = "\n".join(plain(line) for line in content.split("\n"))
    longest = max((len(run) for run in re.findall("`+", clean)), default=0)
    marks = "`" * max(3, longest + 1)
    yield f"{marks}{language}"
    yield clean
    yield marks
