"""The prompts of a comparison: the built-in set, or a file of the user's."""

from __future__ import annotations

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from infer_doctor.frozen import frozen

Language = Literal["", "latin", "cjk"]

DIGITS = 16
"""Of SHA-256 in an id: 64 bits, so no two of a million prompts share one."""


class BadPrompts(Exception):
    """The file holds no prompts; the text says why."""


@frozen
class Prompt:
    """One prompt. `language` is that of a sound answer, `format` what was asked for.

    `id` is of its own or of its text, so that answers kept earlier fit when lines were moved; `place` is
    where it stands now.
    """

    id: str
    kind: str
    text: str
    language: Language = ""
    format: Literal["", "json"] = ""
    place: str = ""

    @property
    def name(self) -> str:
        """For a reader."""
        return self.place or self.id


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
    """A prompt a line, or JSON lines with "prompt" and perhaps "id"; raises BadPrompts.

    One that stands there twice is asked once: a greedy answer does not change.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadPrompts(f"{path}: {error}") from None
    if _is_array(text):
        raise BadPrompts(f"{path} is one JSON array: write an object a line (jq -c '.[]')")
    found: dict[str, Prompt] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        text, own = _of_line(line, place)
        id = own or f"prompt-{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:DIGITS]}"
        if own in found and found[own].text != text:
            raise BadPrompts(f"{place}: {own} is the id of another prompt too")
        found.setdefault(id, Prompt(id=id, kind="own", text=text, place=place))
    if not found:
        raise BadPrompts(f"{path} holds no prompt")
    return tuple(found.values())


def _is_array(text: str) -> bool:
    """Its lines would be taken for prompts."""
    if not text.lstrip().startswith("["):
        return False
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _of_line(line: str, place: str) -> tuple[str, str]:
    """Text and id of its own."""
    if not line.lstrip().startswith("{"):
        return line, ""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadPrompts(f"{place}: {error}") from None
    text, own = row.get("prompt"), row.get("id")
    if not isinstance(text, str):
        raise BadPrompts(f'{place}: no text under "prompt"')
    return text, str(own) if isinstance(own, (str, int)) else ""
