"""The report for a person: worst first, readable without colour and at 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from infer_doctor.model import CheckResult, Evidence, Finding, Fix, Report
from infer_doctor.render import words
from infer_doctor.render.plain import plain
from infer_doctor.units import names, plural

MARKS = {"error": "FAIL", "warning": "WARN", "info": "note"}
STYLES = {"FAIL": "bold red", "WARN": "bold yellow", "note": "bold cyan", "ok": "green"}
INDENT = " " * 6
EXCERPT_WIDTH = 160

COPIED = ("command", "variable", "write", "packages", "end")
"""Kinds of actions whose text is a command: never broken, so that it can be copied."""

CLUSTER = "cluster"
"""The subject that stands for all machines together (`examine.CLUSTER`)."""

MACHINE = "host"
"""The subject that is the one machine (`examine.Examination.of`)."""

GIVEN = {"diagnose": "log", "compare": "of"}
"""What a command is given in place of a machine, where that is no file that starts an engine."""

MOST_NAMED = 10
"""Subjects, checks of a cluster, or checks that cannot apply that are named one by one."""

MOST_REASONS = 12
"""Different reasons for what could not be decided, where there are several subjects."""

NAMED = 5
"""Checks that cannot apply for one reason are named up to this number: the checks of a launch are
many where no launch was given."""


@dataclass(frozen=True)
class Line:
    """A line of text and the style of its first word."""

    text: str
    style: str = ""


def render(report: Report, width: int = 80) -> list[Line]:
    """All lines; commands are never broken, so that they can be copied."""
    lines = [*_head(report, width), Line("")]
    if report.plan is not None and report.command == "plan":
        from infer_doctor.render.plan import lines as of_plan

        lines += [*(Line(text, style) for text, style in of_plan(report.plan, width)), Line("")]
    shown: set[str] = set()
    subjects = {row.subject for row in report.results}
    for group in _alike(words.findings(report), together=CLUSTER in subjects):
        lines += [*_finding(group, shown, len(subjects) > 1, width), Line("")]
        shown.update(fix.id for finding in group for fix in finding.fixes)
    if report.measurements and "cold_start" in report.measurements:
        from infer_doctor.render.bars import cold_starts

        lines += [Line(text) for text in cold_starts(report.measurements["cold_start"], width)]
    if report.measurements and report.command == "probe":
        from infer_doctor.render.server import lines as of_server

        lines += [Line(text) for text in of_server(report.measurements, width)]
    if report.measurements and report.command in ("reproduce", "compare"):
        from infer_doctor.render.runs import lines as of_runs

        lines += [Line(text) for text in of_runs(report.measurements, width)]
    lines += _rest(report, width)
    return [Line(plain(line.text), line.style) for line in lines]


def _alike(findings: Sequence[Finding], *, together: bool) -> list[list[Finding]]:
    """What several subjects have in the same words is shown once; of a cluster also what differs from
    node to node in numbers only."""
    groups: dict[object, list[Finding]] = {}
    for finding in findings:
        same: tuple[object, ...] = (finding.check, finding.severity, finding.confidence)
        if together and finding.subject != CLUSTER:
            key: object = (*same, finding.fingerprint)
        else:
            key = (*same, finding.message, finding.evidence, finding.fixes)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _head(report: Report, width: int) -> Iterator[Line]:
    """What was examined, a line for each part that is known."""
    yield Line(f"infer-doctor {report.tool.version} {report.command}", "bold")
    host = report.target.host
    where, name = _examined(report)
    place = [name, *words.system(host)]
    gpu = words.gpus(host)
    gpu += [f"driver {host['driver']}"] if host.get("driver") else []
    gpu += [f"CUDA {host['cuda']}"] if host.get("cuda") else []
    engine = [words.engine(report)]
    engine += [f"torch {host['torch']}"] if host.get("torch") else []
    engine += [f"Python {host['python']}"] if host.get("python") else []
    engine += [f"in {host['environment']}"] if host.get("environment") else []
    launch = [" ".join(report.target.launch)] if report.target.launch else []
    subjects = dict.fromkeys(row.subject for row in report.results)
    more = [name for name in subjects if name not in (host["subject"], CLUSTER)]
    if len(more) > MOST_NAMED:
        more = [names(more)]
    for name, parts in (
        (where, place),
        ("gpu", gpu),
        ("engine", engine),
        ("launch", launch),
        ("and", more),
    ):
        yield from _mark(f"  {name}", ", ".join(part for part in parts if part), width, 10)


def _examined(report: Report) -> tuple[str, str]:
    """What was examined: a machine, or what was given in its place."""
    host = report.target.host
    name = str(host.get("hostname") or host["subject"])
    if host.get("hostname"):
        return "host", name
    if name == MACHINE:  # no check asked for its name
        return "host", ""
    if "://" in name:
        return "server", name
    if name.startswith(("container ", "image ")):
        return "docker", name
    return GIVEN.get(report.command, "file"), name


def _finding(
    group: Sequence[Finding], shown: Collection[str], several: bool, width: int
) -> Iterator[Line]:
    """Message, id, evidence, fixes; a fix that stands above is only named again."""
    finding = group[0]
    where = _where(group) if several and finding.subject != CLUSTER else ""
    mark = MARKS[finding.severity or "info"]
    first = True
    for line in textwrap.wrap(finding.message, width - len(INDENT)) or [""]:
        yield Line(f"{mark:<6}{line}" if first else INDENT + line, STYLES[mark] if first else "")
        first = False
    sure = "" if finding.confidence == "certain" else f", {finding.confidence}"
    for line in textwrap.wrap(f"[{finding.check}{sure}]{where}", width - len(INDENT)):
        yield Line(INDENT + line, "dim")
    for evidence in finding.evidence:
        yield from _evidence(evidence, width)
    for fix in finding.fixes:
        if fix.id in shown:
            yield from _mark("  fix", f"as above: {fix.title}", width)
        else:
            yield from _fix(fix, width)


def _where(group: Sequence[Finding]) -> str:
    subjects = list(dict.fromkeys(finding.subject for finding in group))
    differ = len({finding.message for finding in group}) > 1
    return f" in {names(subjects)}{f' (numbers of {subjects[0]})' if differ else ''}"


def _evidence(evidence: Evidence, width: int) -> Iterator[Line]:
    place = words.place(evidence)
    excerpt = " ".join(evidence.excerpt.split())
    if len(excerpt) > EXCERPT_WIDTH:
        excerpt = excerpt[: EXCERPT_WIDTH - 4] + " ..."
    text = f"{place}: {excerpt}" if excerpt else place
    for line in textwrap.wrap(text, width - 10, break_long_words=False, break_on_hyphens=False):
        yield Line(f"{INDENT}  {line}")


def _fix(fix: Fix, width: int) -> Iterator[Line]:
    yield from _mark("  fix", words.title(fix), width)
    if fix.why:
        yield from _wrap(fix.why, " " * 8, width)
    for action in fix.actions:
        if action.kind in COPIED:
            yield Line(f"{' ' * 10}{action.text}")
        else:
            yield from _wrap(action.text, " " * 10, width)


def _mark(mark: str, text: str, width: int, column: int = 8) -> Iterator[Line]:
    """Text from a column on, with a mark before its first line."""
    for number, line in enumerate(textwrap.wrap(text, width - column, break_on_hyphens=False)):
        yield Line(f"{mark if number == 0 else '':<{column}}{line}", "mark" if number == 0 else "")


def _rest(report: Report, width: int) -> Iterator[Line]:
    """What passed as a count, what could not be decided one by one, and the counts."""
    counts = report.counts
    nodes = {row.subject for row in report.results}
    on = f" on {len(nodes) - 1:,} nodes and over all" if CLUSTER in nodes else ""
    on = " over all nodes" if nodes == {CLUSTER} else on
    yield Line(f"ok    {plural(counts.passed, 'check')} passed{on}", "green")
    if counts.not_applicable:
        yield from _inapplicable(report, width)
    for finding in words.suppressed(report):
        text = f"suppressed: {finding.check}: {finding.message} ({finding.suppressed})"
        yield from _hanging("..", text, width)
    yield from _undecided("??", "blocked", "could not be decided", report, width)
    yield from _undecided("!!", "crashed", "crashed (a fault of infer-doctor)", report, width)
    yield Line("")
    decided = counts.passed + counts.failed
    if counts.blocked and not decided:
        yield Line("No check could be decided")
    elif counts.blocked > decided and not counts.failed:
        yield Line(
            f"Nothing wrong in what could be read: {plural(decided, 'check')} of {len(report.results)}"
        )
    yield Line(words.totals(report), "bold")


def _inapplicable(report: Report, width: int) -> Iterator[Line]:
    """The ids of what cannot apply; many only as a number, with the reason where it is one."""
    rows = [row for row in report.results if row.outcome == "not_applicable"]
    if len({row.subject for row in report.results} - {CLUSTER}) > 1:  # of many, a wall of numbers
        text = f"{plural(len(rows), 'check')} cannot apply here (--format json has the reasons)"
        yield from _hanging("--", text, width)
        return
    few: list[CheckResult] = []
    many: list[tuple[str, int]] = []
    for reason, group in _by_reason(rows).items():
        if len(group) > NAMED:
            many.append((reason, len(group)))
        else:
            few += group
    parts = [f"{number} because {reason}" for reason, number in many]
    if len(few) <= MOST_NAMED:
        parts = [_ids(few), *parts] if few else parts
    elif parts:
        parts.append(f"{len(few)} for other reasons (--format json has them)")
    else:
        parts.append("for different reasons (--format json has them)")
    yield from _hanging(
        "--", f"{plural(len(rows), 'check')} cannot apply here: {'; '.join(parts)}", width
    )


def _undecided(mark: str, outcome: str, what: str, report: Report, width: int) -> Iterator[Line]:
    """Rows of one outcome, those with the same reason together."""
    rows = [row for row in report.results if row.outcome == outcome]
    if not rows:
        return
    yield Line(f"{mark:<6}{plural(len(rows), 'check')} {what}", "yellow")
    subjects = {row.subject for row in report.results} - {CLUSTER}
    reasons = sorted(_by_reason(rows).items(), key=lambda row: -len(row[1]))
    for reason, group in reasons[:MOST_REASONS] if len(subjects) > 1 else _by_reason(rows).items():
        ids = _ids(group)
        own = [name for name in dict.fromkeys(row.subject for row in group) if name in subjects]
        some = CLUSTER in {row.subject for row in report.results} and 0 < len(own) < len(subjects)
        if some and len(ids.split(", ")) > MOST_NAMED:
            ids = plural(len(group), "check")
        yield from _hanging("", f"{ids}{f' in {names(own)}' if some else ''}: {reason}", width)
    if len(subjects) > 1 and len(reasons) > MOST_REASONS:
        left = len(reasons) - MOST_REASONS
        yield from _hanging("", f"and {left:,} more reasons (--format json has all)", width)


def _by_reason(rows: Iterable[CheckResult]) -> dict[str, list[CheckResult]]:
    found: dict[str, list[CheckResult]] = {}
    for row in rows:
        found.setdefault(row.reason or "no reason given", []).append(row)
    return found


def _ids(rows: Iterable[CheckResult]) -> str:
    """Each check once, also when several subjects have it."""
    return ", ".join(dict.fromkeys(row.check for row in rows))


def _hanging(mark: str, text: str, width: int) -> Iterator[Line]:
    lines = textwrap.wrap(text, width - 8, break_on_hyphens=False)
    for number, line in enumerate(lines):
        indent = f"{mark:<6}" if number == 0 else " " * 8
        yield Line(indent + line)


def _wrap(text: str, indent: str, width: int) -> Iterator[Line]:
    for line in textwrap.wrap(text, width - len(indent), break_on_hyphens=False):
        yield Line(indent + line)
