"""For checks of a launch against its model: found, fixed by the command, found no more, taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import model_folder
import pytest
from doctor_process import Run
from model_folder import TINY

BIG = {
    **TINY,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
}
"""The KV cache of a model of 7 billion parameters: 512 KiB a token."""

BERT = {**TINY, "architectures": ["BertModel"], "model_type": "bert"}

CASES: list[tuple[str, str, Mapping[str, Any], str | None]] = [
    ("launch-quantization-mismatch", "--quantization gptq", TINY, None),
    ("launch-dtype-unsupported", "--dtype bfloat16", TINY, "T4"),
    ("launch-kv-cache-unscaled", "--kv-cache-dtype fp8", TINY, "H200"),
    ("launch-attention-backend-refused", "--attention-backend TRITON_MLA", TINY, "H200"),
    ("launch-gpus-too-few", "--tensor-parallel-size 4", TINY, "H200:2"),
    (
        "launch-pooling-model-chat",
        "--enable-auto-tool-choice --tool-call-parser hermes",
        BERT,
        None,
    ),
    ("model-sampling-limited", "--port 8000", TINY, None),
    ("memory-context-too-long", "--max-model-len 131072", BIG, "RTX-4090"),
    (
        "memory-sequences-too-many",
        "--max-model-len 16384 --max-num-seqs 512",
        BIG,
        "RTX-4090",
    ),
]


def found(run: Run, *words: str) -> list[str]:
    """The checks that find something."""
    said = run("check", "start.sh", *words, "--format", "json")
    return [row["check"] for row in json.loads(said.stdout)["results"] if row["findings"]]


@pytest.mark.parametrize(
    ("check", "options", "config", "gpu"), CASES, ids=[case[0] for case in CASES]
)
def test_cured_and_taken_back(
    check: str, options: str, config: Mapping[str, Any], gpu: str | None, tmp_path: Path
) -> None:
    model = model_folder.folder(
        tmp_path / "model", config, generation_config={"max_new_tokens": 16}
    )
    text = f"#!/bin/sh\n# ours\nexec vllm serve {model} {options}  # at night\n"
    file = tmp_path / "start.sh"
    file.write_text(text)
    file.chmod(0o740)
    run = Run(tmp_path)
    words = ["--select", check, *(("--gpu", gpu) if gpu else ())]
    assert found(run, *words) == [check]
    done = run("fix", "start.sh", *words, "--apply", "--yes", "--unsafe")
    assert done.stderr == ""
    assert done.stdout.startswith("cured: "), done.stdout
    assert done.returncode == 0
    assert found(run, *words) == []
    assert file.read_text().endswith("  # at night\n")
    assert run("undo", "--yes").returncode == 0
    assert file.read_text() == text
    assert file.stat().st_mode & 0o777 == 0o740
