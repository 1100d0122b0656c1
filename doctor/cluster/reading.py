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
from infer_doctor.host import Capture, Host, Unavailable, key_of
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
from infer_doctor.units import age

HEAD = '\n "captures": [\n  {\n'
BETWEEN = "\n  },\n  {\n"
END = "\n  }\n ]\n}\n"
DURATION = '   "duration_ms": '

IDENTITY = key_of("identity", {})

HEAD_BYTES = 4096
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")

PACKED = (".json.gz", ".json.xz")
SUFFIXES = (".json", ".zip", *PACKED)
"""Of a folder these files are read: snapshots, packed ones, and bundles that hold one."""

RESTART_S = 3600.0
"""Snapshots of one run are minutes apart."""

OLD_S = 86400.0

SUFFIX = re.compile(r"\.json(?:\.[gx]z)?$")


def files_of(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The snapshot files that are named and those of a folder by name; and other JSON of a folder.

    Raises NoTarget.
    """
    found: list[str] = []
    others: list[str] = []
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
        names = [name for name in names if name.endswith(SUFFIXES) and not name.startswith(".")]
        files = [os.path.join(path, name) for name in names]
        strange = {file for file in files if _other_json(file)}
        if len(strange) == len(files):
            raise NoTarget(f"{path}: the folder has no snapshot (*.json)")
        found += [file for file in files if file not in strange]
        others += sorted(strange)
    return list(dict.fromkeys(found)), others


def names_of(paths: Sequence[str]) -> list[str]:
    """A short name for each file: its own without ".json" where no other has it, else its path."""
    short = [SUFFIX.sub("", os.path.basename(path)) for path in paths]
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


def read_nodes(paths: Sequence[str]) -> tuple[list[ReadNode], list[str]]:
    """All snapshots of files and folders, and a line for each file that was left out.

    A file that cannot be read is a node of which nothing is known. Raises NoTarget or BadSnapshot when
    no file can.
    """
    files, others = files_of(paths)
    reader = Reader()
    nodes: list[ReadNode] = []
    failure: NoTarget | BadSnapshot | None = None
    gc.disable()  # all of it stays: each look for garbage would go through it in vain
    try:
        for name, path in zip(names_of(files), files, strict=True):
            try:
                nodes.append(ReadNode(name=name, snapshot=reader.read_file(path)))
            except (NoTarget, BadSnapshot) as error:
                failure = failure or error
                nodes.append(silent(name, f"its snapshot cannot be read: {error}"))
    finally:
        gc.freeze()
        gc.enable()
    if failure is not None and all(node.silence is not None for node in nodes):
        raise failure
    kept, earlier = _newest(nodes)
    kept, restarted = _without_earlier_kernels(kept)
    lines = [f"{path}: is no snapshot; left out" for path in others]
    return kept, [*lines, *earlier, *restarted, *_old(kept)]


def silent(name: str, why: str) -> ReadNode:
    """A node of which nothing is known."""
    snapshot = Snapshot(host=Host(missing=why), redactions=(), python=None)
    return ReadNode(name=name, snapshot=snapshot, silence=why)


def _newest(nodes: Sequence[ReadNode]) -> tuple[list[ReadNode], list[str]]:
    """Each machine once, as it was last seen; and a line for each snapshot that is left out for it."""
    last: dict[object, ReadNode] = {}
    for node in nodes:
        mark = _mark_of(node)
        known = last.get(mark)
        if known is None or known.snapshot.created_at <= node.snapshot.created_at:
            last[mark] = node
    lines = [
        f"{node.name}: the same machine as {last[mark].name}, seen no later; left out"
        for node in nodes
        if last[mark := _mark_of(node)] is not node
    ]
    return [node for node in nodes if last[_mark_of(node)] is node], lines


def _without_earlier_kernels(nodes: Sequence[ReadNode]) -> tuple[list[ReadNode], list[str]]:
    """Without what a machine left before a restart: the same host name under another running kernel,
    much earlier. Machines that share a host name by mistake are seen within one run, and stay."""
    last: dict[object, tuple[float, ReadNode]] = {}
    for node in nodes:
        name, taken = _host_of(node), _seconds(node)
        if name is not None and taken is not None and taken > last.get(name, (0.0, node))[0]:
            last[name] = (taken, node)
    kept, lines = [], []
    for node in nodes:
        taken = _seconds(node)
        newest, later = last.get(_host_of(node), (0.0, node))
        if taken is None or newest - taken < RESTART_S:
            kept.append(node)
        else:
            lines.append(
                f"{node.name}: the same host name as {later.name}, seen {age(newest - taken)} earlier "
                "under another running kernel, so before a restart; left out"
            )
    return kept, lines


def _host_of(node: ReadNode) -> object:
    """The masked host name, comparable in all files of one key."""
    snapshot = node.snapshot
    identity = snapshot.host.captures.get(IDENTITY)
    if snapshot.key is None or snapshot.machine is None or identity is None or not identity.value:
        return None
    return (snapshot.key, repr(identity.value.get("hostname")))  # of any type in an edited file


def _seconds(node: ReadNode) -> float | None:
    """When the snapshot was taken, by the clock of its machine."""
    from datetime import datetime  # only where there are several

    try:
        taken = datetime.strptime(f"{node.snapshot.created_at}+0000", "%Y-%m-%dT%H:%M:%SZ%z")
    except ValueError:
        return None
    return taken.timestamp()


def _old(nodes: Sequence[ReadNode]) -> list[str]:
    """A line for each snapshot that is not of the day of the newest: it may be of a run before."""
    times = {node.name: taken for node in nodes if (taken := _seconds(node)) is not None}
    newest = max(times.values(), default=0.0)
    return [
        f"{name}: taken {age(newest - taken)} before the newest snapshot: of an earlier run, or one of "
        "the two clocks is wrong"
        for name, taken in times.items()
        if newest - taken > OLD_S
    ]


def _mark_of(node: ReadNode) -> object:
    """Equal for snapshots of one machine, as far as that can be known.

    Containers of one host share its kernel, so the host name counts too; without a common key names are
    masked alike in all files, and only the same snapshot is known again.
    """
    snapshot = node.snapshot
    identity = snapshot.host.captures.get(IDENTITY)
    if node.silence is not None or identity is None or identity.value is None:
        return id(node)
    if snapshot.key is not None and snapshot.machine is not None:
        return (snapshot.key, snapshot.machine, repr(identity.value.get("hostname")))
    captures = snapshot.host.captures.values()
    return (snapshot.created_at, *[id(capture) for capture in captures])


def sort_out(targets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of the targets that are snapshots, and the others."""
    found = [path for path in targets if _is_snapshot(path)]
    return found, [path for path in targets if path not in set(found)]


def _is_snapshot(path: str) -> bool:
    """By its first lines, so that a thousand are not read twice."""
    if path.endswith((".zip", *PACKED)):
        return True
    try:
        require_answer(path)
        return os.path.isfile(path) and f'"kind": "{KIND}"'.encode() in _head(path)
    except (OSError, Unavailable):
        return False  # `look` says what it is


def _other_json(path: str) -> bool:
    """Whether a file is surely something else; one that is empty or broken was meant to be a snapshot."""
    if path.endswith((".zip", *PACKED)):
        return False
    try:
        head = _head(path)
    except OSError:
        return False
    return head.lstrip()[:1] in (b"{", b"[") and f'"{KIND}"'.encode() not in head


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(HEAD_BYTES)


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
