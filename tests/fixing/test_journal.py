"""A journal that was damaged, or is somebody else's: told, never carried out, never a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fix_driver
import pytest

from infer_doctor.fixing.files import Refused
from infer_doctor.fixing.journal import read, runs
from infer_doctor.fixing.tell import stopped, told
from infer_doctor.fixing.undo import undo

ODD: list[Any] = [None, 5, -1, 1.5, 10**30, True, "", "x", "\0", [], ["a", 1], {}, {"a": None}]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state folder of one run of seven files."""
    work = tmp_path / "work"
    work.mkdir()
    for number in range(fix_driver.FILES):
        (work / f"start-{number}.sh").write_text("export X=1\nvllm serve m --port 8000\n")
    (work / "old.txt").write_text("old\n")
    fix_driver.main("apply", tmp_path)
    return tmp_path / "state"


def journal(state: Path) -> Path:
    return state / "0001" / "journal.jsonl"


def places(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a record."""
    rows = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in rows:
        yield (*above, key)
        if isinstance(part, (dict, list)):
            yield from places(part, *above, key)


def changed(record: Any, place: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(record))
    part = copy
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return copy


def test_any_value_anywhere(state: Path) -> None:
    lines = journal(state).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    kinds: dict[tuple[str, str, bool], int] = {}
    for number, row in enumerate(records):  # one of each kind is enough
        kinds.setdefault((row["event"], row.get("kind", ""), row.get("before") is None), number)
    tried = 0
    for number in kinds.values():
        for place in places(records[number]):
            for value in ODD:
                row = changed(records[number], place, value)
                rest = [*lines[:number], json.dumps(row), *lines[number + 1 :]]
                journal(state).write_text("\n".join(rest) + "\n")
                for run in runs(str(state)):
                    assert all(isinstance(line, str) for line in (*told(run), *stopped(run)))
                tried += 1
    assert tried > 300


def test_a_line_that_is_gone(state: Path) -> None:
    """Not as if its step had never been: each line of a step, lost or no longer to be read."""
    lines = journal(state).read_text().splitlines()
    steps = [number for number, line in enumerate(lines) if '"event": "step"' in line]
    assert len(steps) > fix_driver.FILES
    for number in steps:
        for other in ([], ["\0garbage{"], ["[" * 100_000]):
            rest = [*lines[:number], *other, *lines[number + 1 :]]
            journal(state).write_text("\n".join(rest) + "\n")
            assert read(str(state), "0001").damaged == "has lost a line"


def test_of_another_user(state: Path) -> None:
    """With sudo and the HOME of before, root would write where the journal says."""
    if os.geteuid():
        pytest.skip("only root can give files away")
    for path in (journal(state), state / "0001"):
        os.chown(path, 12345, 12345)
        run = read(str(state), "0001")
        assert run.damaged == "belongs to uid 12345, not to you"
        assert not run.left
        assert undo_refused(state)
        os.chown(path, 0, 0)
    undo(str(state), "0001")


def undo_refused(state: Path) -> bool:
    before = (state.parent / "work" / "start-1.sh").read_bytes()
    try:
        said = undo(str(state), "0001")
    except Refused:
        said = []
    return not said and (state.parent / "work" / "start-1.sh").read_bytes() == before
