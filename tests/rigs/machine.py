"""A real machine whose captures can be changed: two H200 with vLLM 0.26 (tests/cases/h200-x2)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infer_doctor.engine import Subject, run
from infer_doctor.facts.environment import Question
from infer_doctor.launch.command import read as launch_of
from infer_doctor.registry import load
from infer_doctor.snapshot import read

DOCUMENT = json.loads(
    (Path(__file__).parent.parent / "cases" / "h200-x2" / "snapshot.json").read_text()
)
SITE = "/opt/venv/lib/python3.12/site-packages"
ENGINE = "/opt/engine"


class Machine:
    """The captures of the machine, to be changed."""

    def __init__(self) -> None:
        self.document = copy.deepcopy(DOCUMENT)

    def rows(self, operation: str, **arguments: Any) -> list[dict[str, Any]]:
        found = [
            row
            for row in self.document["captures"]
            if row["operation"] == operation
            and all(row["arguments"].get(name) == value for name, value in arguments.items())
        ]
        assert found, (operation, arguments)
        return found

    def value(self, operation: str, **arguments: Any) -> Any:
        return self.rows(operation, **arguments)[0]["value"]

    def gone(self, operation: str, **arguments: Any) -> None:
        for row in self.rows(operation, **arguments):
            row.pop("value", None)
            row["error"] = {"code": "ENOENT", "message": "No such file or directory"}

    def say(self, operation: str, value: Any = None, **arguments: Any) -> None:
        """Set an answer, whether or not the machine was asked; without a value: not there."""
        rows = self.document["captures"]
        old = [r for r in rows if r["operation"] == operation]
        row = {"operation": operation, "arguments": arguments, "duration_ms": 0.1}
        row["version"] = old[0]["version"] if old else 1
        if value is not None:
            row["value"] = value
        else:
            row["error"] = {"code": "ENOENT", "message": "No such file or directory"}
        rows[:] = [r for r in rows if r not in old or r["arguments"] != arguments]
        rows.append(row)

    def text(self, path: str, old: str, new: str) -> None:
        value = self.value("read", path=path)
        assert old in value["text"], path
        value["text"] = value["text"].replace(old, new)

    def variable(self, name: str, value: str | None) -> None:
        variables = self.value("environ")["variables"]
        variables.pop(name, None)
        if value is not None:
            variables[name] = value

    def distribution(self, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.value("distributions")["distributions"]
        return next(row for row in rows if (row["name"] or "").lower() == name)

    def uninstall(self, name: str) -> None:
        self.value("distributions")["distributions"].remove(self.distribution(name))

    def errors(self, launch: tuple[str, ...] = ()) -> dict[str, str]:
        snapshot = read(json.dumps(self.document))
        registry = load()
        given: list[object] = [Question(python=None), *([launch_of(launch)] if launch else [])]
        subject = Subject("host", registry, host=snapshot.host, given=given)
        results = run(registry.checks.values(), subject)
        assert [row for row in results if row.outcome == "crashed"] == []
        found = (finding for row in results for finding in row.findings)
        return {f.check: f.message for f in found if f.severity == "error"}


Change = Callable[[Machine], None]
