"""Attention backends and the KV cache."""

from __future__ import annotations

from typing import Any

from launches import capabilities, config, files, launch, options

from infer_doctor.checks.launch_attention import (
    attention_backend_refused,
    kv_cache_dtype_refused,
    kv_cache_unscaled,
)
from infer_doctor.facts.model_files import Tensor
from infer_doctor.model import CheckResult
from infer_doctor.testing import contract, examine

QWEN = "Qwen--Qwen3-8B"
HOPPER, AMPERE, TURING = (9, 0), (8, 0), (7, 5)


def backend(name: str, gpu: tuple[int, int], model: str = QWEN, **given: Any) -> CheckResult:
    facts = (launch(), options(attention_backend=name, **given), config(model), capabilities(gpu))
    return examine(attention_backend_refused, *facts)


def test_backend() -> None:
    contract(
        attention_backend_refused,
        fires=[launch(), options(attention_backend="FLASHMLA"), config(QWEN), capabilities(HOPPER)],
        passes=[
            launch(),
            options(attention_backend="FLASH_ATTN"),
            config(QWEN),
            capabilities(HOPPER),
        ],
    )


def test_backend_and_gpu() -> None:
    """FlashInfer on 2080 Ti: vllm-project/vllm issue 8189."""
    (finding,) = backend("FLASHINFER", TURING).findings
    assert finding.message == (
        "FLASHINFER does not take this launch: it needs compute capability 8.0 to 12.1, "
        "a GPU here has 7.5"
    )
    assert finding.fixes[0].title == "Start without --attention-backend FLASHINFER"


def test_backend_and_head_size() -> None:
    (finding,) = backend("FLASHINFER", HOPPER, QWEN, kv_cache_dtype="int8_per_token_head").findings
    assert finding.message.endswith(": a KV cache in int8_per_token_head")
    (finding,) = backend("FLASHINFER", HOPPER, "XiaomiMiMo--MiMo-V2-Flash").findings
    assert "heads of 192 elements" in finding.message


def test_backend_and_latent_attention() -> None:
    deepseek = "deepseek-ai--DeepSeek-R1"
    assert backend("FLASHMLA", HOPPER, deepseek).outcome == "passed"
    (finding,) = backend("FLASH_ATTN", HOPPER, deepseek).findings
    assert "the model has latent attention (MLA)" in finding.message


def test_backend_by_the_variable_of_older_versions() -> None:
    facts = (config(QWEN), capabilities(TURING))
    forced = launch(VLLM_ATTENTION_BACKEND="FLASHINFER")
    (finding,) = examine(
        attention_backend_refused, forced, options(version="0.10.0"), *facts
    ).findings
    assert finding.confidence == "likely"
    assert finding.fixes[0].title == "Start without VLLM_ATTENTION_BACKEND"
    newer = examine(attention_backend_refused, forced, options(), *facts)
    assert newer.outcome == "not_applicable"


def test_backend_without_known_gpus_is_not_called_healthy() -> None:
    facts = (launch("another"), options(attention_backend="FLASH_ATTN"), config(QWEN))
    assert examine(attention_backend_refused, *facts).outcome == "blocked"


def test_cache_dtype() -> None:
    """fp8 on 3090: vllm-project/vllm issue 26431."""
    asked = options(kv_cache_dtype="fp8")
    contract(
        kv_cache_dtype_refused,
        fires=[launch(), asked, config(QWEN), capabilities((8, 6))],
        passes=[launch(), asked, config(QWEN), capabilities(HOPPER)],
    )
    fp8 = "Qwen--Qwen3-32B-FP8"
    e5m2 = (launch(), options(kv_cache_dtype="fp8_e5m2"), capabilities((8, 6)))
    assert examine(kv_cache_dtype_refused, *e5m2, files(QWEN), config(QWEN)).outcome == "passed"
    (finding,) = examine(kv_cache_dtype_refused, *e5m2, files(fp8), config(fp8)).findings
    assert finding.message.endswith("a checkpoint in fp8 takes no e5m2 cache")
    mla = config("deepseek-ai--DeepSeek-R1")
    facts = (launch(), options(kv_cache_dtype="nvfp4"), mla, capabilities((10, 0)))
    assert examine(kv_cache_dtype_refused, *facts).outcome == "failed"


def tensors(*names: str) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name=name, dtype="F32", shape=(), size=4, file="model.safetensors") for name in names
    )


def test_cache_scales() -> None:
    asked = options(kv_cache_dtype="fp8")
    plain = tensors("model.layers.0.self_attn.k_proj.weight")
    scaled = tensors("model.layers.0.self_attn.attn.k_scale")
    contract(
        kv_cache_unscaled,
        fires=[launch(), asked, files(QWEN, tensors=plain), config(QWEN)],
        passes=[launch(), asked, files(QWEN, tensors=scaled), config(QWEN)],
    )
    scheme = {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}
    facts = (launch(), asked, files(QWEN, tensors=plain, quantization=scheme), config(QWEN))
    assert examine(kv_cache_unscaled, *facts).outcome == "passed"
    unread = (launch(), asked, files(QWEN), config(QWEN))
    assert examine(kv_cache_unscaled, *unread).outcome == "blocked"
