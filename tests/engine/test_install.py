"""Installing the doctor into an engine's environment changes no version that is there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.skipif(
    "INFER_DOCTOR_TEST_ENGINE" not in os.environ, reason="INFER_DOCTOR_TEST_ENGINE names no engine"
)
def test_nothing_that_is_installed_is_changed() -> None:
    pip = [f"{os.environ['INFER_DOCTOR_TEST_ENGINE']}/bin/python", "-m", "pip"]
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    listed = subprocess.run(
        [*pip, "list", "--format", "json"], capture_output=True, text=True, env=quiet, check=True
    )
    there = {row["name"].lower().replace("_", "-") for row in json.loads(listed.stdout)}
    assert "torch" in there
    words = ["install", "--dry-run", "--quiet", "--report", "-", str(ROOT)]
    planned = subprocess.run([*pip, *words], capture_output=True, text=True, env=quiet, check=True)
    rows = json.loads(planned.stdout)["install"]
    names = {row["metadata"]["name"].lower().replace("_", "-") for row in rows}
    assert "infer-doctor" in names
    assert names & there == set()
