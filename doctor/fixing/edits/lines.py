"""Edits of files that hold one setting a line.

.env: NAME=value (docs.docker.com/compose, "Set environment variables"); METADATA: "Name: value" up to
the first empty line (packaging.python.org, "Core metadata").
"""

from __future__ import annotations

import re

from infer_doctor.fixing.edits import shell
from infer_doctor.fixing.edits.common import CannotEdit, line_of
from infer_doctor.model import Edit

VALUE = r"""(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s#"'](?:[^\n#]|(?<=\S)\#)*?)?"""
"""A # begins a comment only behind a blank."""


def edited(edit: Edit, text: str) -> str:
    """The text after a variable was set or taken out; the last line of a name counts."""
    pattern = re.compile(
        rf"^(?P<head>[ \t]*(?:export[ \t]+)?{re.escape(edit.name)}[ \t]*=[ \t]*){VALUE}"
        r"(?P<tail>[ \t]*|[ \t]+#[^\n]*|(?<=[ \t])#[^\n]*)(?:\n|\Z)",
        re.M,
    )
    rows = list(pattern.finditer(text))
    here = [row for row in rows if line_of(text, row.start()) == edit.line] or rows
    if not here:
        if edit.do != "set":
            raise CannotEdit(f"{edit.name} no longer stands there")
        end = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{end}{edit.name}={shell.quote(edit.value or '')}\n"
    row = here[-1]
    if edit.do == "remove":
        return text[: row.start()] + text[row.end() :]
    place = row.span("value") if row["value"] is not None else (row.end("head"), row.end("head"))
    gap = " " if row["value"] is None and "#" in row["tail"] else ""
    return text[: place[0]] + shell.quote(edit.value or "") + gap + text[place[1] :]


def header(edit: Edit, text: str) -> str:
    """The text with another value of a field of its head."""
    end = text.find("\n\n")
    head = text if end < 0 else text[:end]
    field = re.search(rf"^{re.escape(edit.name)}:[ \t]*(.*)$", head, re.M | re.I)
    if field is None:
        raise CannotEdit(f"there is no field {edit.name}")
    if edit.old is not None and field[1].strip() != edit.old:
        raise CannotEdit(f"{edit.name} is no longer {edit.old}")
    return text[: field.start(1)] + (edit.value or "") + text[field.end(1) :]
