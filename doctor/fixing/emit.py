"""The same changes for those who will not let a tool write: a patch, a script, a command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace

from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.edits import shell
from infer_doctor.fixing.files import Refused, current, real
from infer_doctor.fixing.plan import Group
from infer_doctor.fixing.preview import command_of, difference, quoted
from infer_doctor.fixing.show import alone
from infer_doctor.launch.model import COMMAND_LINE, Launch
from infer_doctor.model import Edit, RemoveFiles, SetVariable, WriteFile

MARK = "INFER_DOCTOR_PATCH"
"""Ends the patch in a script; no line of a patch is only this."""


def patch(groups: Sequence[Group], drafts: Drafts) -> tuple[str, list[str]]:
    """What `git apply` takes in this folder, and what has no place in it."""
    left: list[str] = []
    originals: dict[str, str | None] = {}
    new: dict[str, str | None] = {}
    modes: dict[str, int] = {}
    for group in groups:
        try:
            changed = _changed(group, drafts, originals, modes)
        except Refused as error:
            left.append(f"{group.fix.title}: {error}")
            continue
        if not changed:
            left.append(f"{group.fix.title}: changes no file")
        new.update(changed)
    base = os.path.realpath(os.getcwd())
    rows: list[str] = []
    for path, text in new.items():
        name = os.path.relpath(path, base)
        if name.startswith(".."):
            left.append(f"{path}: lies outside of this folder; run it in {os.path.dirname(path)}")
            continue
        rows += _file(path, name, originals[path], text, modes.get(path, 0o644))
    return "".join(f"{row}\n" for row in rows), left


def _changed(
    group: Group, drafts: Drafts, originals: dict[str, str | None], modes: dict[str, int]
) -> dict[str, str | None]:
    """New texts by path, None for a file that goes."""
    edits = [action for action in group.fix.actions if isinstance(action, Edit)]
    texts = drafts.after(edits)
    texts.pop(COMMAND_LINE, None)
    for path in texts:
        originals.setdefault(path, drafts.text(path))
    drafts.take(texts)
    changed: dict[str, str | None] = dict(texts)
    for action in group.fix.actions:
        if isinstance(action, WriteFile):
            path = real(action.file)
            before = current(path)
            originals.setdefault(path, before.data.decode() if before else None)
            changed[path] = action.content
            modes[path] = action.mode
        elif isinstance(action, RemoveFiles):
            for file in action.files:
                originals.setdefault(real(file), drafts.text(real(file)))
                changed[real(file)] = None
    return changed


def _file(
    path: str, name: str, old: str | None, new: str | None, mode: int, shown: str | None = None
) -> list[str]:
    head = [f"diff --git {quoted(f'a/{name}')} {quoted(f'b/{name}')}"]
    bits = "100755" if mode & 0o100 else "100644"
    if old is None:
        head.append(f"new file mode {bits}")
    if new is None:
        found = current(path)
        head.append(f"deleted file mode {'100755' if found and found.mode & 0o100 else '100644'}")
    return [*head, *difference(path, old, new, shown)]


def script(groups: Sequence[Group], drafts: Drafts) -> str:
    """A shell script of everything, group by group; edits as patches, from whatever folder.

    What is for people stands as a comment: their commands have gaps to fill, ask, or reset a GPU.
    """
    lines = ["#!/bin/sh", "# what `infer-doctor fix` would do; read it, then run it", "set -eu"]
    lines.append(f"cd {shlex.quote(os.getcwd())}")
    for group in groups:
        own = group.state == "manual"
        mark = "# for you: " if own else "# "
        lines += ["", f"{mark}{alone(group.fix)} ({', '.join(group.checks)})"]
        if group.fix.restarts:
            lines.append("# takes effect when the engine is started again")
        edits = [action for action in group.fix.actions if isinstance(action, Edit)]
        if edits and not own:
            lines += _patches(replace(group, fix=replace(group.fix, actions=tuple(edits))), drafts)
        for action in group.fix.actions:
            if isinstance(action, Edit) and not own:
                continue
            known = action.kind in ("command", "packages", "write", "end", "variable", "remove")
            if known and own:
                lines += [f"#   {row}" for row in action.text.split("\n")]
            else:
                lines += [action.text] if known else [f"# {row}" for row in action.text.split("\n")]
    return "\n".join(lines) + "\n"


def _patches(group: Group, drafts: Drafts) -> list[str]:
    """A `patch` for each folder; an edit of the command line has none."""
    originals: dict[str, str | None] = {}
    try:
        new = _changed(group, drafts, originals, {})
    except Refused as error:
        return [f"# not in here: {group.fix.title}: {error}"]
    lines: list[str] = []
    for path, text in new.items():
        folder, name = os.path.split(path)
        rows = _file(path, name, originals[path], text, 0o644, name)
        where = "" if folder == os.path.realpath(os.getcwd()) else f" -d {shlex.quote(folder)}"
        crlf = " --binary" if "\r\n" in (text or "") else ""
        # -N, -r -: one that was run before stops here, and neither asks nor leaves a file behind
        lines += [f"patch -p1 -N -r -{crlf}{where} <<'{MARK}'", *rows, MARK]
    if not new:
        lines.append("# the command line itself: infer-doctor fix --emit command")
    return lines


def command(groups: Sequence[Group], launch: Launch | None, words: Sequence[str]) -> str:
    """The corrected command line: of `-- COMMAND`, else of the launch that a file holds."""
    variables = _variables(groups)
    if not words and launch is not None and launch.kind in ("script", "docker-run"):
        return command_of(_in_script(groups, launch), variables)
    line = tuple(words) or (launch.command if launch else ())
    if not line:
        raise Refused("there is no command: give it after --, or a file that starts an engine")
    drafts = Drafts(line)
    for group in groups:
        edits = [
            _on_command_line(action)
            for action in group.fix.actions
            if isinstance(action, Edit) and action.what == "option"
        ]
        drafts.take(drafts.after(edits))
    return command_of(drafts.text(COMMAND_LINE), variables)


def revealed(line: str, shown: Sequence[str], given: Sequence[str]) -> str:
    """A corrected command line with the secrets that stood in the one that was given."""
    for masked, word in zip(shown, given, strict=True):
        if masked != word:
            line = line.replace(shlex.quote(masked), shlex.quote(word), 1)
    return line


def _variables(groups: Sequence[Group]) -> list[SetVariable]:
    """The last word on each variable."""
    found: dict[str, SetVariable] = {}
    for group in groups:
        for action in group.fix.actions:
            if isinstance(action, SetVariable):
                found[action.name] = action
            elif isinstance(action, Edit) and action.what == "variable":
                value = None if action.do == "remove" else action.value
                found[action.name] = SetVariable(text=action.text, name=action.name, value=value)
    return list(found.values())


def _in_script(groups: Sequence[Group], launch: Launch) -> str:
    """The command as the script will say it, with its own quotes and variables, on one line."""
    place = launch.container.place if launch.container else launch.place
    drafts = Drafts()
    path = real(place.file)
    drafts.text(path)
    for group in groups:
        drafts.take(drafts.after(row for row in group.fix.actions if isinstance(row, Edit)))
    text = drafts.text(path)
    wanted = drafts.now_at(path, place.line)
    for row in shell.commands(text):
        if row[0].line <= (wanted or 1) <= row[-1].line:
            said = [text[token.start : token.end] for token in row]
            return " ".join(said[1:] if said[0] == "exec" else said)
    raise Refused(f"{place.file}: the command no longer stands in line {place.line}")


def _on_command_line(edit: Edit) -> Edit:
    return replace(edit, file=COMMAND_LINE, format="command", line=None)
