"""Quantization and dtype against checkpoint and GPU."""

from __future__ import annotations

from typing import Any

import pytest
from launches import capabilities, config, files, launch, options

from infer_doctor.catalog.quantization import method_of
from infer_doctor.checks.launch_quantization import (
    dtype_unsupported,
    quantization_gpu,
    quantization_mismatch,
    quantization_online,
    quantization_unknown,
)
from infer_doctor.model import CheckResult
from infer_doctor.testing import contract, examine

PLAIN = "Qwen--Qwen2.5-7B-Instruct"
AWQ = "Qwen--Qwen2.5-72B-Instruct-AWQ"
GPTQ = "Qwen--Qwen2.5-7B-Instruct-GPTQ-Int4"
FP8 = "Qwen--Qwen3-32B-FP8"
HOPPER, ADA, AMPERE, TURING = (9, 0), (8, 9), (8, 0), (7, 5)


def test_unknown() -> None:
    contract(
        quantization_unknown,
        fires=[launch(), options(quantization="awk")],
        passes=[launch(), options(quantization="awq")],
    )
    (finding,) = examine(quantization_unknown, launch(), options(quantization="awk")).findings
    assert finding.message == "vLLM 0.32.0 has no quantization 'awk'; nearest: awq"


@pytest.mark.parametrize(
    ("method", "version", "fires"),
    [
        ("bitsandbytes", "0.32.0", True),
        ("bitsandbytes", "0.26.0", False),
        ("gguf", "0.24.0", True),
        ("gguf", "0.10.0", False),
        ("marlin", "0.11.0", True),
        ("marlin", "0.8.5", False),
        ("something-new", "0.29.0", False),
    ],
)
def test_removed(method: str, version: str, fires: bool) -> None:
    facts = (launch(), options(version=version, quantization=method))
    assert bool(examine(quantization_unknown, *facts).findings) is fires


def mismatch(asked: str, name: str, **more: Any) -> CheckResult:
    facts = (launch(), options(quantization=asked), files(name, **more), config(name))
    return examine(quantization_mismatch, *facts)


def test_mismatch() -> None:
    contract(
        quantization_mismatch,
        fires=[launch(), options(quantization="awq"), files(PLAIN), config(PLAIN)],
        passes=[launch(), options(quantization="awq"), files(AWQ), config(AWQ)],
    )
    assert mismatch("awq", PLAIN).findings[0].message == (
        "--quantization awq, but the checkpoint is not quantised"
    )
    assert mismatch("fp8", AWQ).findings[0].message == (
        "--quantization fp8, but the checkpoint is quantised with awq"
    )


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("awq_marlin", AWQ),
        ("gptq_marlin", GPTQ),
        ("moe_wna16", GPTQ),
        ("humming", AWQ),
        ("fp8", PLAIN),
        ("fp8", FP8),
        ("mxfp4", "openai--gpt-oss-20b"),
        ("deepseek_v4_fp8", "deepseek-ai--DeepSeek-V4-Flash"),
    ],
)
def test_methods_that_go_together(asked: str, name: str) -> None:
    assert mismatch(asked, name).findings == ()


def test_quantize_config_of_old_checkpoints_counts() -> None:
    old = {"bits": 4, "group_size": 128}
    found = mismatch("gptq", PLAIN, quantization=old, quantization_source="quantize_config.json")
    assert found.outcome == "passed"


def test_modelopt_is_told_by_its_algorithm() -> None:
    def of(algorithm: str) -> str | None:
        return method_of(
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm}}
        )

    assert (of("FP8"), of("NVFP4"), of("MIXED_PRECISION")) == (
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
    )
    assert method_of({"quant_method": "compressed_tensors"}) == "compressed-tensors"


def test_online() -> None:
    """quantization="fp8" on an unquantised 70B is not free."""
    asked = options(model="meta-llama/Llama-3.1-70B-Instruct", quantization="fp8")
    (finding,) = examine(quantization_online, launch(), asked).findings
    assert (finding.severity, finding.confidence) == ("info", "possible")
    assert "no calibration, native from compute capability 8.9" in finding.message
    facts = (launch(), asked, files(PLAIN), config(PLAIN))
    assert examine(quantization_online, *facts).findings[0].confidence == "certain"
    contract(
        quantization_online,
        fires=[launch(), asked, files(PLAIN), config(PLAIN)],
        passes=[launch(), asked, files(FP8), config(FP8)],
    )


def gpu(name: str, *found: tuple[int, int]) -> tuple[Any, ...]:
    return launch(), options(), files(name), config(name), capabilities(*found)


def test_gpu() -> None:
    mxfp4 = "openai--gpt-oss-20b"
    contract(
        quantization_gpu,
        fires=[*gpu(mxfp4, TURING)],
        passes=[*gpu(mxfp4, (10, 0))],
    )
    (finding,) = examine(quantization_gpu, *gpu(mxfp4, HOPPER, TURING)).findings
    assert finding.message == "mxfp4 needs compute capability 8.0, a GPU here has 7.5"


def test_fp8_on_ampere_is_computed_in_sixteen_bits() -> None:
    (finding,) = examine(quantization_gpu, *gpu(FP8, AMPERE)).findings
    assert finding.severity == "info"
    assert finding.message == (
        "fp8 weights are computed in 16 bits here: fp8 units begin with compute capability 8.9, "
        "a GPU here has 8.0"
    )
    assert examine(quantization_gpu, *gpu(FP8, ADA)).outcome == "passed"


def dtype(name: str, gpu: tuple[int, int], version: str = "0.32.0", **given: Any) -> CheckResult:
    facts = (launch(), options(version=version, **given), files(name), config(name))
    return examine(dtype_unsupported, *facts, capabilities(gpu))


def test_dtype() -> None:
    contract(
        dtype_unsupported,
        fires=[launch(), options(dtype="half"), files(), config("google--gemma-2-9b-it")],
        passes=[launch(), options(dtype="half"), files(), config(PLAIN)],
    )


def test_bfloat_on_turing() -> None:
    """T4 and V100: vllm-project/vllm issues 1157, 946, 730."""
    (finding,) = dtype(PLAIN, TURING, dtype="bfloat16").findings
    assert finding.message == "bfloat16 needs compute capability 8.0, a GPU here has 7.5"
    assert finding.fixes[0].title == "Start with --dtype half"
    (finding,) = dtype(PLAIN, TURING).findings
    assert finding.severity == "info"
    assert dtype(PLAIN, AMPERE, dtype="bfloat16").findings == ()


def test_gemma_on_turing_allows_neither() -> None:
    (finding,) = dtype("google--gemma-3-27b-it", TURING, dtype="bfloat16").findings
    assert "gemma3 does not work in float16 either" in finding.message
    assert finding.fixes == ()


def test_awq_in_bfloat_before_it_was_taken() -> None:
    """vllm-project/vllm issue 28857, of 0.11."""
    old = dtype(AWQ, AMPERE, "0.11.0", quantization="awq", dtype="bfloat16")
    assert "method awq of vLLM 0.11.0 takes float16 only" in old.findings[0].message
    assert dtype(AWQ, AMPERE, quantization="awq", dtype="bfloat16").findings == ()


def test_mxfp_in_half() -> None:
    (finding,) = dtype("openai--gpt-oss-20b", HOPPER, dtype="half").findings
    assert finding.message == "mxfp4 takes bfloat16 only, the dtype is float16"
