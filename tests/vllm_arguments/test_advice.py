"""Advice that circulates and is wrong: what of it speaks of vLLM's arguments, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.checks.launch_arguments import argument_unknown
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.launch.python import read
from infer_doctor.testing import examine
from infer_doctor.vllm_arguments.table import catalogue

FILE = Path(__file__).parent.parent / "cases" / "advice" / "warm-engine.py"

ROWS = [("auto_warmup", 12), ("ngram_parallel_finder", 13)]


@pytest.mark.parametrize("version", [None, "0.6.3", "0.12.0", "0.33.0"])
@pytest.mark.parametrize(("name", "line"), ROWS)
def test_arguments_that_no_vllm_has(name: str, line: int, version: str | None) -> None:
    (launch,) = read(FILE.read_text(), str(FILE)).launches
    question = EngineQuestion(name="vllm", version=version) if version else None
    options = engine_options(launch, vllm_table(launch, None, None, question))
    found = {f.about: f for f in examine(argument_unknown, launch, options).findings}
    assert set(found) == {row[0] for row in ROWS}
    assert (found[name].evidence[0].source, found[name].evidence[0].line) == (str(FILE), line)
    assert f"nor did any version from {catalogue().versions[0]} on" in found[name].message
    assert found[name].fixes
