"""The journal: what a run is about to do, on the disk before it is done.

$XDG_STATE_HOME/infer-doctor/ (else ~/.local/state/infer-doctor/) holds a folder for each run:
`journal.jsonl`, a line for each event, and `kept/`, the bytes of before and after by their SHA-256.
Only its owner may read it: files that are edited may hold secrets.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infer_doctor.fixing.files import Content, Refused, sync_folder, write_new
from infer_doctor.frozen import frozen

VERSION = 1

Record = dict[str, Any]

NoneType = type(None)

NEEDED: dict[str, dict[str, tuple[type, ...]]] = {
    "begin": {"at": (str,)},
    "done": {"n": (int,), "more": (dict,)},
    "undone": {"n": (int,)},
    "result": {"fix": (str,), "result": (str,)},
    "keeping": {"path": (str,)},
    "end": {},
    "replace": {
        "path": (str,),
        "before": (dict, NoneType),
        "after": (dict, NoneType),
        "folders": (list,),
        "temporary": (str,),
    },
    "aside": {
        "path": (str,),
        "kept": (str, NoneType),
        "before": (list, NoneType),
        "after": (list, NoneType),
    },
    "packages": {
        "python": (str,),
        "folders": (list,),
        "before": (dict,),
        "names": (dict,),
        "kept": (str,),
    },
    "process": {"pid": (int,), "started": (int,)},
}
"""What an event holds, and what a step of each kind holds besides STEP."""

STEP: dict[str, tuple[type, ...]] = {"n": (int,), "text": (str,), "fix": (str,), "title": (str,)}

SAVED: dict[str, tuple[type, ...]] = {
    "sha256": (str,),
    "mode": (int,),
    "uid": (int,),
    "gid": (int,),
}
"""What a step that replaces says of the file of before and after."""

HASH = r"[0-9a-f]{64}"

LARGEST = (1 << 32) - 1
"""Modes, uids and process numbers fit in 32 bits."""


def state_folder() -> str:
    """Where the journals are (XDG Base Directory Specification 0.8)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            raise Refused(
                f"uid {os.geteuid()} has no home folder for the journal: set HOME or XDG_STATE_HOME"
            )
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "infer-doctor")


