"""The exit code does not depend on the form of the report."""

from pathlib import Path

import pytest
import reports

from infer_doctor.cli import run
from infer_doctor.commands.common import FORMATS

WORDS = {
    0: ("h200", []),
    1: ("h200-x2-orphan", []),
    3: ("h200", ["--select", "cuda-context-failed"]),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("code", WORDS)
def test_every_form(
    code: int, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, more = WORDS[code]
    snapshot = str(reports.CASES[reports.NAMES.index(name)] / "snapshot.json")
    words = ["check", "--snapshot", snapshot, "--format", format, *more]
    assert run(words) == code
    printed = capsys.readouterr().out
    assert run([*words, "--output", str(tmp_path / "report")]) == code
    assert (tmp_path / "report").stat().st_size > 100
    assert len(printed) > 100
