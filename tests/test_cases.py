"""Cases: the snapshot of a machine in, the whole report out, compared with the committed one.

`python tests/test_cases.py` writes the reports anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"
TIMES = ("started_at", "duration_s")


def report_of(case: Path) -> dict[str, Any]:
    """What `check --snapshot` says, without what differs from run to run."""
    options = json.loads((case / "options.json").read_text())
    snapshot = str(case / "snapshot.json")
    command = [sys.executable, "-m", "infer_doctor", "check", "--snapshot", snapshot]
    done = subprocess.run(
        [*command, "--format", "json", *options], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    for name in TIMES:
        del report[name]
    for row in report["results"]:
        del row["duration_ms"]
    del report["tool"]
    return report


def cases() -> list[Path]:
    return sorted(path.parent for path in CASES.glob("*/snapshot.json"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_case(case: Path) -> None:
    assert report_of(case) == json.loads((case / "report.json").read_text())


def test_there_are_cases() -> None:
    assert len(cases()) >= 2


if __name__ == "__main__":
    for folder in cases():
        text = json.dumps(report_of(folder), indent=1) + "\n"
        (folder / "report.json").write_text(text)
