"""Killed at every system call that writes: each file is the old or the new one, and undo works.

strace ends the process with SIGKILL at the entry of the Nth of these calls, for every N there is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fix_driver
import pytest
import wheels

from infer_doctor.fixing.journal import runs
from infer_doctor.fixing.tell import stopped
from infer_doctor.fixing.undo import undo

WRITING = (
    "write,pwrite64,writev,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,fchmod,fchown,chmod,ftruncate,fsetxattr,setxattr,lsetxattr,flock"
)
"""Calls that change a file or folder or make it lasting. openat, which makes files, is left out: its
number differs from run to run with Python's imports, and the next of these calls comes right behind."""

LEAST = 200
"""Points at which apply and undo are killed, together."""


def traceable() -> bool:
    try:
        words = ["strace", "-o", "/dev/null", "true"]
        return subprocess.run(words, capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not traceable(), reason="needs strace and the right to trace")


def made(folder: Path) -> Path:
    """A folder with scripts of several modes, and a file that is to go."""
    work = folder / "work"
    work.mkdir(parents=True)
    for number in range(fix_driver.FILES):
        file = work / f"start-{number}.sh"
        file.write_text(f"export X=1  # {number}\nvllm serve m{number} --port 8000  # api\n")
        file.chmod(0o700 + number)
    (work / "old.txt").write_text("old\n")
    return work


