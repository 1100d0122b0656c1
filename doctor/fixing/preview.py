"""What a fix would do, exactly: diffs, command lines, modes. Nothing is written for it."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import textwrap
from collections.abc import Sequence

from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import current, real
from infer_doctor.launch.model import COMMAND_LINE
from infer_doctor.model import (
    Action,
    AnyAction,
    ConvertWeights,
    Edit,
    EndProcess,
    Fetch,
    Packages,
    RemoveFiles,
    SetVariable,
    WriteFile,
)

TEXT_WIDTH = 74
"""Columns of a step in words: 80 without the indentation of `show.body`. Commands are never broken."""


def preview(actions: Sequence[AnyAction], drafts: Drafts) -> list[str]:
    """Lines of text; raises Refused where the first look says that it cannot be done."""
    edits = [action for action in actions if isinstance(action, Edit)]
    new = drafts.after(edits)
    lines: list[str] = []
    for path, text in new.items():
        old = drafts.text(path)
        if path == COMMAND_LINE:
            lines += [f"- {old}", f"+ {text}"]
        else:
            # to be read: what stays as it is, such as the line ends of Windows, says nothing
            lines += [line.removesuffix("\r") for line in difference(path, old, text)]
    for action in actions:
        if not isinstance(action, Edit):
            lines += _of(action)
    return lines


def difference(path: str, old: str | None, new: str | None, shown: str | None = None) -> list[str]:
    """A unified diff with the path as it is shown.

    A name with a blank ends with a tab, as git writes it: else `patch` takes the first word.
    """
    shown = shown or spoken(path)
    end = "\t" if " " in shown else ""
    names = (
        "/dev/null" if old is None else quoted(f"a/{shown}") + end,
        "/dev/null" if new is None else quoted(f"b/{shown}") + end,
    )
    rows = difflib.unified_diff(_lines(old), _lines(new), *names, lineterm="\n")
    lines: list[str] = []
    for row in rows:
        lines.append(row.removesuffix("\n"))
        if not row.endswith("\n"):
            lines.append("\\ No newline at end of file")
    return lines


def quoted(name: str) -> str:
    """A name as git and GNU patch take it: a tab, a line end, quotes as C writes them (core.quotePath)."""
    if not re.search(r'[\x00-\x1f\x7f"\\]', name):
        return name
    escaped = re.sub(r'["\\]', lambda found: "\\" + found[0], name)
    escaped = re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\{ord(found[0]):03o}", escaped)
    return f'"{escaped}"'


def _lines(text: str | None) -> list[str]:
    """Lines as git counts them: only \\n ends one."""
    if not text:
        return []
    rows = text.split("\n")
    return [row + "\n" for row in rows[:-1]] + ([rows[-1]] if rows[-1] else [])


def spoken(path: str) -> str:
    """Relative to the working folder where it lies below it."""
    relative = os.path.relpath(path, os.path.realpath(os.getcwd()))
    return path.lstrip("/") if relative.startswith("..") else relative


def _of(action: AnyAction) -> list[str]:
    match action:
        case WriteFile():
            path = real(action.file)
            before = current(path)
            old = before.data.decode("utf-8", "backslashreplace") if before else None
            mode = f"new file, mode {action.mode:04o}" if before is None else ""
            return [*([mode] if mode else []), *difference(path, old, action.content)]
        case RemoveFiles():
            return [f"remove {path}" for path in action.files]
        case Packages():
            return [f"$ {action.text}"]
        case EndProcess():
            return [f"$ kill {action.pid}    # {action.name or 'SIGTERM'}; SIGKILL after 10 s"]
        case SetVariable():
            return [f"$ {action.text}"]
        case Fetch():
            place = action.folder or "the local cache"
            return [f"fetch {name} of {action.repository} into {place}" for name in action.files]
        case ConvertWeights():
            return [f"convert {os.path.join(action.folder, name)}" for name in action.files]
        case Action(kind="command"):
            return [f"$ {action.text}"]
        case _:
            return textwrap.wrap(
                action.text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False
            )


def command_of(line: str, variables: Sequence[SetVariable]) -> str:
    """A command line with the variables that fixes change before it."""
    words = [f"{row.name}={shlex.quote(row.value)}" for row in variables if row.value is not None]
    gone = [word for row in variables if row.value is None for word in ("-u", row.name)]
    return " ".join([*(("env", *gone) if gone else ()), *words, line])
