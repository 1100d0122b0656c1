"""No process of a run outlives the doctor, however it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import engine_tree
import pytest

from infer_doctor.runs import child
from infer_doctor.runs.child import Child, Limits

DOCTOR = """
import sys, time
from infer_doctor.runs.child import Child, Limits
child = Child([sys.executable, sys.argv[1], sys.argv[2]], {}, "/", sys.argv[2] + ".log", Limits())
while child.alive(0.2):
    pass
"""
WHOLE = 6
HANG_S = 60.0
"""What only a hang exceeds."""


def pids(folder: Path) -> list[int]:
    return [int(path.name.rpartition("-")[2]) for path in folder.iterdir()]


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone(folder: Path) -> bool:
    """Whether every process that was ever there ends soon; a late one counts too."""
    began = time.monotonic()
    while time.monotonic() - began < HANG_S:
        if not any(lives(pid) for pid in pids(folder)):
            seen = len(pids(folder))
            time.sleep(0.1)
            if len(pids(folder)) == seen and not any(lives(pid) for pid in pids(folder)):
                return True
        time.sleep(0.05)
    return False


def stands(folder: Path) -> None:
    began = time.monotonic()
    while len(pids(folder)) < WHOLE:
        assert time.monotonic() - began < HANG_S
        time.sleep(0.02)


def tree(folder: Path, **limits: float) -> Child:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, engine_tree.__file__, str(folder)]
    return Child(command, {}, "/", f"{folder}.log", Limits(**limits))


@pytest.mark.parametrize("batch", range(5))
def test_a_killed_doctor_leaves_nothing(tmp_path: Path, batch: int) -> None:
    """Ten times kill -9 at a random time: before, while and after the tree comes up."""
    chance = random.Random(batch)
    doctors = []
    for number in range(10):
        folder = tmp_path / f"tree-{number}"
        folder.mkdir()
        words = [sys.executable, "-c", DOCTOR, engine_tree.__file__, str(folder)]
        doctors.append((chance.uniform(0.0, 4.0), folder, subprocess.Popen(words)))
    began = time.monotonic()
    for moment, _, doctor in sorted(doctors, key=lambda row: row[0]):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        doctor.kill()
        doctor.wait()
    assert all(gone(folder) for _, folder, _ in doctors)
    assert any(pids(folder) for _, folder, _ in doctors)


def test_the_whole_tree_ends_with_the_block(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    with tree(folder) as child:
        stands(folder)
        assert all(lives(pid) for pid in pids(folder))
        ended = child.end()
    assert ended["left"] == []
    assert not [pid for pid in pids(folder) if lives(pid)]


def test_a_killed_guard_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    with tree(folder) as child:
        stands(folder)
        while len(child.pids) < WHOLE:
            assert child.alive(0.5)
        child.process.kill()
        assert not child.alive(HANG_S)
    assert gone(folder)


def test_the_terminal_ends_only_the_doctor(tmp_path: Path) -> None:
    """Ctrl-C goes to the group of the terminal: the guard is not in it, and ends all in order."""
    folder = tmp_path / "tree"
    folder.mkdir()
    words = [sys.executable, "-c", DOCTOR, engine_tree.__file__, str(folder)]
    doctor = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
    stands(folder)
    os.killpg(doctor.pid, signal.SIGINT)
    doctor.wait()
    assert gone(folder)


def test_the_watchdog(tmp_path: Path) -> None:
    for name, limits, why in (
        ("wall", {"wall_s": 1.0}, "wall"),
        ("idle", {"idle_s": 1.0}, "idle"),
        ("memory", {"host_bytes": 1 << 20}, "memory"),
    ):
        child = tree(tmp_path / name, **limits)
        assert not child.alive(HANG_S)
        assert child.end()["why"] == why
        assert gone(tmp_path / name)


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    with Child(["/nowhere/engine"], {}, "/", str(tmp_path / "log"), Limits()) as child:
        assert not child.alive(HANG_S)
        assert child.refused == "No such file or directory: /nowhere/engine"


def test_an_nvidia_smi_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, 100'\necho '1, [N/A]'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert child.gpu_used() == {0: 100 << 20}
    note = tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\necho $$ > {note}\necho '0, 100'\nexec sleep {HANG_S * 10:.0f}\n"
    )
    monkeypatch.setattr(child, "GPU_ANSWER_S", 5.0)
    assert child.gpu_used() == {}
    assert not lives(int(note.read_text()))
