"""The measured starts as the plan sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infer_doctor.memory.parts import Gpu, Model
from infer_doctor.memory.plan import MemoryPlan, make_plan
from infer_doctor.memory.quantization import scheme_of
from infer_doctor.memory.reading import read_architecture
from infer_doctor.memory.settings import settings_of
from infer_doctor.memory.tensors import from_config

TRUTH = json.loads((Path(__file__).parents[1] / "memory" / "starts.json").read_text())
STARTS: dict[str, dict[str, Any]] = TRUTH["starts"]
H200 = Gpu(name="NVIDIA H200", usable=TRUTH["usable_bytes"], total=143771 << 20, capability=(9, 0))


def model_of(config: dict[str, Any]) -> Model:
    architecture = read_architecture(config)
    scheme = scheme_of(config.get("quantization_config"))
    return Model(
        architecture=architecture,
        weights=tuple(from_config(architecture, 2, scheme)),
        basis="config.json",
        scheme=scheme,
    )


def plan_of(
    config: dict[str, Any],
    options: dict[str, Any],
    gpu: Gpu = H200,
    *,
    version: tuple[int, ...] = (0, 26, 0),
    entry: str = "LLM",
) -> MemoryPlan:
    model = model_of(config)
    settings = settings_of(
        options,
        model.architecture,
        version=version,
        entry=entry,
        gpu_name=gpu.name,
        gpu_total=gpu.usable,
        capability=gpu.capability,
    )
    return make_plan(model, settings, gpu)


def plan_of_start(name: str, **options: Any) -> MemoryPlan:
    start = STARTS[name]
    return plan_of(TRUTH["configs"][start["model"]], {**start["options"], **options})
