"""Take back a run, and say in which state a run was left."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterable

from infer_doctor.fixing.files import Refused
from infer_doctor.fixing.journal import Journal, Record, Run, read
from infer_doctor.fixing.packages import KEPT
from infer_doctor.fixing.steps import State, kind_of


class ChangedSince(Refused):
    """Something is neither as before nor as after the fix; `difference` shows all three."""

    def __init__(self, text: str, difference: str, thing: str) -> None:
        super().__init__(text)
        self.difference = difference
        self.thing = thing


SPOKEN: dict[State, str] = {
    "old": "as before",
    "new": "as after the fix",
    "half": "half: the installer, or an undo, was stopped at work",
    "changed": "changed since by somebody else",
}


def states(run: Run) -> list[tuple[Record, State]]:
    """What was found of each step that was begun and not taken back, in order.

    Several steps may change one thing; what stands there tells of the last one, and that one tells
    of those before it.
    """
    found: list[tuple[Record, State]] = []
    later: dict[str, State] = {}
    for step in reversed(run.left):
        thing = _thing(step)
        state = later.get(thing, "old")
        if state == "old":
            state = kind_of(step).state(run, step)
        later[thing] = "new" if state == "half" else state
        found.insert(0, (step, state))
    return found


def _thing(step: Record) -> str:
    """What a step changes."""
    return str(step.get("path") or step.get("folders") or step["n"])


def blocks(run: Run) -> None:
    """Raise ChangedSince when a step cannot be taken back without a loss of later work."""
    for step, state in reversed(states(run)):
        if state != "changed":
            continue
        first = next(row for row in run.left if _thing(row) == _thing(step))
        whole = {**step, "before": first.get("before")}
        raise ChangedSince(
            f"{step['text']}: was changed after the fix; taking it back would lose that",
            kind_of(step).difference(run, whole),
            _thing(step),
        )


def later(runs: Iterable[Run], id: str, thing: str) -> list[str]:
    """The runs after this one that changed the same and were not taken back, the last one first."""
    return [
        run.id
        for run in reversed(list(runs))
        if int(run.id) > int(id) and any(_thing(step) == thing for step in run.left)
    ]


def require_own(run: Run, numbers: Collection[int]) -> None:
    """Raise Refused unless what these steps changed last is as they left it."""
    last = {_thing(step): step for step in run.left if step["n"] in numbers}
    for step in last.values():
        if kind_of(step).state(run, step) == "changed":
            raise Refused(f"{step['text']}: was changed after the fix")


def above(run: Run, numbers: Collection[int]) -> set[int]:
    """The later steps that changed again what these did: the bytes of before would take them away."""
    things = {_thing(step) for step in run.left if step["n"] in numbers}
    return {
        step["n"]
        for step in run.left
        if _thing(step) in things and step["n"] > min(numbers) and step["n"] not in numbers
    }


def take_back(
    run: Run, journal: Journal, wanted: Collection[int] | None = None, *, forced: bool = False
) -> list[str]:
    """Undo the steps, the last one first; what was done, and what cannot be.

    Nothing is touched when one of them was changed since. A process that was ended stays ended.
    `forced` is for a run that is still going: nobody else can have changed it.
    """
    if not forced:
        blocks(run)
    said: list[str] = []
    for step in reversed(run.left):
        if wanted is not None and step["n"] not in wanted:
            continue
        kind = kind_of(step)
        if step["kind"] == "process":
            if kind.state(run, step) == "new":
                said.append(f"{step['text']}: cannot be taken back")
            journal.write({"event": "undone", "n": step["n"]})
            continue
        kind.take_back(run, step)
        kind.forget(step)  # before it is told: nobody would come back for what was kept
        journal.write({"event": "undone", "n": step["n"]})
        said.append(f"{step['text']}: as before")
    return said


def undo(folder: str, id: str) -> list[str]:
    """Take back a whole run; raises Refused."""
    run = read(folder, id)
    if run.damaged:
        raise Refused(f"run {id}: its journal {run.damaged}")
    journal = Journal(run)
    try:
        said = take_back(run, journal)
    except OSError as error:
        raise Refused(f"{error.filename}: {error.strerror}") from None
    drop_kept(run.keeping)
    if not run.ended:
        journal.write({"event": "end"})
    return said


def drop_kept(paths: Iterable[str]) -> None:
    """Remove folders that only held what steps took away."""
    for path in paths:
        if "infer-doctor" not in path:
            continue
        shutil.rmtree(path, ignore_errors=True)
        if os.path.basename(os.path.dirname(path)) == KEPT:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
