"""The single file: pure Python, and the same report as the installed program."""

from __future__ import annotations

import atexit
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import reports
import single_file

from infer_doctor.cli import COMMANDS, run

atexit.register(single_file.remove)

PYTHONS = single_file.interpreters()

NOT_IN_IT = frozenset(("fix", "undo", "history", "probe", "compare", "reproduce"))
"""Commands that need more than pure Python."""


def call(version: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [PYTHONS[version], "-I", str(single_file.built()), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_it_holds_nothing_compiled_for_one_processor() -> None:
    with zipfile.ZipFile(single_file.built()) as archive:
        names = archive.namelist()
        assert not [name for name in names if name.endswith((".so", ".pyd", ".dylib"))]
        starts = {archive.read(name)[:4] for name in names if name.endswith((".py", ".pyc"))}
    assert b"\x7fELF" not in starts
    assert {name.split("/")[0] for name in names} >= {"__main__.py", "src"}


@pytest.mark.parametrize("version", PYTHONS)
def test_it_gives_the_report_of_the_installed_program(version: str, tmp_path: Path) -> None:
    snapshot = str(reports.CASES[reports.NAMES.index("h200-x2")] / "snapshot.json")
    words = ["check", "--snapshot", snapshot, "--format", "json"]
    done = call(version, *words, cwd=tmp_path)
    assert done.stderr == ""
    assert run([*words, "--output", str(tmp_path / "own")]) == done.returncode
    found, own = json.loads(done.stdout), json.loads((tmp_path / "own").read_text())
    assert timeless(found) == timeless(own)


def timeless(report: dict[str, Any]) -> dict[str, Any]:
    for row in report["results"]:
        del row["duration_ms"]
    return {key: report[key] for key in report if key not in ("duration_s", "started_at")}


@pytest.mark.parametrize("version", PYTHONS)
def test_it_looks_at_this_machine_and_becomes_a_command(version: str, tmp_path: Path) -> None:
    done = call(version, "check", "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["counts"]["crashed"] == 0
    assert report["counts"]["passed"] > 0
    done = call(version, "preflight", "--", "echo", "started", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "started\n")


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("command", sorted(frozenset(COMMANDS) - NOT_IN_IT))
def test_its_commands_can_be_loaded(version: str, command: str, tmp_path: Path) -> None:
    done = call(version, command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: infer-doctor")


def test_another_python_takes_the_sources(tmp_path: Path) -> None:
    """A version that nothing was compiled for."""
    with zipfile.ZipFile(single_file.built()) as archive:
        archive.extractall(tmp_path / "open")
    main = tmp_path / "open" / "__main__.py"
    text = main.read_text()
    start = text.index('archive + "/" + (')
    main.write_text(text[:start] + 'archive + "/src"\n' + text[text.index("\n", start) :])
    version, command = next(iter(PYTHONS.items()))
    words = [command, "-I", str(tmp_path / "open"), "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("infer-doctor "), (version, done.stderr)
