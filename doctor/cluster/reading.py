"""Many snapshots at once: what is equal in them is parsed once.

A thousand nodes of one cluster hold nearly the same captures. The text that `snapshot.write` makes
has each capture between lines of its own, so a file is cut there and only pieces that were not met
before are parsed. JSON strings hold no raw line ends: when every piece and the head are valid alone,
the whole is valid and means the same. A file of another layout is read as any snapshot is.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Sequence
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Capture, Unavailable
from infer_doctor.live import require_answer
from infer_doctor.snapshot import (
    KIND,
    BadSnapshot,
    Snapshot,
    capture_in,
    from_document,
    no_number,
    read,
)
from infer_doctor.targets import NoTarget, snapshot_text

HEAD = '\n "captures": [\n  {\n'
BETWEEN = "\n  },\n  {\n"
END = "\n  }\n ]\n}\n"
DURATION = '   "duration_ms": '

HEAD_BYTES = 4096
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")

SUFFIXES = (".json", ".zip")
"""Of a folder these files are read: snapshots, and bundles that hold one."""


def files_of(paths: Sequence[str]) -> list[str]:
    """The snapshot files that are named, those of a folder by name; raises NoTarget."""
    found: list[str] = []
    for path in paths:
        try:
            require_answer(path)
        except Unavailable as error:
            raise NoTarget(error.reason) from None
        if not os.path.isdir(path):
            found.append(path)
            continue
        try:
            names = sorted(os.listdir(path))
        except OSError as error:
            raise NoTarget(f"{path}: {error.strerror}") from None
        files = [name for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
        if not files:
            raise NoTarget(f"{path}: the folder has no snapshot (*.json)")
        found += [os.path.join(path, name) for name in files]
    return list(dict.fromkeys(found))


def names_of(paths: Sequence[str]) -> list[str]:
    """A short name for each file: its own without ".json" where no other has it, else its path."""
    short = [os.path.basename(path).removesuffix(".json") for path in paths]
    return short if len(set(short)) == len(short) else list(paths)


@frozen
class ReadNode:
    """The snapshot of one machine, and what the report calls it."""

    name: str
    snapshot: Snapshot
    silence: str | None = None
    """Why there is nothing in it."""
    given: tuple[object, ...] = ()
    """Facts that are not in the snapshot."""


def read_nodes(paths: Sequence[str]) -> list[ReadNode]:
    """All snapshots of files and folders; raises NoTarget or BadSnapshot."""
    files = files_of(paths)
    reader = Reader()
    gc.disable()  # all of it stays: each look for garbage would go through it in vain
    try:
        return [
            ReadNode(name=name, snapshot=reader.read_file(path))
            for name, path in zip(names_of(files), files, strict=True)
        ]
    finally:
        gc.freeze()
        gc.enable()


def sort_out(targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the targets that are snapshots, and the others."""
    found = [path for path in targets if _is_snapshot(path)]
    return found, [path for path in targets if path not in set(found)]


def _is_snapshot(path: str) -> bool:
    """By its first lines, so that a thousand are not read twice."""
    if path.endswith(".zip"):
        return True
    try:
        require_answer(path)
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return f'"kind": "{KIND}"'.encode() in file.read(HEAD_BYTES)
    except (OSError, Unavailable):
        return False  # `look` says what it is


class Reader:
    """Reads snapshots; each different capture is one object, however many files hold it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Capture]] = {}

    def read_file(self, path: str) -> Snapshot:
        """Raises NoTarget or BadSnapshot."""
        try:
            return self.read(snapshot_text(path))
        except BadSnapshot as error:
            raise BadSnapshot(f"{path}: {error}") from None

    def read(self, text: str) -> Snapshot:
        """The snapshot of a text; raises BadSnapshot."""
        head, found, rest = text.partition(HEAD)
        if not found or not rest.endswith(END) or '"captures"' in head:
            return read(text)
        try:
            pieces = rest[: -len(END)].split(BETWEEN)
            captures = dict(self._capture(piece) for piece in pieces)
            document = json.loads(head + '\n "captures": []\n}', parse_constant=no_number)
        except (ValueError, RecursionError, BadSnapshot):
            return read(text)  # which says what is wrong and where
        snapshot = from_document(document)
        snapshot.host.captures = captures
        return snapshot

    def _capture(self, piece: str) -> tuple[str, Capture]:
        """By the text without its last line, the duration, which differs from file to file."""
        body, _, last = piece.rpartition("\n")
        if not last.startswith(DURATION):
            raise ValueError(last)
        known = self._known.get(body)
        if known is None:
            row: Any = json.loads("{" + piece + "}", parse_constant=no_number)
            capture = capture_in(row, "a capture")
            known = self._known[body] = (capture.key, capture)
        elif not NUMBER.fullmatch(last, len(DURATION)):
            raise ValueError(last)
        return known
