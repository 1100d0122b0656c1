"""Facts out of JSON keep their form or are refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from infer_doctor.facts.run import Ramp, Start, Step
from infer_doctor.runs.typed import typed

STEP = Step(
    concurrency=2,
    requests=4,
    failed=0,
    late=1,
    ttft_median=0.1,
    ttft_worst=None,
    total_median=1.0,
    total_worst=1.2,
)
RAMP = Ramp(
    url="http://h:8000",
    limit_s=2,
    first_token_s=None,
    tokens=64,
    steps=(STEP,),
    safe=None,
    broken=STEP,
    cause="slow",
)
START = Start(
    label="as asked",
    why="",
    command=("vllm", "serve"),
    ready=True,
    ended="",
    seconds=1.0,
    gpu_peak={"0": 1 << 30},
    left=(7,),
)


@pytest.mark.parametrize("fact", [RAMP, START, STEP])
def test_what_was_written_comes_back(fact: Any) -> None:
    assert typed(type(fact), json.loads(json.dumps(dataclasses.asdict(fact)))) == fact


@pytest.mark.parametrize(
    ("fact", "name", "value"),
    [
        (START, "seconds", "1"),
        (START, "seconds", True),
        (START, "ready", 1),
        (START, "ended", "somehow"),
        (START, "command", "vllm serve"),
        (START, "command", [1]),
        (START, "gpu_peak", {"0": "much"}),
        (START, "left", [1.5]),
        (RAMP, "steps", [{"concurrency": 1}]),
        (RAMP, "broken", {}),
        (RAMP, "broken", [1]),
        (RAMP, "cause", "fate"),
        (RAMP, "other", 1),
    ],
)
def test_another_form_is_refused(fact: Any, name: str, value: Any) -> None:
    whole = {**json.loads(json.dumps(dataclasses.asdict(fact))), name: value}
    with pytest.raises(TypeError):
        typed(type(fact), whole)
