"""Plans of older versions beside published starts: each figure is from the issue that is named."""

from __future__ import annotations

from typing import Any

import pytest
from memory_starts import TRUTH, plan_of

from infer_doctor.catalog.models import published
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.memory_plan import plan_inputs
from infer_doctor.facts.model_config import published_config
from infer_doctor.facts.vllm_options import engine_options, vllm_table
from infer_doctor.host import Unavailable
from infer_doctor.launch.command import read
from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.inputs import Source, inputs_of
from infer_doctor.memory.parts import Gpu
from infer_doctor.memory.plan import MemoryPlan

GIB = 1 << 30
LLAMA = TRUTH["configs"]["llama-3.1-8b"]

A100 = ("NVIDIA A100-SXM4-80GB", 79.25, (8, 0))
A6000 = ("NVIDIA RTX A6000", 47.4, (8, 6))
ADA = ("NVIDIA RTX 6000 Ada Generation", 47.37, (8, 9))
H100 = ("NVIDIA H100 80GB HBM3", 79.18, (9, 0))
RTX3090 = ("NVIDIA GeForce RTX 3090", 23.58, (8, 6))
RTX4090 = ("NVIDIA GeForce RTX 4090", 23.64, (8, 9))

R1_14B = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "max_position_embeddings": 131072,
    "model_type": "qwen2",
    "num_attention_heads": 40,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
    "vocab_size": 152064,
}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def known(name: str, **more: Any) -> dict[str, Any]:
    config = published(name)
    assert config is not None
    return {**config, **more}


def served(
    config: dict[str, Any],
    gpu: tuple[str, float, tuple[int, int]],
    version: tuple[int, ...],
    environment: dict[str, str] | None = None,
    **options: Any,
) -> MemoryPlan:
    name, size, capability = gpu
    card = Gpu(name=name, usable=int(size * GIB), capability=capability)
    source = Source(config=config, quantization=config.get("quantization_config"))
    text = ".".join(map(str, version))
    made = inputs_of(source, options, version=text, entry="serve", environment=environment)
    return made.plan(card)


@pytest.mark.parametrize(
    ("config", "gpu", "version", "options", "tokens"),
    [
        # issue 10517: V0 takes a prompt of 20,000 tokens whole, so the activation has it
        (LLAMA, RTX3090, (0, 6, 4), {"max_model_len": 20000}, 31_232),
        (LLAMA, RTX3090, (0, 6, 4), {"max_model_len": 29000}, 23_648),
        # issue 13061: V0 sorts the logits
        (
            R1_14B,
            RTX4090,
            (0, 7, 2),
            {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.98},
            81_536,
        ),
        # issue 21348: so does V1, 1,024 rows of them
        (
            known("Qwen/Qwen3-235B-A22B", quantization_config=BLOCKS),
            H100,
            (0, 9, 2),
            {"tensor_parallel_size": 4},
            178_880,
        ),
        # a public comparison of GPUs, vLLM 0.19
        (LLAMA, A6000, (0, 19, 0), {"max_model_len": 32768}, 221_824),
        # pull request 57047
        (
            known(
                "Qwen/Qwen3-8B",
                hidden_size=2560,
                intermediate_size=9728,
                tie_word_embeddings=True,
                quantization_config=AWQ,
            ),
            ADA,
            (0, 30, 0),
            {"max_model_len": 2048, "gpu_memory_utilization": 0.85},
            268_560,
        ),
    ],
)
def test_tokens_of_published_starts(
    config: dict[str, Any],
    gpu: tuple[str, float, tuple[int, int]],
    version: tuple[int, ...],
    options: dict[str, Any],
    tokens: int,
) -> None:
    plan = served(config, gpu, version, **options)
    assert plan.tokens == pytest.approx(tokens, rel=0.03)
    assert abs(plan.tokens / tokens - 1) <= plan.band / plan.rank.cache


def test_a_long_context_of_v0_goes_in_chunks() -> None:
    """arg_utils.py of 0.6: above 32,768 tokens; with LoRA, a window or a draft it does not."""
    assert served(LLAMA, RTX3090, (0, 6, 4), max_model_len=32768).settings.tokens == 32768
    assert served(LLAMA, RTX3090, (0, 6, 4), max_model_len=35000).settings.tokens == 512
    assert served(LLAMA, RTX3090, (0, 7, 3), max_model_len=35000).settings.tokens == 2048
    lora = served(LLAMA, RTX3090, (0, 7, 3), max_model_len=35000, enable_lora=True)
    assert lora.settings.tokens == 35000
    chosen = served(LLAMA, RTX3090, (0, 7, 3), {"VLLM_USE_V1": "1"}, max_model_len=20000)
    assert not chosen.settings.v0 and chosen.settings.tokens == 2048
    back = served(LLAMA, RTX3090, (0, 9, 0), {"VLLM_USE_V1": "0"}, max_model_len=20000)
    assert back.settings.v0 and back.settings.tokens == 20000