def content(work: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and mode of every file below a folder."""
    files = (path for path in work.rglob("*") if path.is_file())
    return {str(path.relative_to(work)): (path.read_bytes(), path.stat().st_mode) for path in files}


def driven(verb: str, folder: Path, *before: str) -> int:
    command = [*before, sys.executable, "-I", "-B", fix_driver.__file__, verb, str(folder)]
    environment = {"PATH": os.environ["PATH"]}
    return subprocess.run(command, env=environment, capture_output=True).returncode


def points(verb: str, folder: Path, trace: Path) -> list[tuple[str, int]]:
    """The writing calls of a whole run: name, and which of this name."""
    strace = ("strace", "-qq", "-e", f"trace={WRITING}", "-e", "signal=none", "-o", str(trace))
    assert driven(verb, folder, *strace) == 0
    found: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    for line in trace.read_text().splitlines():
        name = re.match(r"\w+", line)
        assert name
        counts[name[0]] = counts.get(name[0], 0) + 1
        found.append((name[0], counts[name[0]]))
    return found


def killed(verb: str, folder: Path, call: str, number: int) -> None:
    inject = f"inject={call}:signal=KILL:when={number}"
    strace = ("strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
    assert driven(verb, folder, *strace) == -9


def check(work: Path, old: dict[str, tuple[bytes, int]], new: dict[str, tuple[bytes, int]]) -> None:
    """Old, new, or for the file of two fixes what stands between them."""
    found = content(work)
    for name in {*old, *new}:
        between = None
        if name == "start-0.sh":
            between = (old[name][0].replace(b"8000", b"9000"), old[name][1])
        assert found.get(name) in (old.get(name), new.get(name), between), name
    rest = set(found) - set(old) - set(new)
    assert all(".infer-doctor-" in name for name in rest), rest


def test_old_or_new_at_every_call(tmp_path: Path) -> None:
    work = made(tmp_path / "whole")
    old = content(work)
    applying = points("apply", tmp_path / "whole", tmp_path / "trace")
    new = content(work)
    assert new.keys() - old.keys() == {"new/drop-in.conf"}
    undoing = points("undo", tmp_path / "whole", tmp_path / "trace")
    assert content(work) == old
    assert not (work / "new").exists()
    assert len(applying) + len(undoing) >= LEAST

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [
            pool.submit(judge, tmp_path / f"{verb}-{call}-{number}", call, number, old, new)
            for verb, judge, points in (("a", apply_killed, applying), ("u", undo_killed, undoing))
            for call, number in points
        ]
        for task in tasks:
            task.result()
    print(f"killed at {len(applying)} calls of apply and {len(undoing)} of undo")


def apply_killed(folder: Path, call: str, number: int, old: Any, new: Any) -> None:
    """What a killed run leaves is told, and taken back."""
    work = made(folder)
    killed("apply", folder, call, number)
    check(work, old, new)
    found = runs(str(folder / "state"))
    for run in found:
        assert run.ended or "stopped before its end" in next(stopped(run))
    for run in reversed(found):
        if run.left or not run.ended:
            undo(str(folder / "state"), run.id)
    assert content(work) == old, (call, number)
    assert not (work / "new").exists()
    shutil.rmtree(folder)


def undo_killed(folder: Path, call: str, number: int, old: Any, new: Any) -> None:
    """A killed undo is done by the next one."""
    work = made(folder)
    assert driven("apply", folder) == 0
    assert content(work) == new
    killed("undo", folder, call, number)
    check(work, old, new)
    assert driven("undo", folder) == 0
    assert content(work) == old, (call, number)
    shutil.rmtree(folder)


HUB = """\
import os
def hf_hub_download(repository, name, *, revision, local_dir, force_download):
    with open(os.path.join(local_dir, name), "w") as file:
        file.write("whole")
"""
TORCH = """\
class Tensor:
    def clone(self): return self
    contiguous = clone
    def numel(self): return 1
    element_size = numel
def load(path, **options): return {"weight": Tensor()}
"""
SAVE = """\
def save_file(weights, path, metadata):
    with open(path, "w") as file:
        file.write("converted")
"""
"""The libraries that an engine has, played: it is the doctor that is killed, at its own calls."""

STRIDE = 8
"""Each point takes an environment, pip and seconds; neighbours are mostly the same call again."""

OFFERED = [("numpy", "2.2.0", {"numpy/__init__.py": "new = 1\n", "numpy/added.py": "1\n"})]
INSTALLED = [
    ("numpy", "2.4.0", {"numpy/__init__.py": "old = 1\n"}),
    ("pynvml", "11.5.0", {"pynvml/__init__.py": "old = 1\n"}),
    ("huggingface-hub", "1.0", {"huggingface_hub/__init__.py": HUB}),
    ("torch", "2.11.0", {"torch/__init__.py": TORCH}),
    ("safetensors", "0.6", {"safetensors/__init__.py": "", "safetensors/torch.py": SAVE}),
]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels, and an environment of which each run gets a copy."""
    folder = tmp_path_factory.mktemp("kinds")
    environment = wheels.environment(folder / "first")
    old = [wheels.wheel(folder / "old", *row) for row in INSTALLED]
    wheels.install(environment, *old)
    for row in OFFERED:
        wheels.wheel(folder / "house", *row)
    return folder


def furnished(folder: Path, house: Path) -> None:
    """A model with a broken file and pickled weights, a folder that is to go, an environment."""
    work = folder / "work"
    (work / "stale.dist-info").mkdir(parents=True)
    (work / "stale.dist-info" / "RECORD").write_text("x\n")
    (work / "broken.safetensors").write_text("broken")
    (work / "pytorch_model.bin").write_text("pickled")
    shutil.copytree(house / "first", folder / "environment", symlinks=True)


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Of model and environment; what Python compiled says nothing."""
    rows = {**content(folder / "work"), **content(folder / "environment")}
    return {name: row for name, row in rows.items() if "__pycache__" not in name}


def test_old_or_new_of_what_is_large(house: Path) -> None:
    """Packages, fetched and converted model files, a folder: at each of our own calls."""
    whole = house / "whole"
    furnished(whole, house)
    old = everything(whole)
    applying = points("apply", whole, house / "trace")
    new = everything(whole)
    assert new["broken.safetensors"][0] == b"whole"
    assert new["model.safetensors"][0] == b"converted"
    assert {name for name in new if name.endswith("added.py")}
    assert not {name for name in new if "pynvml" in name and ".infer-doctor" not in name}
    undoing = points("undo", whole, house / "trace")
    assert everything(whole) == old
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [
            pool.submit(large_killed, house / f"{verb}-{call}-{number}", house, verb, call, number,
                        old, new)
            for verb, points in (("apply", applying), ("undo", undoing))
            for call, number in points[::STRIDE]
        ]  # fmt: skip
        for task in tasks:
            task.result()
    made = len(applying[::STRIDE]) + len(undoing[::STRIDE])
    print(f"large steps: killed at {made} of {len(applying) + len(undoing)} calls")


def large_killed(
    folder: Path, house: Path, verb: str, call: str, number: int, old: Any, new: Any
) -> None:
    """Each file of the model is the old or the new one; undo brings all of it back."""
    furnished(folder, house)
    if verb == "undo":
        assert driven("apply", folder) == 0
    killed(verb, folder, call, number)
    found = content(folder / "work")
    for name in ("broken.safetensors", "config.json", "pytorch_model.bin", "model.safetensors"):
        assert found.get(name) in (old.get(name), new.get(name)), (verb, call, number, name)
    for run in runs(str(folder / "state")):
        assert run.ended or "stopped before its end" in next(stopped(run))
    for run in reversed(runs(str(folder / "state"))):
        if run.left or not run.ended:
            undo(str(folder / "state"), run.id)
    assert everything(folder) == old, (verb, call, number)
    shutil.rmtree(folder)
