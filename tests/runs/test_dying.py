"""An engine that comes up and dies when it is asked: its log tells the cause, not its clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import standin_engine
from doctor_process import Run

LOAD = ("reproduce", "timeout", "--most", "4", "--tokens", "4", "--format", "json")


def runner(home: Path, kind: str) -> Run:
    path = standin_engine.program(home / "bin")
    return Run(home, {"PATH": f"{path}:/usr/bin:/bin", "STANDIN": kind})


def found(text: str) -> dict[str, dict[str, Any]]:
    rows = [row for result in json.loads(text)["results"] for row in result["findings"]]
    return {row["check"]: row for row in rows}


@pytest.mark.parametrize("kind", ["dies", "falls"])
def test_under_a_load(kind: str, tmp_path: Path) -> None:
    run = runner(tmp_path, kind)
    done = run(*LOAD, "--keep", "kept", "--", "vllm", "serve", "m")
    rows = found(done.stdout)
    assert done.returncode == 1
    assert "out of memory while serving" in rows["log-engine-failed"]["message"]
    if kind == "dies":
        assert "the engine ended with exit code 1" in rows["run-load-late"]["message"]
        titles = [fix["title"] for fix in json.loads(done.stdout)["fixes"]]
        assert not [title for title in titles if "at once" in title]
    replayed = run("reproduce", "timeout", "--replay", "kept", "--format", "json")
    assert replayed.returncode == 1
    assert {id: row["message"] for id, row in found(replayed.stdout).items()} == {
        id: row["message"] for id, row in rows.items()
    }


@pytest.mark.parametrize("kind", ["dies", "falls"])
def test_while_it_is_compared(kind: str, tmp_path: Path) -> None:
    run = runner(tmp_path, kind)
    (tmp_path / "serve.sh").write_text("vllm serve m\n")
    done = run("compare", "serve.sh", "serve.sh", "--tokens", "4")
    assert done.returncode == 2
    assert "ended while it was asked: out of memory while serving" in " ".join(done.stderr.split())


def test_that_it_is_not_kept_is_said(tmp_path: Path) -> None:
    done = runner(tmp_path, "dies")(*LOAD, "--", "vllm", "serve", "m")
    assert "--keep DIR keeps them" in done.stderr
