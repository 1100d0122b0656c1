"""A snapshot taken with a launch holds its model: the launch is judged elsewhere as it was here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import model_folder
import pytest

from infer_doctor.cli import run as command_line


def results(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    command_line(words)
    report = json.loads(capsys.readouterr().out)
    return {
        row["check"]: (row["outcome"], [finding["message"] for finding in row["findings"]])
        for row in report["results"]
        if row["check"].startswith(("model-", "launch-"))
    }


def test_model_of_the_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model_folder.folder(tmp_path / "m")
    (folder / "model-00002-of-00002.safetensors").write_bytes(b"1234")
    launch = ["--", "vllm", "serve", str(folder), "-tp", "3"]
    file = str(tmp_path / "snapshot.json")
    assert command_line(["snapshot", "-o", file, *launch]) == 0
    live = results(["check", "--format", "json", *launch], capsys)
    shutil.rmtree(folder)
    replayed = results(["check", "--format", "json", "--snapshot", file, *launch], capsys)
    assert replayed == live
    assert live["launch-tp-indivisible"][0] == "failed"
    assert live["model-weights-broken"][0] == "failed"
