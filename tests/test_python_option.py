"""`--python`: what cannot be examined ends in one line and exit 2, before anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor_process import Run

CASES = {
    "program": ("/bin/ls", "/bin/ls: is not a Python interpreter (CPython 3.8 or newer)"),
    "missing": ("/no/such/python", "/no/such/python: no such file"),
    "folder": ("/usr", "/usr: is a folder, not a Python interpreter"),
    "text": ("text", "text: there is no such program on PATH"),
    "text by path": ("./text", "./text: is not a Python interpreter (CPython 3.8 or newer)"),
    "device": ("/dev/zero", "/dev/zero: is no regular file"),
    "nothing": ("", ": there is no such program on PATH"),
    "interpreter without a library": (
        "./python3",
        "./python3: no Python library below {folder}: {folder}/lib: No such file or directory",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("command", ["check", "snapshot"])
def test_no_interpreter(tmp_path: Path, case: str, command: str) -> None:
    python, reason = CASES[case]
    home = tmp_path / "bin"
    home.mkdir()
    (home / "text").write_text("not a program\n")
    (home / "python3").write_bytes(b"\x7fELF Py_BytesMain")
    (home / "python3").chmod(0o755)
    output = ["-o", "out.json"] if command == "snapshot" else []
    ended = Run(home)(command, "--python", python, *output)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == f"infer-doctor: --python {reason.format(folder=tmp_path)}\n"
    assert not (home / "out.json").exists()


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "python3")
    ended = Run(tmp_path)("check", "--python", f"{tmp_path}/python3")
    assert ended.returncode == 2
    assert ended.stderr.endswith("python3: is no regular file\n")
