"""Steps that give a file new bytes, make one, or take a small one away."""

from __future__ import annotations

import contextlib
import difflib
import os

from infer_doctor.fixing.files import (
    Content,
    Refused,
    current,
    missing_folders,
    put,
    real,
    require_replaceable,
    require_room,
    sync_folder,
)
from infer_doctor.fixing.journal import Journal, Record, Run, kept
from infer_doctor.fixing.steps import State
from infer_doctor.frozen import frozen


@frozen
class Replace:
    """`path` will hold `after` instead of `before`; None is no file."""

    path: str
    before: Content | None
    after: Content | None
    text: str
    folders: tuple[str, ...] = ()

    def record(self, journal: Journal) -> Record:
        return {
            "kind": "replace",
            "text": self.text,
            "path": self.path,
            "before": _saved(journal, self.before),
            "after": _saved(journal, self.after),
            "folders": list(self.folders),
            "temporary": f"{self.path}.infer-doctor-{journal.id}",
        }

    def do(self, record: Record) -> Record:
        if current(self.path) != self.before:
            raise Refused(f"{self.path}: was changed a moment ago")
        for folder in self.folders:
            if not os.path.isdir(folder):  # the step before may have made it
                os.mkdir(folder)
                sync_folder(os.path.dirname(folder))
        put(self.path, self.after, record["temporary"])
        return {}


def prepared(path: str, after: Content | bytes | None, text: str, state_folder: str) -> Replace:
    """The step, or Refused: links, files of others, read-only, no room."""
    path = real(path)
    before = current(path)
    if isinstance(after, bytes):
        mode = 0o644 if before is None else before.mode
        after = Content(
            data=after,
            mode=mode,
            uid=os.geteuid() if before is None else before.uid,
            gid=os.getegid() if before is None else before.gid,
        )
    if before is None and after is None:
        raise Refused(f"{path}: is not there")
    size = len(after.data) if after else 0
    require_replaceable(path, size)
    folder = state_folder
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    require_room(folder, size + (len(before.data) if before else 0))
    folders = tuple(missing_folders(path))
    return Replace(path=path, before=before, after=after, text=text, folders=folders)


def _saved(journal: Journal, content: Content | None) -> Record | None:
    if content is None:
        return None
    name = journal.keep(content)
    return {"sha256": name, "mode": content.mode, "uid": content.uid, "gid": content.gid}


def _content(run: Run, saved: Record | None) -> Content | None:
    if saved is None:
        return None
    data = kept(run, saved["sha256"])
    return Content(data=data, mode=saved["mode"], uid=saved["uid"], gid=saved["gid"])


def _fits(now: Content | None, saved: Record | None) -> bool:
    if now is None or saved is None:
        return now is None and saved is None
    return (now.digest, now.mode, now.uid, now.gid) == (
        saved["sha256"],
        saved["mode"],
        saved["uid"],
        saved["gid"],
    )


def state(run: Run, record: Record) -> State:
    """What the file holds now."""
    try:
        now = current(record["path"])
    except Refused:
        return "changed"
    if _fits(now, record["before"]):
        return "old"
    return "new" if _fits(now, record["after"]) else "changed"


def take_back(run: Run, record: Record) -> None:
    """Bytes, mode and owner of before; the folders that the step made go when they are empty."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record["temporary"])  # of a run that was killed
    before = _content(run, record["before"])
    if state(run, record) == "new":
        require_replaceable(record["path"], len(before.data) if before else 0)
        put(record["path"], before, record["temporary"])
    for folder in reversed(record["folders"]):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
            sync_folder(os.path.dirname(folder))


def difference(run: Run, record: Record) -> str:
    """The change of the step, and what was changed since."""
    path = record["path"]
    before, after = (_content(run, record[name]) for name in ("before", "after"))
    try:
        now = current(path)
    except Refused as error:
        return str(error)
    ours = unified(before, after, f"{path} (before)", f"{path} (after the fix)")
    theirs = unified(after, now, f"{path} (after the fix)", f"{path} (now)")
    saved = record["before"]
    kept_at = f"as it was: {run.folder}/kept/{saved['sha256']}\n" if saved else ""
    return f"{ours}{theirs}{kept_at}"


def unified(old: Content | None, new: Content | None, name: str, other: str) -> str:
    """The lines that differ, or the mode and owner; for people."""
    rows = list(difflib.unified_diff(_lines(old), _lines(new), name, other, lineterm="\n"))
    made = "".join(row if row.endswith("\n") else row + "\n" for row in rows)
    if (
        old is not None
        and new is not None
        and (old.mode, old.uid, old.gid)
        != (
            new.mode,
            new.uid,
            new.gid,
        )
    ):
        made += (
            f"mode {old.mode:04o}, owner {old.uid}:{old.gid} -> "
            f"mode {new.mode:04o}, owner {new.uid}:{new.gid}\n"
        )
    return made


def _lines(content: Content | None) -> list[str]:
    if content is None:
        return []
    return content.data.decode("utf-8", "backslashreplace").splitlines(keepends=True)


def forget(record: Record) -> None:
    """Everything is in the journal."""
