"""Prompts of the user's own, and names for them that stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infer_doctor.runs.prompts import BadPrompts, of_file

LINES = ["Say hello.", '{"prompt": "Count to three."}', '{"id": "q7", "prompt": "Why?"}']


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_ids_do_not_follow_the_place(tmp_path: Path) -> None:
    """Answers that were kept still fit when prompts were moved, put in and taken out."""
    first = of_file(write(tmp_path / "a.txt", *LINES))
    moved = of_file(write(tmp_path / "b.txt", "", "Another one.", *reversed(LINES)))
    ids = {row.text: row.id for row in first}
    assert {row.text: row.id for row in moved if row.text in ids} == ids
    assert ids["Why?"] == "q7"
    assert len(set(ids.values())) == 3
    assert [row.name.rpartition(":")[2] for row in moved] == ["2", "3", "4", "5"]


def test_one_that_stands_there_twice_is_asked_once(tmp_path: Path) -> None:
    found = of_file(write(tmp_path / "a.txt", *LINES, *LINES, "\u2028a line\u2028of one"))
    assert [row.text for row in found][:3] == ["Say hello.", "Count to three.", "Why?"]
    assert len(found) == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": 3}', "no text"),
        ('{"prompt": ', "Expecting"),
        ('{"id": "q7", "prompt": "Another?"}', "id of another"),
        ("{" * 100_000, "Expecting"),
    ],
)
def test_what_is_no_prompt(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadPrompts, match=said) as error:
        of_file(write(tmp_path / "a.txt", *LINES, line))
    assert ":4: " in str(error.value)


def test_half_a_character_is_a_prompt(tmp_path: Path) -> None:
    (found,) = of_file(write(tmp_path / "a.txt", '{"prompt": "a \\ud800 b"}'))
    assert found.id.startswith("prompt-")


@pytest.mark.parametrize("indent", [None, 1])
def test_an_array_is_not_asked_line_by_line(indent: int | None, tmp_path: Path) -> None:
    rows = [{"prompt": "Why?"}, {"prompt": "How?"}]
    with pytest.raises(BadPrompts, match="one JSON array"):
        of_file(write(tmp_path / "a.json", json.dumps(rows, indent=indent)))
    (found,) = of_file(write(tmp_path / "a.txt", "[1] is a list?"))
    assert found.text == "[1] is a list?"
