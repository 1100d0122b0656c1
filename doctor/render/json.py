"""The report as JSON, version 1 (`docs/report.schema.json`)."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from infer_doctor.model import Finding, Report


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
    """The report as indented JSON with a final line end.

    Rows and facts are written one by one, and what subjects share once: a thousand nodes are 150 MB
    of text, and all of it at once as objects and pieces would be ten times that.
    """
    head = dumps(to_wire(dataclasses.replace(report, results=(), facts={})), "")
    facts: dict[int, str] = {}

    def fact(value: Any) -> str:
        if id(value) not in facts:
            facts[id(value)] = dumps(to_wire(value), "      ")
        return facts[id(value)]

    rows = [dumps(to_wire(row), "    ") for row in report.results]
    subjects = [
        f"{json.dumps(name)}: "
        + _block("{}", [f"{json.dumps(kind)}: {fact(v)}" for kind, v in own.items()], "    ")
        for name, own in report.facts.items()
    ]
    for name, marks, parts in (("results", "[]", rows), ("facts", "{}", subjects)):
        before, _, after = head.partition(f'\n  "{name}": {marks}')
        head = f'{before}\n  "{name}": {_block(marks, parts, "  ")}{after}'
    return head + "\n"


def dumps(value: Any, indent: str) -> str:
    """JSON whose further lines stand below `indent`; no string holds a raw line end."""
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n" + indent)


def _block(marks: str, parts: list[str], indent: str) -> str:
    if not parts:
        return marks
    inner = f",\n{indent}  ".join(parts)
    return f"{marks[0]}\n{indent}  {inner}\n{indent}{marks[1]}"
