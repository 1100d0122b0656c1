"""Applies or takes back fixes of plain files, for tests that kill it: `fix_driver.py apply|undo FOLDER`.

FOLDER/work holds the files, FOLDER/state the journals. With FOLDER/environment, a virtual environment,
it changes packages, fetches and converts model files and removes a folder instead. Small, so that it
starts fast under strace.
"""

from __future__ import annotations

import sys
from pathlib import Path

from infer_doctor.fixing.apply import Applying
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.journal import lock, runs
from infer_doctor.fixing.plan import Group
from infer_doctor.fixing.undo import undo
from infer_doctor.model import (
    AnyAction,
    ConvertWeights,
    Edit,
    Fetch,
    Finding,
    Fix,
    Packages,
    RemoveFiles,
    WriteFile,
)

FILES = 6
"""Files that are edited; a new one in a new folder, and one that goes, come on top."""


def group(name: str, *actions: AnyAction) -> Group:
    """A fix with these actions, for a finding of no real check."""
    fix = Fix(id=name, title=name, safety="safe", restarts=False, actions=actions)
    finding = Finding(about=name, message=name, evidence=(), check="a-b", subject="host")
    return Group(fix=fix, findings=(finding,), state="ready")


def set_port(file: Path) -> Edit:
    return Edit(
        text="set --port 9000",
        file=str(file),
        format="shell",
        what="option",
        do="set",
        name="--port",
        value="9000",
        line=2,
    )


def groups(work: Path) -> list[Group]:
    """One fix for several files, one that writes and removes, one for a file of the first again."""
    files = sorted(work.glob("start-*.sh"))
    drop = Edit(
        text="drop X", file=str(files[0]), format="shell", what="variable", do="remove", name="X"
    )
    return [
        group("ports", *map(set_port, files)),
        group(
            "write",
            WriteFile(
                text="w", file=str(work / "new" / "drop-in.conf"), content="[x]\n", mode=0o640
            ),
            RemoveFiles(text="r", files=(str(work / "old.txt"),)),
        ),
        group("variable", drop),
    ]


def large(folder: Path) -> list[Group]:
    """A fix of each kind that keeps what it replaces beside it."""
    python, model = str(folder / "environment" / "bin" / "python"), str(folder / "work")
    return [
        group(
            "packages",
            Packages(
                text="p",
                python=python,
                remove=("pynvml",),
                install=("numpy==2.2.0",),
                options=("--no-index", "--find-links", str(folder.parent / "house")),
            ),
        ),
        group(
            "fetch",
            Fetch(
                text="f",
                python=python,
                repository="org/model",
                revision=None,
                folder=model,
                files=("broken.safetensors", "config.json"),
            ),
        ),
        group(
            "convert",
            ConvertWeights(text="c", python=python, folder=model, files=("pytorch_model.bin",)),
        ),
        group("folder", RemoveFiles(text="r", files=(str(folder / "work" / "stale.dist-info"),))),
    ]


def main(verb: str, folder: Path) -> None:
    state = str(folder / "state")
    with lock(state):
        if verb == "apply":
            applying = Applying(state, "2026-01-01T00:00:00Z", [], Drafts())
            whole = (folder / "environment").exists()
            for wanted in large(folder) if whole else groups(folder / "work"):
                outcome = applying.do(wanted)
                print(outcome.result, outcome.why or "")
            applying.end()
        else:
            for run in reversed(runs(state)):
                if run.left:
                    undo(state, run.id)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
