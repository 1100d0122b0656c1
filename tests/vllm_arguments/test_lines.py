"""Command lines, good and bad, against what the real parsers made of them."""

from __future__ import annotations

import json

import pytest
import vllm_lines
from vllm_parsers import FOLDER, by_name, differences, read_line, real, refused

from infer_doctor.vllm_arguments.table import catalogue

RECORDED = sorted(path.stem.removeprefix("lines-") for path in FOLDER.glob("lines-*.jsonl"))


@pytest.mark.parametrize("version", RECORDED)
def test_every_line_is_accepted_or_refused_as_really_and_its_values_are_equal(version: str) -> None:
    table = catalogue().table(version)
    defaults = {action["dest"]: action["default"] for action in by_name(real(version)).values()}
    lines = (FOLDER / f"lines-{version}.jsonl").read_text().splitlines()
    rows = [json.loads(row) for row in lines]
    found = [d for row in rows for d in differences(row["line"], row, table, defaults)]
    assert found == []
    assert 0.3 < sum("ok" in row for row in rows) / len(rows) < 0.8, "both kinds are there"


def test_no_line_crashes_the_parser() -> None:
    for version in catalogue().versions[::6]:
        table = catalogue().table(version)
        for line in vllm_lines.lines(table, 60, seed=7):
            refused(read_line(line, table))
