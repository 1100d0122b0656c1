"""Actions -> steps that were looked at: what cannot be done is refused here, before anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from infer_doctor.fixing import asides, packages, processes, replacing
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import SIZE_LIMIT, Content, Refused, current, real
from infer_doctor.fixing.models import Converted, Fetched
from infer_doctor.fixing.steps import Stage, Step
from infer_doctor.launch.model import COMMAND_LINE
from infer_doctor.model import (
    AnyAction,
    ConvertWeights,
    Edit,
    EndProcess,
    Fetch,
    Packages,
    RemoveFiles,
    WriteFile,
)


def prepared(
    actions: Sequence[AnyAction], drafts: Drafts, state_folder: str
) -> tuple[list[Step | Stage], dict[str, str]]:
    """The steps of one group, and the texts of its files after it; raises Refused."""
    edits = [action for action in actions if isinstance(action, Edit)]
    new = drafts.after(edits)
    new.pop(COMMAND_LINE, None)
    steps: list[Step | Stage] = []
    for path, text in new.items():
        now = current(path)
        if now is None or now.data != drafts.text(path).encode():
            raise Refused(f"{path}: was changed after it was examined; run the command again")
        words = ", ".join(edit.text for edit in edits if real(edit.file) == path)
        steps.append(replacing.prepared(path, text.encode(), words, state_folder))
    removed: list[str] = []
    for action in actions:
        if isinstance(action, Packages):
            steps.append(packages.prepared(action, removed))
            removed += action.remove
        else:
            steps += _steps(action, state_folder)
    return steps, new


def _steps(action: AnyAction, state_folder: str) -> list[Step | Stage]:
    match action:
        case WriteFile():
            return [_written(action, state_folder)]
        case RemoveFiles():
            return [_removed(path, state_folder) for path in action.files]
        case EndProcess():
            return [processes.prepared(action)]
        case Fetch():
            return [Fetched.prepared(action)]
        case ConvertWeights():
            return [Converted.prepared(action)]
        case _:
            return []


def _written(action: WriteFile, state_folder: str) -> Step:
    content = Content(
        data=action.content.encode(), mode=action.mode, uid=os.geteuid(), gid=os.getegid()
    )
    if (there := current(real(action.file))) is not None and there.data == content.data:
        raise Refused(f"{action.file}: is already there")
    return replacing.prepared(action.file, content, f"write {action.file}", state_folder)


def _removed(path: str, state_folder: str) -> Step:
    text = f"remove {path}"
    try:
        found = os.lstat(real(path))
    except FileNotFoundError:
        raise Refused(f"{path}: is not there any more") from None
    if stat.S_ISREG(found.st_mode) and found.st_size <= SIZE_LIMIT:
        return replacing.prepared(path, None, text, state_folder)
    return asides.prepared(path, None, text)
