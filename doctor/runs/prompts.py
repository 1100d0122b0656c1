"""The prompts of a comparison: the built-in set, or a file of the user's."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from infer_doctor.frozen import frozen

Language = Literal["", "latin", "cjk"]


class BadPrompts(Exception):
    """The file holds no prompts; the text says why."""


@frozen
class Prompt:
    """One prompt. `language` is that of a sound answer, `format` what was asked for."""

    id: str
    kind: str
    text: str
    language: Language = ""
    format: Literal["", "json"] = ""


def built_in() -> tuple[Prompt, ...]:
    """English, Chinese, code, arithmetic, JSON and long context."""
    text = files("infer_doctor.runs").joinpath("prompts.json").read_text(encoding="utf-8")
    return tuple(_prompt(row) for row in json.loads(text))


def _prompt(row: dict[str, Any]) -> Prompt:
    text = row["text"]
    if "repeat" in row:  # the fact stands a third into what surrounds it
        first = row["repeat"] // 3
        around = row["filler"]
        text = around * first + text + " " + around * (row["repeat"] - first) + row["tail"]
    return Prompt(
        id=row["id"],
        kind=row["kind"],
        text=text,
        language=row.get("language", ""),
        format=row.get("format", ""),
    )


def of_file(path: str) -> tuple[Prompt, ...]:
    """A prompt a line, or JSON lines with "prompt"; raises BadPrompts."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPrompts(f"{path}: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        text: Any = line
        if line.lstrip().startswith("{"):
            try:
                text = json.loads(line).get("prompt")
            except ValueError as error:
                raise BadPrompts(f"{path}:{number}: {error}") from None
        if not isinstance(text, str):
            raise BadPrompts(f'{path}:{number}: no text under "prompt"')
        found.append(Prompt(id=f"line-{number}", kind="own", text=text))
    if not found:
        raise BadPrompts(f"{path} holds no prompt")
    return tuple(found)
