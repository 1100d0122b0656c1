"""Every launch file that the project knows, edited as fixes do: only the lines of the fix differ.

And what the reader finds afterwards is what the fix meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.fixes.launching import (
    remove_option,
    rename_option,
    set_docker_option,
    set_field,
    set_option,
    set_variable,
)
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import Refused
from infer_doctor.launch.model import Launch
from infer_doctor.model import AnyAction, Edit
from infer_doctor.targets import look

FOLDER = Path(__file__).parent.parent / "cases" / "launch"
FILES = sorted(FOLDER.iterdir())
YAML = [path for path in FILES if path.suffix in (".yaml", ".yml")]
KEY = re.compile(r"( *)(?:- )?[\w./\"'-]+:(?: |$)")

TAIL = re.compile(r"^ *(?:- )?(?:[\w.-]+: [\w./-]+|- --?[\w=./-]+|[\w.-]+:)$", re.M)
"""Lines that may get a comment behind them."""

JUSTIFIED = re.compile(
    r"already says so|already there|through a YAML anchor|nothing would be left|from somewhere else"
)
"""Refusals that are right: what is there, what others share, a list that would be empty, the value of
a variable that a config map holds."""

Made = tuple[tuple[AnyAction, ...], Callable[[Launch], bool], int]
"""The actions of a fix, whether a launch shows it, and how many lines it may add or take."""


def commented(text: str) -> str:
    """A comment above every line with a key, one behind it, and one at the end, where YAML has them."""
    lines: list[str] = []
    block: int | None = None
    for number, line in enumerate(text.splitlines()):
        indent = len(line) - len(line.lstrip())
        if block is not None and (not line.strip() or indent > block):
            lines.append(line)
            continue
        block = None
        found = KEY.match(line)
        if found and not line.rstrip().endswith((">", "|", ">-", "|-", "\\")):
            lines.append(f"{' ' * indent}# above {number}")
        if re.search(r"[|>][+-]?\s*(?:#.*)?$", line):
            block = indent
        lines.append(line)
    return "\n".join([*lines, "# the end", ""])


def variants() -> list[tuple[str, str]]:
    """Name and text of every YAML file: as it is, with many comments, with other line ends."""
    found = []
    for path in YAML:
        text = path.read_text()
        found.append((f"{path.name}", text))
        found.append((f"commented-{path.name}", commented(text)))
        found.append((f"tails-{path.name}", TAIL.sub(r"\g<0>  # behind", text)))
        found.append((f"crlf-{path.name}", commented(text).replace("\n", "\r\n")))
    return found


def options(launch: Launch) -> list[tuple[str, str | None]]:
    """Options that are words of their own, and their values."""
    rows: list[tuple[str, str | None]] = []
    words = launch.words
    for at, word in enumerate(words):
        if word.unknown or not word.text.startswith("--") or "=" in word.text:
            continue
        follows = words[at + 1] if at + 1 < len(words) else None
        value = follows.text if follows and not follows.text.startswith("-") else None
        if follows is None or not follows.unknown:
            rows.append((word.text, value))
    return rows


def texts(launch: Launch) -> list[str]:
    return [word.text for word in launch.words]


def made(launch: Launch) -> list[Made]:
    """What fixes do with such a launch."""
    rows: list[Made] = []
    if launch.kind not in ("python", "config") and launch.words:
        rows.append(
            (
                set_option(launch, "--max-model-len-x", 4096),
                lambda new: "--max-model-len-x 4096" in " ".join(texts(new)).replace("=", " "),
                2,
            )
        )
    for name, value in options(launch)[:3]:
        rows.append(
            (
                remove_option(launch, name, value=value),
                lambda new, name=name: name not in texts(new),  # type: ignore[misc]
                2,
            )
        )
        rows.append(
            (
                rename_option(launch, name, "--other-name", value=value),
                lambda new: "--other-name" in texts(new),
                1,
            )
        )
    for variable in [row for row in launch.environment if row.place.line and row.value][:2]:
        name = variable.name
        rows.append(
            (
                set_variable(launch, name, "changed"),
                lambda new, name=name: (
                    "changed" in [v.value for v in new.environment if v.name == name]
                ),  # type: ignore[misc]
                1,
            )
        )
        rows.append(
            (
                set_variable(launch, name, None),
                lambda new, name=name: name not in [v.name for v in new.environment],  # type: ignore[misc]
                9,
            )
        )
    if launch.kind not in ("config", "python"):
        rows.append(
            (
                set_variable(launch, "NEW_VARIABLE", "1"),
                lambda new: ("NEW_VARIABLE", "1") in [(v.name, v.value) for v in new.environment],
                3,
            )
        )
    if launch.kind == "compose":
        rows.append(
            (set_field(launch, ("shm_size",), "8gb"), lambda new: shm(new) == 8 << 30, 1),
        )
        rows.append((set_field(launch, ("ipc",), "host"), lambda new: ipc(new) == "host", 1))
    if launch.kind == "kubernetes" and launch.container:
        limit = ("resources", "limits", "nvidia.com/gpu")
        rows.append((set_field(launch, limit, 2), lambda new: gpus(new) == 2, 3))
        volume = {"name": "new-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
        mount = {"name": "new-shm", "mountPath": "/dev/shm-new"}
        rows.append(
            (
                (
                    *set_field(launch, ("..", "..", "volumes"), volume, do="append"),
                    *set_field(launch, ("volumeMounts",), mount, do="append"),
                ),
                lambda new: (
                    "InferenceService" in new.name  # the reader does not follow its mounts
                    or "/dev/shm-new" in [v.target for v in new.container.volumes]  # type: ignore[union-attr]
                ),
                8,
            )
        )
    if launch.kind == "docker-run":
        rows.append((set_docker_option(launch, "--ipc", "host"), lambda new: ipc(new) == "host", 1))
    return [(actions, shows, lines) for actions, shows, lines in rows if actions]


def shm(launch: Launch) -> int | None:
    return launch.container.shm_size if launch.container else None


def ipc(launch: Launch) -> str | None:
    return launch.container.ipc if launch.container else None


def gpus(launch: Launch) -> Any:
    return launch.container.gpus if launch.container else None


def difference(old: str, new: str) -> tuple[list[str], list[str]]:
    rows = list(difflib.ndiff(old.split("\n"), new.split("\n")))
    return [row[2:] for row in rows if row[0] == "-"], [row[2:] for row in rows if row[0] == "+"]


def judge(path: Path, text: str) -> tuple[int, list[str]]:
    """All edits of all launches of one file: how many were made, and which could not be."""
    path.write_bytes(text.encode())
    count, refused = 0, []
    for at, launch in enumerate(look(str(path)).launches):
        for actions, shows, lines in made(launch):
            edits = [action for action in actions if isinstance(action, Edit)]
            if len(edits) != len(actions) or any(edit.file != str(path) for edit in edits):
                continue
            try:
                (new,) = Drafts().after(edits).values()
            except Refused as error:
                if not JUSTIFIED.search(str(error)):
                    refused.append(f"{edits[0].text}: {error}")
                continue
            gone, came = difference(text, new)
            words = edits[0].text
            assert len(gone) <= lines and len(came) <= lines, (words, gone, came)
            emptied = [row for row in gone if re.match(r" *env(ironment)?:", row)]
            comments = [row for row in gone if row.lstrip().startswith("#")]
            assert emptied or not comments, (words, gone)  # those in a block that goes as a whole
            assert new.endswith("\n") == text.endswith("\n")
            path.write_bytes(new.encode())
            again = look(str(path)).launches[at]
            assert shows(again), (words, difference(text, new))
            path.write_bytes(text.encode())
            count += 1
    return count, refused


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_as_they_are(path: Path, tmp_path: Path) -> None:
    _, refused = judge(tmp_path / path.name, path.read_text())
    assert refused == []


def test_fifty_files_with_comments(tmp_path: Path) -> None:
    rows: Sequence[tuple[str, str]] = [(name, text) for name, text in variants() if "#" in text]
    assert len(rows) >= 50
    total = 0
    for name, text in rows:
        count, refused = judge(tmp_path / name, text)
        assert refused == []
        total += count
    assert total >= 4 * len(rows)
