"""Launches of well-known models that are not on this machine, judged by what was published: likely."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.checks.launch_additions import draft_vocabulary, pooling_model_chat
from infer_doctor.checks.launch_attention import attention_backend_refused, kv_cache_unscaled
from infer_doctor.checks.launch_parallel import tp_indivisible
from infer_doctor.checks.launch_quantization import (
    dtype_unsupported,
    quantization_gpu,
    quantization_mismatch,
)
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.memory_plan import plan_inputs
from infer_doctor.facts.model_config import published_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.model_parts import DraftModel
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.host import Unavailable
from infer_doctor.launch.command import read
from infer_doctor.testing import examine


def given(line: str, capability: tuple[int, int] = (9, 0)) -> list[Any]:
    launch = read(line.split())
    question = EngineQuestion(name="vllm", version="0.32.0")
    options = engine_options(launch, vllm_table(launch, None, None, question))
    return [
        launch,
        options,
        published_config(options),
        ModelFiles(model=options.model.value if options.model else "", origin="named"),
        GpuCapabilities(capabilities={0: capability}, source="--gpu"),
    ]


@pytest.mark.parametrize(
    ("check", "line", "capability", "part"),
    [
        (quantization_mismatch, "Qwen/Qwen3-8B --quantization awq", (9, 0), "not quantised"),
        (
            quantization_mismatch,
            "Qwen/Qwen2.5-72B-Instruct-AWQ --quantization gptq",
            (9, 0),
            "quantised with awq",
        ),
        (quantization_gpu, "Qwen/Qwen3-32B-FP8", (7, 0), "needs compute capability 7.5"),
        (dtype_unsupported, "Qwen/Qwen3-0.6B --dtype bfloat16", (7, 5), "needs compute capability"),
        (kv_cache_unscaled, "Qwen/Qwen3-8B --kv-cache-dtype fp8", (9, 0), "no scales for it"),
        (
            attention_backend_refused,
            "Qwen/Qwen3-0.6B --attention-backend FLASH_ATTN",
            (7, 5),
            "it needs compute capability",
        ),
        (pooling_model_chat, "BAAI/bge-m3 --chat-template x", (9, 0), "embeddings or scores"),
    ],
)
def test_the_published_configuration_decides(
    check: Any, line: str, capability: tuple[int, int], part: str
) -> None:
    (finding,) = examine(check, *given(f"vllm serve {line}", capability)).findings
    assert part in finding.message
    assert finding.confidence == "likely"


def test_a_quantised_checkpoint_may_have_scales() -> None:
    rows = given("vllm serve Qwen/Qwen3-32B-FP8 --kv-cache-dtype fp8")
    assert examine(kv_cache_unscaled, *rows).outcome == "blocked"


def test_a_folder_that_was_read_is_never_overruled() -> None:
    """A broken config.json of a folder stays unknown, whatever its name is."""
    launch, options, config, _, gpus = given("vllm serve Qwen/Qwen3-8B --quantization awq")
    files = ModelFiles(model="Qwen/Qwen3-8B", origin="folder", folder="/models/q", config=None)
    found = examine(quantization_mismatch, launch, options, config, files, gpus)
    assert found.outcome == "blocked"


def test_a_draft_of_another_family() -> None:
    line = "vllm serve Qwen/Qwen3-8B --speculative-config.model meta-llama/Llama-3.2-1B"
    draft = DraftModel(
        files=ModelFiles(model="meta-llama/Llama-3.2-1B", origin="named"), method=None
    )
    (finding,) = examine(draft_vocabulary, *given(line), draft).findings
    assert finding.message == (
        "the draft model meta-llama/Llama-3.2-1B has a vocabulary of 128,256, the model one of 151,936"
    )
    assert finding.confidence == "likely"


def test_quantised_weights_whose_layout_is_elsewhere() -> None:
    """ModelOpt writes it into hf_quant_config.json; config.json alone looks like 16 bit."""
    facts = given("vllm serve nvidia/DeepSeek-V3.2-NVFP4 --quantization modelopt_fp4")
    result = examine(quantization_mismatch, *facts)
    assert result.outcome == "blocked" and "hf_quant_config.json" in (result.reason or "")
    launch, options, published = facts[:3]
    with pytest.raises(Unavailable, match=r"hf_quant_config\.json"):
        plan_inputs(options, None, None, published, launch, None)
    assert (
        examine(tp_indivisible, *given("vllm serve nvidia/DeepSeek-V3.2-NVFP4 -tp 3")).outcome
        == "failed"
    )
    assert (
        examine(tp_indivisible, *given("vllm serve nvidia/DeepSeek-V3.2-NVFP4 -tp 8")).outcome
        == "blocked"
    )
    plain = given("vllm serve Qwen/Qwen3-8B")
    plan_inputs(plain[1], None, None, plain[2], plain[0], None)