def make_folder(path: str) -> None:
    """The folder and those above it, for nobody else, on the disk."""
    if os.path.isdir(path):
        return
    make_folder(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    sync_folder(os.path.dirname(path))


@contextlib.contextmanager
def lock(folder: str) -> Iterator[None]:
    """One run at a time; the second leaves. The kernel lets go when the process ends."""
    try:
        make_folder(folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(folder, "lock"), flags, 0o600)
    except OSError as error:
        raise Refused(
            f"{error.filename or folder}: {error.strerror}; no journal, no change"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise Refused(f"{folder}/lock: {error.strerror}; no lock, no change") from None
            pid = ""
            with contextlib.suppress(OSError):
                pid = os.read(descriptor, 20).decode(errors="replace").strip()
            raise Refused(
                f"another infer-doctor{f' (PID {pid})' if pid else ''} is changing something; "
                "try again when it has ended"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@frozen
class Run:
    """One run as its journal tells it."""

    id: str
    folder: str
    at: str = ""
    steps: tuple[Record, ...] = ()
    done: frozenset[int] = frozenset()
    undone: frozenset[int] = frozenset()
    results: tuple[Record, ...] = ()
    keeping: tuple[str, ...] = ()
    """Folders that were made to hold what a step takes away."""
    ended: bool = False
    damaged: str | None = None
    """Why the journal cannot be trusted; nothing of it is carried out then."""

    @property
    def left(self) -> tuple[Record, ...]:
        """The steps that were begun and not taken back, in order."""
        return tuple(step for step in self.steps if step["n"] not in self.undone)


class Journal:
    """The journal of a run that writes."""

    def __init__(self, run: Run) -> None:
        self.id = run.id
        self.folder = run.folder

    @classmethod
    def begin(cls, folder: str, at: str, command: list[str]) -> Journal:
        """A new run with the next number."""
        numbers = [int(name) for name in _names(folder)]
        id = f"{max(numbers, default=0) + 1:04}"
        journal = cls(Run(id=id, folder=os.path.join(folder, id)))
        make_folder(os.path.join(journal.folder, "kept"))
        journal.write({"event": "begin", "version": VERSION, "at": at, "command": command})
        return journal

    def write(self, record: Record) -> None:
        """One line, on the disk when this returns."""
        path = os.path.join(self.folder, "journal.jsonl")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            line = json.dumps(record) + "\n"
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = "\n" + line  # the last run was killed in the middle of its line
            data = line.encode()
            while data:
                data = data[os.write(descriptor, data) :]
            os.fsync(descriptor)
            if not size:
                sync_folder(self.folder)
        finally:
            os.close(descriptor)

    def keep(self, content: Content) -> str:
        """Save bytes; returns their name."""
        name = content.digest
        path = os.path.join(self.folder, "kept", name)
        if not os.path.exists(path):
            own = Content(data=content.data, mode=0o600, uid=os.geteuid(), gid=os.getegid())
            write_new(path + ".new", own)
            os.rename(path + ".new", path)
            sync_folder(os.path.dirname(path))
        return name


def kept(run: Run, name: str) -> bytes:
    """The saved bytes; raises Refused when they are no longer what was saved."""
    path = os.path.join(run.folder, "kept", name)
    try:
        with open(path, "rb") as file:
            content = Content(data=file.read(), mode=0, uid=0, gid=0)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}: what was saved is gone") from None
    if content.digest != name:
        raise Refused(f"{path}: is no longer what was saved")
    return content.data


def runs(folder: str) -> list[Run]:
    """All runs, oldest first; a folder whose journal was never begun changed nothing."""
    found = [read(folder, name) for name in sorted(_names(folder), key=int)]
    return [run for run in found if run.at or run.damaged]


def read(folder: str, id: str) -> Run:
    """One run; a line that was cut by a kill is left out."""
    place = os.path.join(folder, id)
    if (stranger := _stranger(place)) is not None:  # what it says to do may be meant to harm
        return Run(id=id, folder=place, damaged=f"belongs to uid {stranger}, not to you")
    try:
        with open(os.path.join(place, "journal.jsonl"), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
    except FileNotFoundError:
        lines = []
    except OSError as error:
        return Run(id=id, folder=place, damaged=f"cannot be read: {error.strerror}")
    records: list[Record] = []
    for line in filter(None, lines):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    if records and (damage := _damage(records)):
        return Run(id=id, folder=place, damaged=damage)

    after = {row["n"]: row["more"] for row in records if row["event"] == "done"}

    def numbers(event: str) -> frozenset[int]:
        return frozenset(row["n"] for row in records if row["event"] == event)

    return Run(
        id=id,
        folder=place,
        at=next((row["at"] for row in records if row["event"] == "begin"), ""),
        steps=tuple(
            {**row, **after.get(row["n"], {})} for row in records if row["event"] == "step"
        ),
        done=numbers("done"),
        undone=numbers("undone"),
        results=tuple(row for row in records if row["event"] == "result"),
        keeping=tuple(row["path"] for row in records if row["event"] == "keeping"),
        ended=any(row["event"] == "end" for row in records),
    )


def _stranger(place: str) -> int | None:
    """The owner of a run's folder or journal, when it is somebody else's (sudo keeps HOME)."""
    for path in (place, os.path.join(place, "journal.jsonl")):
        with contextlib.suppress(OSError):
            owner = os.lstat(path).st_uid
            if owner != os.geteuid():
                return owner
    return None


def _damage(records: Sequence[Any]) -> str | None:
    """Why these are not the records that this version writes."""
    if not all(isinstance(row, dict) for row in records):
        return "holds a line that is none of a journal"
    version = records[0].get("version", VERSION)
    if version != VERSION:
        return f"has version {version}; this infer-doctor writes and reads version {VERSION}"
    if records[0].get("event") != "begin":
        return "has lost its first line"
    for row in records:
        needed = NEEDED.get(str(row.get("event")))
        if row.get("event") == "step":
            needed = NEEDED.get(str(row.get("kind")))
            needed = None if needed is None else {**STEP, **needed}
        if needed is None or not _holds(row, needed) or not _well_formed(row):
            return f"holds a line that is none of a journal ({str(row.get('event'))[:20]})"
    steps = [row["n"] for row in records if row["event"] == "step"]
    told = {row["n"] for row in records if row["event"] in ("done", "undone")}
    if steps != sorted(set(steps)) or not told <= set(steps):
        return "has lost a line"
    return None


def _holds(row: Record, needed: Mapping[str, tuple[type, ...]]) -> bool:
    return all(
        name in row and isinstance(row[name], types) and not isinstance(row[name], bool)
        for name, types in needed.items()
    )


def _well_formed(row: Record) -> bool:
    """Names without a zero byte, folders that are names, and what was saved by its parts."""
    if row.get("kind") == "replace":
        saved = [part for part in (row["before"], row["after"]) if part is not None]
        if not all(_holds(part, SAVED) and re.fullmatch(HASH, part["sha256"]) for part in saved):
            return False
        if any(not 0 <= part[name] <= LARGEST for part in saved for name in ("mode", "uid", "gid")):
            return False
    names = [row.get(name) or "" for name in ("path", "temporary", "kept", "python")]
    names += row.get("folders") or []
    return all(isinstance(name, str) and "\0" not in name for name in names)


def _names(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if re.fullmatch(r"\d{4,}", name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror}") from None
