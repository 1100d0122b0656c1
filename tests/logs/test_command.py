"""`infer-doctor diagnose` and `check LOG`: exit codes, forms, what is joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run

TESTS = Path(__file__).parent.parent
LOGS = TESTS / "captures" / "logs"
ECHO = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"


@pytest.fixture
def infer_doctor(tmp_path: Path) -> Run:
    return Run(tmp_path)


def diagnose(infer_doctor: Run, *words: str) -> tuple[int, dict[str, Any]]:
    done = infer_doctor("diagnose", "--format", "json", *words)
    return done.returncode, json.loads(done.stdout)


def test_exit_codes(infer_doctor: Run, tmp_path: Path) -> None:
    echo = tmp_path / "echo.log"
    echo.write_text(ECHO)
    assert infer_doctor("diagnose", str(LOGS / "fit-1b.log")).returncode == 0
    assert infer_doctor("diagnose", str(LOGS / "fail-8b-len-kv.log")).returncode == 1
    assert infer_doctor("diagnose", str(echo)).returncode == 3
    for words in ((), ("none.log",), ("x.log", "--container", "y"), (str(tmp_path),)):
        assert infer_doctor("diagnose", *words).returncode == 2


def test_report_names_the_engine_and_the_phases(infer_doctor: Run) -> None:
    _, report = diagnose(infer_doctor, str(LOGS / "fit-8b-default.log"))
    assert report["target"]["engine"] == {"name": "vllm", "version": "0.26.0"}
    (start,) = report["measurements"]["cold_start"].values()
    phases = {row["name"]: row["seconds"] for row in start["phases"]}
    assert (start["seconds_to_ready"], phases["compile"]) == (79.0, 23.97)


def test_bars_at_eighty_columns(infer_doctor: Run) -> None:
    text = infer_doctor("diagnose", str(LOGS / "fit-8b-default.log")).stdout
    assert "start 79 s from the first line to ready" in text
    assert max(len(line) for line in text.splitlines() if "#" in line) <= 80


def test_what_to_send_is_said(infer_doctor: Run, tmp_path: Path) -> None:
    echo = tmp_path / "echo.log"
    echo.write_text(ECHO)
    code, report = diagnose(infer_doctor, str(echo))
    assert (code, report["verdict"], report["primary"]) == (3, "unknown", None)
    assert "send the lines of (EngineCore ...)" in json.dumps(report["results"])


def test_several_logs_are_several_subjects(infer_doctor: Run) -> None:
    names = [str(LOGS / "fit-1b.log"), str(LOGS / "fail-no-weights.log")]
    code, report = diagnose(infer_doctor, *names)
    assert code == 1
    assert {row["subject"] for row in report["results"]} == set(names)
    assert report["primary"]["subject"] == names[1]


def test_dead_engine_of_the_snapshot_is_named(infer_doctor: Run) -> None:
    snapshot = str(TESTS / "cases" / "h200-x2-orphan" / "snapshot.json")
    _, report = diagnose(
        infer_doctor, str(LOGS / "fail-orphan-holds-gpu.log"), "--snapshot", snapshot
    )
    assert "no server above it) holds 129.9 GiB of GPU 0" in report["primary"]["message"]
    assert report["fixes"][0]["id"].startswith("end-pid-")


def test_launch_beside_the_log_gives_its_numbers(infer_doctor: Run, tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("ValueError: The input size is not aligned with the quantized weight shape.\n")
    code, report = diagnose(infer_doctor, str(log), "--", "vllm", "serve", "m", "-tp", "4")
    assert code == 1
    assert "than 4: 2, else 1" in report["fixes"][0]["title"]


@pytest.mark.parametrize("name", ["fail-8b-len-kv", "fail-unknown-arg", "fit-1b"])
def test_check_of_a_log_says_the_same(infer_doctor: Run, name: str) -> None:
    path = str(LOGS / f"{name}.log")
    code, report = diagnose(infer_doctor, path)
    done = infer_doctor("check", path, "--format", "json")
    assert done.returncode == code
    assert json.loads(done.stdout)["primary"] == report["primary"]
