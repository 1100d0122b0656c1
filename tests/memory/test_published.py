"""Plans of models that are only named: the catalogue against whole configurations, and what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.catalog.models import published
from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.inputs import Source, inputs_of
from infer_doctor.memory.parts import Gpu

CONFIGS = sorted((Path(__file__).parent.parent / "cases" / "configs").glob("*.json"))
GIB = 1 << 30

GPU = Gpu(
    name="NVIDIA H200",
    usable=150_109_880_320,
    total=150_754_820_096,
    used=0,
    capability=(9, 0),
    exact=True,
)


def figures(config: dict[str, Any], **options: Any) -> tuple[Any, ...]:
    """What a plan says, or why there is none."""
    try:
        source = Source(config=config, quantization=None)
        plan = inputs_of(source, options, version="0.29.0", entry="serve").plan(GPU)
    except Unplannable as error:
        return (str(error),)
    return plan.rank, plan.tokens, plan.longest, plan.limit, plan.settings.context


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("tensor", [1, 8])
def test_the_catalogue_gives_the_plan_of_the_whole_configuration(path: Path, tensor: int) -> None:
    kept = published(path.stem.replace("--", "/"))
    assert kept is not None
    whole = json.loads(path.read_text())
    assert figures(kept, tensor_parallel_size=tensor) == figures(whole, tensor_parallel_size=tensor)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # Parameters as the model cards count them, the tied matrix once.
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.494),
        ("Qwen/Qwen2.5-3B", 3.09),
        ("Qwen/Qwen2.5-72B-Instruct", 72.7),
        ("Qwen/Qwen3-0.6B", 0.596),
        ("Qwen/Qwen3-4B", 4.02),
        ("Qwen/Qwen3-32B", 32.8),
        ("meta-llama/Llama-3.3-70B-Instruct", 70.6),
        ("Qwen/Qwen3-235B-A22B", 235.1),
    ],
)
def test_weights_by_the_name_alone(name: str, billions: float) -> None:
    config = published(name)
    assert config is not None
    rank = figures(config)[0]
    assert rank.weights == pytest.approx(billions * 2e9, rel=0.01, abs=0.1 * GIB)


@pytest.mark.parametrize(
    ("speculative", "planned"),
    [
        ({"method": "ngram", "num_speculative_tokens": 4}, True),
        ({"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}, True),
        ({"model": "org/Model-EAGLE-head", "num_speculative_tokens": 3}, True),
        ({"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5}, False),
        ({"method": "draft_model", "model": "a/eagle", "num_speculative_tokens": 5}, False),
    ],
)
def test_a_whole_draft_model_is_not_planned(speculative: dict[str, Any], planned: bool) -> None:
    """28 layers of a draft hold nearly as much cache as the 36 of its target: no band covers that."""
    config = published("Qwen/Qwen3-8B")
    assert config is not None
    found = figures(config, speculative_config=speculative)
    assert (len(found) > 1) is planned


def test_suggestions_leave_room_for_what_is_not_counted() -> None:
    config = published("Qwen/Qwen2.5-VL-7B-Instruct")
    assert config is not None
    made = inputs_of(
        Source(config=config, quantization=None), {}, version="0.29.0", entry="serve"
    ).plan(GPU, gpu_memory_utilization=0.15)
    assert made.uncounted == 2 << 30
    assert made.longest > made.safe_longest
