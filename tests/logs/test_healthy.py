"""Healthy logs that look ill: none may give a finding of severity error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from infer_doctor.cli import cli

CASES = sorted((Path(__file__).parent.parent / "cases" / "healthy").glob("*.log"))

WARNED = {
    "busy-503": "a server that refuses for a full queue",
    "scanner-404": "",
    "stopped-without-its-start": "a connection that broke while it served",
}
"""Where a warning is right; all others have at most notes."""


def test_there_are_at_least_forty() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_no_alarm(case: Path) -> None:
    done = CliRunner().invoke(
        cli, ["diagnose", str(case), "--format", "json"], obj=[], standalone_mode=False
    )
    report = json.loads(done.output)
    assert report["verdict"] == "pass"
    assert report["counts"]["error"] == 0
    assert report["counts"]["warning"] <= (case.stem in WARNED)
    assert report["counts"]["crashed"] == 0
