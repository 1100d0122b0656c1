"""The report as JSON, version 1 (`docs/report.schema.json`)."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from infer_doctor.model import CheckResult, Finding, Report

MARK, MARK_MS = "\0", 1234567.5
"""Stand for a subject and a duration: before the one comes only the id of a check, after the other only
an empty list."""


def to_wire(value: Any) -> Any:
    """Plain JSON; the fixes of a finding are the ids of the report's fixes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        wire = {f.name: to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Finding):
            wire["fixes"] = [fix.id for fix in value.fixes]
        return wire
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such numbers
    return value


def render(report: Report) -> str:
    """The report as indented JSON with a final line end."""
    return "".join(pieces(report))


def pieces(report: Report) -> Iterator[str]:
    """The text of `render` part by part: of a thousand nodes it is 150 MB.

    Rows and facts are written one by one, what subjects share is written once, and nothing of it is kept
    but that.
    """
    head = dumps(to_wire(dataclasses.replace(report, results=(), facts={})), "")
    facts: dict[int, str] = {}

    def fact(value: Any) -> str:
        if id(value) not in facts:
            facts[id(value)] = dumps(to_wire(value), "      ")
        return facts[id(value)]

    subjects = (
        f"{json.dumps(name)}: "
        + _block("{}", [f"{json.dumps(kind)}: {fact(v)}" for kind, v in own.items()], "    ")
        for name, own in report.facts.items()
    )
    parts = {
        "results": ("[]", _Rows().texts(report.results)),
        "facts": ("{}", subjects),
    }
    for name in sorted(parts, key=lambda name: head.index(f'\n  "{name}": ')):
        marks, inner = parts[name]
        before, _, head = head.partition(f'\n  "{name}": {marks}')
        yield f'{before}\n  "{name}": '
        yield from _blocks(marks, inner, "  ")
    yield head + "\n"


class _Rows:
    """Rows without findings are most of a cluster's, and equal but for the subject and the duration."""

    def __init__(self) -> None:
        self._cuts: dict[tuple[object, ...], tuple[str, str, str]] = {}
        self._subjects: dict[str, str] = {}

    def texts(self, rows: Iterable[CheckResult]) -> Iterator[str]:
        for row in rows:
            yield dumps(to_wire(row), "    ") if row.findings else self._plain(row)

    def _plain(self, row: CheckResult) -> str:
        key = (row.check, row.outcome, row.reason)
        cut = self._cuts.get(key)
        if cut is None:
            cut = self._cuts[key] = _cut(row)
        subject = self._subjects.get(row.subject)
        if subject is None:
            subject = self._subjects[row.subject] = json.dumps(row.subject)
        duration = json.dumps(to_wire(row.duration_ms)) if row.duration_ms else "0.0"
        return f"{cut[0]}{subject}{cut[1]}{duration}{cut[2]}"


def _cut(row: CheckResult) -> tuple[str, str, str]:
    """The text of a row before its subject, between that and its duration, and after."""
    marked = dataclasses.replace(row, subject=MARK, duration_ms=MARK_MS)
    text = dumps(to_wire(marked), "    ")
    before, _, rest = text.partition(json.dumps(MARK))
    between, _, after = rest.rpartition(json.dumps(MARK_MS))
    return before, between, after


def dumps(value: Any, indent: str) -> str:
    """JSON whose further lines stand below `indent`; no string holds a raw line end."""
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n" + indent)


def _block(marks: str, parts: Iterable[str], indent: str) -> str:
    return "".join(_blocks(marks, parts, indent))


def _blocks(marks: str, parts: Iterable[str], indent: str) -> Iterator[str]:
    """Parts between marks, each on a line of its own; only the marks when there is none."""
    between = f"{marks[0]}\n{indent}  "
    for part in parts:
        yield between + part
        between = f",\n{indent}  "
    yield f"\n{indent}{marks[1]}" if between[0] == "," else marks
