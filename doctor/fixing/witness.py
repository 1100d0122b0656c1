"""A second opinion on an edit: what the reader of launches finds in the file before and after it.

The editors place words by rules of their own; the reader knows which words reach an engine. Where the
two disagree (another command of the line, a string behind `sh -c`) nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.launch.model import Launch
from infer_doctor.model import Edit


def require(edit: Edit, path: str, old: str, new: str) -> None:
    """Raise CannotEdit unless the edit reaches an engine, and changes only what it says."""
    if edit.what not in ("option", "variable") or edit.format == "python":
        return
    before = _launches(path, old)
    if not before:
        return  # an .env file, or one that only holds options
    after = _launches(path, new)
    if after is None or len(after) != len(before):
        raise CannotEdit(f"{edit.name}: the file could not be read as before with it")
    if edit.what == "variable":
        _require_variable(edit, after)
        return
    changed = [
        (row, other)
        for row, other in zip(before, after, strict=True)
        if row.command != other.command
    ]
    if any(row.kind == "docker-run" for row in before) and not changed:
        return  # an option of `docker run` itself
    if edit.anchor == "run" and changed:
        raise CannotEdit(f"{edit.name}: it would come behind the image")
    if not changed:
        raise CannotEdit(f"{edit.name}: it would reach no engine")
    for row, other in changed:
        _require_words(edit, row, other)


def _require_variable(edit: Edit, after: Sequence[Launch]) -> None:
    wanted = None if edit.do == "remove" else edit.value
    rows = [{row.name: row.value for row in launch.environment} for launch in after]
    if not any(row.get(edit.name) == wanted for row in rows):
        raise CannotEdit(f"{edit.name}: the engine would not see the change")


def _require_words(edit: Edit, before: Launch, after: Launch) -> None:
    """What is new is the option and its value."""
    added = list((Counter(after.command) - Counter(before.command)).elements())
    name, value = edit.name, edit.value or ""
    if edit.do == "rename":
        name, _, value = value.partition(" ")
    ours = {name, value, f"{name}={value}"}
    if any(word not in ours and word.partition("=")[0] != name for word in added):
        raise CannotEdit(f"{edit.name}: other words would change too")


def _launches(path: str, text: str) -> list[Launch] | None:
    from infer_doctor.launch.document import Broken
    from infer_doctor.launch.recognise import NoLaunch, launches
    from infer_doctor.targets import beside

    try:
        found = launches(text.lstrip("\ufeff"), path, beside(path))
    except (Broken, NoLaunch):
        return None
    return found[0] if found else None
