"""Files in the layouts that people use, with their comments: only the lines of a fix differ.

Each was written after the layout of a public one (compose files, KServe, llm-d, aibrix, production-stack,
SkyPilot and dstack examples, systemd units, Dockerfiles, start scripts): indentation, quotes, flow
style, anchors, folded and literal blocks, blanks at line ends, CRLF, a missing last newline, several
documents. Names, values and words are others.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from infer_doctor.examine import Examination
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.fixing.apply import Applying
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.edits import edited
from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.fixing.edits.tree import loaded
from infer_doctor.fixing.plan import Group, groups
from infer_doctor.fixing.undo import undo
from infer_doctor.model import Edit
from infer_doctor.registry import Registry
from infer_doctor.targets import NoTarget, look

FILES = sorted((Path(__file__).parent / "public").iterdir())

VLLM = EngineQuestion(name="vllm", version="0.32.0")
TRTLLM = EngineQuestion(name="tensorrt-llm", version="1.2.1")

WORD = re.compile(r"[A-Za-z0-9_]+")


@pytest.fixture(scope="module")
def registry() -> Registry:
    found = Registry()
    found.add_package("infer_doctor.facts")
    found.add_package("infer_doctor.checks")
    return found


def planned(registry: Registry, file: Path) -> list[Group]:
    """What can be applied to the file."""
    target = look(str(file))
    engine = TRTLLM if file.name.startswith("trt") else VLLM
    examination = Examination.of(registry, targets=[target], engine=engine)
    rows = examination.run(list(registry.checks.values()))
    found = [finding for row in rows for finding in row.findings]
    return [row for row in groups(found, unsafe=True, here=()) if row.state == "ready"]


def difference(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that went and that came, with their ends."""
    rows = list(difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True)))
    return [row[2:] for row in rows if row[0] == "-"], [row[2:] for row in rows if row[0] == "+"]


def words_of(edits: Sequence[Edit]) -> set[str]:
    """The words that an edit may write or take away."""
    found: set[str] = set()
    for edit in edits:
        for part in (edit.name, edit.value, edit.old, *map(str, edit.path)):
            found |= {word.lower() for word in WORD.findall(part or "")}
    return found


def judge(old: str, new: str, edits: Sequence[Edit]) -> None:
    """Every line that differs is one of the edits, and no comment goes but with a line that goes."""
    words = words_of(edits)
    gone, came = difference(old, new)
    assert gone or came
    for line, others in (*((row, came) for row in gone), *((row, gone) for row in came)):
        own = _words(line)
        named = own & {word for word in words if not word.isdigit() and word not in FORMS}
        beside = any(own - words <= _words(other) and _words(other) for other in others)
        assert named or beside or all(w.isdigit() or w in FORMS for w in own), (
            line,
            [edit.text for edit in edits],
        )
    ends = {line[len(line.rstrip("\r\n")) :] for line in new.splitlines(keepends=True)}
    assert ends - {""} == {"\r\n" if "\r\n" in old else "\n"}
    assert new.endswith("\n") == old.endswith("\n")


def _words(line: str) -> set[str]:
    return {word.lower() for word in WORD.findall(line.partition("#")[0])}


FORMS = {"env", "environment", "name", "value", "export", "unset", "e"}
"""Words around a variable."""


def carried_out(group: Group, file: Path, before: bytes, folder: Path) -> None:
    """Do it on the copy, look at the lines, take it back: every byte and the mode."""
    edits = [action for action in group.fix.actions if isinstance(action, Edit)]
    applying = Applying(str(folder), "2026-01-01T00:00:00Z", [], Drafts())
    kinds = [launch.kind for launch in look(str(file)).launches]
    done = applying.do(group)
    if done.result == "refused" and JUSTIFIED.search(done.why or ""):
        assert file.read_bytes() == before
        return
    assert (done.result, done.why) == ("applied", None)
    applying.end()
    judge(before.decode("utf-8"), file.read_bytes().decode("utf-8"), edits)
    again = look(str(file))
    assert [launch.kind for launch in again.launches] == kinds
    undo(str(folder), "0001")
    assert file.read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o640


def by_key(text: str) -> int:
    """Each value of the first two levels set to another: how many were, one line each."""
    count = others = 0
    for root in loaded(text):
        paths = [(key,) for key in root if not isinstance(root[key], (dict, list))]
        inner = [key for key in root if isinstance(root[key], dict)]
        paths += [(key, below) for key in inner for below in root[key]]
        for path in paths:
            edit = Edit(
                text="x", file="f", format="yaml", what="key", do="set", path=path, value='"new"'
            )
            try:
                new = edited(edit, text)
            except CannotEdit as error:
                others += not re.search("text of several lines|has another form", str(error))
                continue
            gone, came = difference(text, new)
            assert (len(gone), len(came)) == (1, 1), path
            assert gone[0].partition("#")[2] == came[0].partition("#")[2]
            count += 1
    assert others == 0
    return count


JUSTIFIED = re.compile(r"through a YAML anchor|already says so|nothing would be left")
"""Refusals that are right."""


def test_there_are_enough() -> None:
    assert len(FILES) >= 40
    assert sum(b"#" in path.read_bytes() for path in FILES) >= 38
    assert sum(b"\r\n" in path.read_bytes() for path in FILES) >= 6
    assert sum(not path.read_bytes().endswith(b"\n") for path in FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_the_lines_of_the_fix_differ(path: Path, registry: Registry, tmp_path: Path) -> None:
    before = path.read_bytes()
    file = tmp_path / path.name.removesuffix(".txt")  # no linter looks at those of Python
    file.write_bytes(before)
    file.chmod(0o640)
    try:
        found = planned(registry, file)
    except NoTarget:  # no launch that the reader knows: any key
        assert by_key(before.decode())
        return
    assert found
    for number, group in enumerate(found):
        carried_out(group, file, before, tmp_path / f"state-{number}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_all_fixes_of_a_file_and_back(path: Path, registry: Registry, tmp_path: Path) -> None:
    """One after the other: two on one line, one beside another."""
    before = path.read_bytes()
    file = tmp_path / path.name.removesuffix(".txt")  # no linter looks at those of Python
    file.write_bytes(before)
    file.chmod(0o640)
    state = tmp_path / "state"
    applying = Applying(str(state), "2026-01-01T00:00:00Z", [], Drafts())
    try:
        done = [applying.do(group) for group in planned(registry, file)]
    except NoTarget:
        return
    assert all(row.result == "applied" or JUSTIFIED.search(row.why or "") for row in done), done
    applying.end()
    edits = [
        action
        for row in done
        if row.result == "applied"
        for action in row.group.fix.actions
        if isinstance(action, Edit)
    ]
    if edits:
        judge(before.decode("utf-8"), file.read_bytes().decode("utf-8"), edits)
        undo(str(state), "0001")
    assert file.read_bytes() == before
