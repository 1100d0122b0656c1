"""A real vLLM refuses exactly the launches of these models that the checks refuse."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launches import config, files, launch, options

from infer_doctor.checks.launch_model import context_too_long
from infer_doctor.checks.launch_quantization import (
    dtype_unsupported,
    quantization_mismatch,
    quantization_unknown,
)
from infer_doctor.testing import examine

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
QWEN, AWQ, GEMMA = (
    "Qwen--Qwen2.5-7B-Instruct",
    "Qwen--Qwen2.5-72B-Instruct-AWQ",
    "google--gemma-2-9b-it",
)
YARN = {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (QWEN, {}, {"max_model_len": 32768}),
    (QWEN, {}, {"max_model_len": 32769}),
    (QWEN, YARN, {"max_model_len": 131072}),
    (QWEN, {**YARN, "max_position_embeddings": 131072}, {"max_model_len": 131072}),
    (QWEN, {"rope_scaling": {"type": "linear", "factor": 4.0}}, {"max_model_len": 131072}),
    (QWEN, {}, {"quantization": "no-such-method"}),
    (QWEN, {}, {"quantization": "bitsandbytes"}),
    (AWQ, {}, {"quantization": "awq"}),
    (AWQ, {}, {"quantization": "gptq"}),
    (AWQ, {}, {"quantization": "fp8"}),
    (GEMMA, {}, {"dtype": "half"}),
    (GEMMA, {}, {"dtype": "bfloat16"}),
]
"""Model, what is changed in its config.json, the arguments."""

SCRIPT = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from vllm.config import ModelConfig
for folder, given in json.load(sys.stdin):
    try:
        ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, **given)
        print("taken", flush=True)
    except Exception as error:
        print("refused:", str(error).splitlines()[1].strip(), flush=True)
"""


@pytest.mark.engine
def test_the_engine_refuses_what_the_checks_refuse(engine: Path, tmp_path: Path) -> None:
    questions = []
    for number, (name, changed, given) in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = {**json.loads((CONFIGS / f"{name}.json").read_text()), **changed}
        (folder / "config.json").write_text(json.dumps(found))
        questions.append((str(folder), given))
    done = subprocess.run(
        [f"{engine}/bin/python", "-c", SCRIPT],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        timeout=500,
    )
    answers = [row for row in done.stdout.splitlines() if row.startswith(("taken", "refused"))]
    assert len(answers) == len(CASES), done.stderr[-2000:]
    wrong = []
    for (name, changed, given), answer in zip(CASES, answers, strict=True):
        facts = (launch(), options(**given), files(name), config(name, **changed))
        checks = (context_too_long, quantization_unknown, quantization_mismatch, dtype_unsupported)
        errors = [f for check in checks for f in examine(check, *facts).findings]
        if bool(errors) != answer.startswith("refused"):
            wrong.append((name, given, answer, [finding.message for finding in errors]))
    assert wrong == []
