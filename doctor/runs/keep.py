"""A kept run: what was started and seen, as a folder that replays without an engine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infer_doctor.facts.run import Start
from infer_doctor.runs.starting import Seen, judged
from infer_doctor.runs.words import Change

FORM = 1
NAME = "run.json"


class BadRun(Exception):
    """The folder holds no run that this version replays."""


class Keeper:
    """Collects what a run saw; `data` are measurements of its own kind."""

    def __init__(self, question: str, words: tuple[str, ...]) -> None:
        self.question = question
        self.words = words
        self.starts: list[Start] = []
        self.data: dict[str, Any] = {}

    def write(self, folder: str) -> None:
        """run.json beside the logs, masked."""
        from infer_doctor.redact import Redactor, without_secrets

        rows = [
            {**dataclasses.asdict(row), "log": Path(row.log).name if row.log else ""}
            for row in self.starts
        ]
        whole = {
            "form": FORM,
            "question": self.question,
            "words": list(without_secrets(self.words)),
            "starts": rows,
            "data": self.data,
        }
        text = json.dumps(Redactor([]).value(whole), indent=1, ensure_ascii=False)
        Path(folder, NAME).write_text(text + "\n", encoding="utf-8")


class Kept:
    """A run that was kept: its starts are found again by what was changed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        try:
            found = json.loads(Path(folder, NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BadRun(f"{folder}: {error}") from None
        if not isinstance(found, dict) or found.get("form") != FORM:
            raise BadRun(f"{folder}/{NAME} was written in another form by another version")
        try:
            self.question: str = found["question"]
            self.words = tuple(found["words"])
            self.data: dict[str, Any] = found["data"]
            self._starts = [_start(row, folder) for row in found["starts"]]
        except (KeyError, TypeError, ValueError) as error:
            raise BadRun(f"{folder}/{NAME} holds no run: {error}") from None

    def has(self, change: Change) -> bool:
        """Whether this was started."""
        return any(row.label == change.label for row in self._starts)

    def start(self, change: Change, why: str) -> Seen:
        """What was seen of this change; its log is read anew."""
        for row in self._starts:
            if row.label == change.label:
                return judged(dataclasses.replace(row, why=why), self.words)
        raise BadRun(f"{change.label} was not started in this run")


def _start(row: dict[str, Any], folder: str) -> Start:
    values = dict(row)
    values["command"] = tuple(values["command"])
    values["left"] = tuple(values["left"])
    if values["log"]:
        values["log"] = str(Path(folder, Path(values["log"]).name))
    return Start(**values)


def recorded(start: Callable[[Change, str], Seen], keeper: Keeper) -> Callable[[Change, str], Seen]:
    """The same, and every start is kept."""

    def both(change: Change, why: str) -> Seen:
        seen = start(change, why)
        keeper.starts.append(seen.start)
        return seen

    return both
