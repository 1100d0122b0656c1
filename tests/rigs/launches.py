"""Launches and their options, built by hand for the tests of checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, Gpus
from infer_doctor.facts.model_config import ModelConfig
from infer_doctor.facts.model_files import ModelFile, ModelFiles
from infer_doctor.launch.model import COMMAND_LINE, Launch, Place, Variable, Word

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
HERE = Place(file=COMMAND_LINE)
FOLDER = "/models/m"


def options(
    model: str = FOLDER, version: str | None = "0.32.0", entry: str = "serve", **given: Any
) -> EngineOptions:
    """Options as the probe makes them; True is a flag without a value."""

    def option(name: str, value: Any) -> Option:
        text = "" if value is True else json.dumps(value) if isinstance(value, dict) else str(value)
        flag = "--" + name.replace("_", "-")
        return Option(name=name, flag=flag, value=value, text=text, place=HERE)

    return EngineOptions(
        engine="vllm",
        version=version,
        basis="the installed sources of vLLM 0.32.0",
        exact=True,
        entry=entry,
        model=Option(name="model", flag="model", value=model, text=model, place=HERE),
        given={name: option(name, value) for name, value in given.items()},
        defaults={"generation_config": "auto"},
    )


def launch(machine: Any = "local", **environment: str) -> Launch:
    """A command line; its words do not matter to the checks."""
    return Launch(
        name="command line",
        kind="command",
        machine=machine,
        engine="vllm",
        entry="serve",
        place=HERE,
        program=(Word(text="vllm", place=HERE), Word(text="serve", place=HERE)),
        words=(Word(text=FOLDER, place=HERE),),
        environment=tuple(
            Variable(name=name, value=value, place=HERE) for name, value in environment.items()
        ),
    )


def values(name: str) -> dict[str, Any]:
    """config.json of a public model: "Qwen--Qwen3-8B"."""
    found: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return found


def config(name: str, **more: Any) -> ModelConfig:
    return ModelConfig(values={**values(name), **more}, source=f"{FOLDER}/config.json")


def files(name: str = "Qwen--Qwen3-8B", **more: Any) -> ModelFiles:
    """The folder of a public model, whole."""
    found = values(name)
    quantization = found.get("quantization_config")
    rows: dict[str, Any] = {
        "model": FOLDER,
        "origin": "folder",
        "folder": FOLDER,
        "config": found,
        "quantization": quantization,
        "quantization_source": "config.json" if quantization else None,
        "tokenizer_config": {"chat_template": "{{ messages }}"},
        "files": tuple(
            ModelFile(name=file, size=1000)
            for file in ("config.json", "model.safetensors", "tokenizer.json")
        ),
        "loaded": ("model.safetensors",),
    }
    return ModelFiles(**{**rows, **more})


def gpus(count: int) -> Gpus:
    return Gpus(
        gpus=tuple(
            Gpu(index=index, name="NVIDIA H200", uuid=f"GPU-{index}", bus_id=f"0000:00:0{index}.0")
            for index in range(count)
        ),
        source="NVML",
    )


def capabilities(*found: tuple[int, int]) -> GpuCapabilities:
    rows: Mapping[int, tuple[int, int]] = dict(enumerate(found))
    return GpuCapabilities(capabilities=rows, source="NVML")