def test_v0_starts_with_whatever_is_free() -> None:
    """0.98 of an RTX 4090 started with 0.7.2 (issue 13061); V1 compares what is free."""
    options = {
        "tensor_parallel_size": 2,
        "gpu_memory_utilization": 0.98,
        "enforce_eager": True,
    }
    assert served(R1_14B, RTX4090, (0, 7, 2), max_model_len=8192, **options).fits
    assert served(R1_14B, RTX4090, (0, 12, 0), max_model_len=8192, **options).limit == "free"


def test_the_sampler_that_was_chosen() -> None:
    """FlashInfer sorts nothing; where it may be installed or not, the band says so."""
    sorts = served(LLAMA, H100, (0, 10, 0), {"VLLM_USE_FLASHINFER_SAMPLER": "0"})
    quick = served(LLAMA, H100, (0, 10, 0), {"VLLM_USE_FLASHINFER_SAMPLER": "1"})
    maybe = served(LLAMA, H100, (0, 10, 0))
    later = served(LLAMA, H100, (0, 19, 0))
    rows = 1024 * 128256
    assert sorts.rank.activation - quick.rank.activation > 2 * GIB
    assert maybe.rank.activation == sorts.rank.activation
    assert maybe.band - sorts.band == pytest.approx(24 * rows, rel=0.1)
    assert later.rank.activation == quick.rank.activation


def test_v1_before_it_was_the_default() -> None:
    """Pull request 12569: 22,096 tokens; its profile did not sample."""
    groups = {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}
    w8a8 = {"quant_method": "compressed-tensors", "config_groups": {"a": groups}}
    config = known("meta-llama/Llama-3.1-70B", quantization_config={**w8a8, "ignore": ["lm_head"]})
    options = {"max_model_len": 2048, "gpu_memory_utilization": 0.98}
    plan = served(config, H100, (0, 7, 1), {"VLLM_USE_V1": "1"}, **options)
    assert plan.tokens == pytest.approx(22_096, rel=0.07)
    assert abs(plan.tokens / 22_096 - 1) <= plan.band / plan.rank.cache


def test_mxfp4_weights_by_kernel() -> None:
    """13.72 GiB on an A100 with 0.19; on an H100 64.4 or 66.0 GiB of 120b, by the kernel."""
    small = served(known("openai/gpt-oss-20b"), A100, (0, 19, 0), gpu_memory_utilization=0.65)
    assert small.rank.weights / GIB == pytest.approx(13.72, abs=0.03)
    assert small.rank.cache / GIB == pytest.approx(36.56, rel=0.01)
    large = served(known("openai/gpt-oss-120b"), H100, (0, 14, 1))
    assert 66.0 - large.rank.weights / GIB < large.band / GIB


def test_one_request_against_all_stages() -> None:
    """0.14 and 0.15 hold the cache of all stages against one GPU (pull request 33698)."""
    config = known("Qwen/Qwen3-30B-A3B", max_position_embeddings=262144, quantization_config=BLOCKS)
    options = {"pipeline_parallel_size": 2, "gpu_memory_utilization": 0.5}
    refused = served(config, A100, (0, 15, 0), **options)
    assert refused.limit == "context" and refused.reason is not None
    assert "counts all 2 stages against one GPU" in refused.reason
    fitting = served(config, A100, (0, 17, 0), **options)
    assert fitting.fits
    assert refused.longest < 262144 <= fitting.longest
    one = served(config, A100, (0, 15, 0), gpu_memory_utilization=0.9)
    assert one.fits


def test_variables_of_the_launch_reach_the_plan() -> None:
    def tokens(line: str, version: str) -> int:
        launch = read(line.split())
        table = vllm_table(launch, None, None, EngineQuestion(name="vllm", version=version))
        options = engine_options(launch, table)
        named = published_config(options)
        found = plan_inputs(options, None, None, named, launch, None, table).inputs
        card = Gpu(name=H100[0], usable=int(H100[1] * GIB), capability=H100[2])
        return found.plan(card).tokens

    line = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 20000"
    assert tokens(line, "0.9.0") < tokens(f"VLLM_USE_FLASHINFER_SAMPLER=1 {line}", "0.9.0")
    assert tokens(f"VLLM_USE_V1=0 {line}", "0.9.0") != tokens(line, "0.9.0")
    with pytest.raises(Unavailable, match=r"vLLM 0\.4 is older than the rules"):
        tokens(line, "0.4.0")


def test_versions_whose_rules_were_not_read() -> None:
    with pytest.raises(Unplannable, match=r"vLLM 0\.5 is older than the rules"):
        plan_of(LLAMA, {}, version=(0, 5, 4))
