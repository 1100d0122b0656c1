"""A kept run: what was started and seen, as a folder that replays without an engine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infer_doctor.facts.run import Start
from infer_doctor.runs.starting import Seen, judged
from infer_doctor.runs.typed import typed
from infer_doctor.runs.words import Change

FORM = 1
NAME = "run.json"


class BadRun(Exception):
    """The folder holds no run that this version replays."""


class Keeper:
    """Collects what a run saw; `data` are measurements of its own kind."""

    def __init__(self, question: str, words: tuple[str, ...], folder: str | None = None) -> None:
        self.question = question
        self.words = words
        self.folder = folder
        self.starts: list[Start] = []
        self.data: dict[str, Any] = {}

    @property
    def is_healthy(self) -> bool:
        """Whether all came up, and none died under its load."""
        died = (self.data.get("ramp") or {}).get("died")
        return not died and all(row.ready for row in self.starts)

    def add(self, start: Start) -> None:
        """One more start; what was seen so far replays also when the run is interrupted after it."""
        self.starts.append(start)
        with contextlib.suppress(OSError):  # told at the end
            self.write()

    def write(self) -> None:
        """run.json beside the logs, masked; raises OSError."""
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
        if self.folder is not None:
            Path(self.folder, NAME).write_text(text + "\n", "utf-8", "backslashreplace")


class Kept:
    """A run that was kept: its starts are found again by what was changed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        try:
            found = json.loads(Path(folder, NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadRun(f"{folder}: {error}") from None
        if not isinstance(found, dict) or found.get("form") != FORM:
            raise BadRun(f"{folder}/{NAME} was written in another form by another version")
        try:
            self.question: str = found["question"]
            self.words = tuple(map(str, found["words"]))
            self.data: dict[str, Any] = dict(found["data"].items())
            self._starts = [_start(row, folder) for row in found["starts"]]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
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
    made = typed(Start, row)
    if not made.log:
        return made
    return dataclasses.replace(made, log=str(Path(folder, Path(made.log).name)))


def recorded(start: Callable[[Change, str], Seen], keeper: Keeper) -> Callable[[Change, str], Seen]:
    """The same, and every start is kept."""

    def both(change: Change, why: str) -> Seen:
        seen = start(change, why)
        keeper.add(seen.start)
        return seen

    return both
