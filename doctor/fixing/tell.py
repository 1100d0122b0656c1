"""Runs in words: for `history`, and for the call after one that was killed."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.fixing.journal import Record, Run
from infer_doctor.fixing.undo import SPOKEN, states


def told(run: Run) -> Iterator[str]:
    """A run and its steps."""
    if run.damaged:
        yield from _damaged(run)
        return
    head = f"{run.id}  {run.at}"
    if not run.ended:
        head += "  was stopped before its end"
    elif run.steps and not run.left:
        head += "  taken back"
    yield head
    results = {row["fix"]: row for row in run.results}
    seen: set[str] = set()
    for step in run.steps:
        if step["fix"] not in seen:
            seen.add(step["fix"])
            result = results.get(step["fix"])
            yield f"      {step['title']}" + (f": {result['result']}" if result else "")
        if step["n"] in run.undone:
            yield f"        taken back: {_text(step)}"
    for step, state in states(run):
        yield f"        {SPOKEN[state]}: {_text(step)}"


def stopped(run: Run) -> Iterator[str]:
    """What a run that was killed left; nothing for one that ended."""
    if run.damaged:
        yield from _damaged(run)
        return
    if run.ended:
        return
    yield f"run {run.id} of {run.at} was stopped before its end; found now:"
    found = states(run)
    for step, state in found:
        yield f"  {SPOKEN[state]}: {_text(step)}"
    if not found:
        yield "  nothing was changed"
    elif any(state in ("new", "half") for _, state in found):
        yield f"  `infer-doctor undo {run.id}` brings back what was before"


def _damaged(run: Run) -> Iterator[str]:
    yield f"run {run.id}: its journal {run.damaged}; it cannot be taken back from here"
    yield f"  the files as they were lie in {run.folder}/kept"


def _text(step: Record) -> str:
    """What a step does, with the whole path of its file."""
    text, path = str(step["text"]), str(step.get("path", ""))
    return text if path in text else f"{path}: {text}"
