"""Steps that move a file or folder aside, or put a large new file in its place.

What was there keeps its bytes under another name beside it, so nothing is copied.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from infer_doctor.fixing.files import Refused, real, require_replaceable, sync_folder
from infer_doctor.fixing.journal import Journal, Record, Run
from infer_doctor.fixing.steps import State
from infer_doctor.frozen import frozen


@frozen
class Aside:
    """`path` gets the file `new` (None: nothing), which lies on the same file system."""

    path: str
    new: str | None
    text: str

    def record(self, journal: Journal) -> Record:
        found = identity(self.path)
        return {
            "kind": "aside",
            "text": self.text,
            "path": self.path,
            "kept": _free(f"{self.path}.infer-doctor-{journal.id}") if found else None,
            "before": found,
            "after": identity(self.new) if self.new else None,
        }

    def do(self, record: Record) -> Record:
        if identity(self.path) != record["before"]:
            raise Refused(f"{self.path}: was changed a moment ago")
        if self.new is None:
            os.rename(self.path, record["kept"])
        else:
            if record["kept"]:
                os.link(self.path, record["kept"], follow_symlinks=False)
            os.rename(self.new, self.path)
        sync_folder(os.path.dirname(self.path))
        return {}


def _free(name: str) -> str:
    """A name that nothing has: on a volume that outlives its containers, each counts from 0001."""
    number, free = 0, name
    while os.path.lexists(free):
        number += 1
        free = f"{name}-{number}"
    return free


def prepared(path: str, new: str | None, text: str) -> Aside:
    """The step, or Refused."""
    path = real(path)
    if new is None and not os.path.lexists(path):
        raise Refused(f"{path}: is not there")
    if os.path.islink(path):
        raise Refused(f"{path}: is a symbolic link; name the file itself")
    if os.path.isdir(path):
        _require_own_folder(path)
    else:
        require_replaceable(path, 0)
    return Aside(path=path, new=new, text=text)


def _require_own_folder(path: str) -> None:
    if os.lstat(path).st_uid != os.geteuid():
        raise Refused(f"{path}: belongs to another user")
    if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise Refused(f"{os.path.dirname(path)}: you may not write there")


def identity(path: str) -> list[int] | None:
    """Which file it is: a number that a rename keeps, its size and its time of change."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def state(run: Run, record: Record) -> State:
    """Which of the two files stands there."""
    now = identity(record["path"])
    if now == record["before"]:
        return "old"
    return "new" if now == record["after"] else "changed"


def take_back(run: Run, record: Record) -> None:
    """The old one again."""
    path, aside = record["path"], record["kept"]
    found = state(run, record)
    if found == "new":
        if aside:
            os.rename(aside, path)
        elif os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    elif found == "old" and aside and identity(aside) == record["before"]:
        with contextlib.suppress(OSError):
            os.unlink(aside)  # a second name of the file that is there
    sync_folder(os.path.dirname(path))


def difference(run: Run, record: Record) -> str:
    """Sizes, for such files are large."""
    rows = (
        ("before", record["before"]),
        ("after the fix", record["after"]),
        ("now", identity(record["path"])),
    )
    return "".join(
        f"{record['path']} ({name}): {'nothing' if row is None else f'{row[1]:,} bytes'}\n"
        for name, row in rows
    )


def forget(record: Record) -> None:
    """The second name is the file itself again."""
