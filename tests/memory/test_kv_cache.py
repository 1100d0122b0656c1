"""Groups, blocks and tokens by kind of layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from memory_starts import TRUTH, plan_of

from infer_doctor.memory.kv_cache import Demand, cache_of
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.reading import read_architecture

CONFIGS = Path(__file__).parent.parent / "cases" / "configs"
GIB = 1 << 30

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def per_token(name: str, tensor: int = 1, item: float = 2.0) -> float:
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    model = read_architecture(config)
    attention = next(layer.attention for layer in model.layers if layer.attention)
    layout = Layout(tensor=tensor, layers=len(model.layers), kv_heads=attention.kv_heads)
    return cache_of(model, layout, 0, item, 16, 2).bytes_per_token


def test_a_real_engine_on_the_cpu_dense() -> None:
    """1 GiB, blocks of 128: the log said 1,048,576 tokens, 256.00x."""
    model = read_architecture(LLAMA)
    cache = cache_of(model, Layout(layers=4, kv_heads=2), 0, 2.0, 128, 2)
    assert cache.blocks_in(GIB) == 8192
    assert cache.blocks_in(GIB) / cache.blocks_of(4096, Demand(in_flight=2048)) == 256


def test_a_real_engine_on_the_cpu_hybrid() -> None:
    """12 layers, 2 of them full, windows of 512: the log said 743,588 tokens, 22.69x."""
    config = {
        **LLAMA,
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 12,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "head_dim": 64,
    }
    model = read_architecture(config)
    cache = cache_of(model, Layout(layers=12, kv_heads=2), 0, 2.0, 128, 2)
    blocks = cache.blocks_in(GIB)
    concurrency = blocks / cache.blocks_of(32768, Demand(in_flight=2048))
    assert (len(cache.groups), int(concurrency * 32768)) == (6, 743588)
    assert round(concurrency, 2) == 22.69


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", 131072),
        ("Qwen--Qwen3-30B-A3B", 98304),
        ("deepseek-ai--DeepSeek-V2-Lite", 31104),
        ("deepseek-ai--DeepSeek-R1", 61 * 576 * 2),
        ("tiiuae--falcon-7b", 32 * 2 * 64 * 2),
        ("openai--whisper-large-v3", 32 * 20 * 2 * 64 * 2),
    ],
)
def test_bytes_per_token(name: str, size: int) -> None:
    assert per_token(name) == size


def test_dtype_halves_it() -> None:
    assert per_token("meta-llama--Meta-Llama-3.1-8B", item=1.0) == 65536


@pytest.mark.parametrize(("tensor", "share"), [(2, 2), (8, 8), (16, 8)])
def test_heads_are_replicated_beyond_their_number(tensor: int, share: int) -> None:
    assert per_token("meta-llama--Meta-Llama-3.1-70B", tensor) == 327680 / share


def test_latent_cache_is_on_every_rank() -> None:
    assert per_token("deepseek-ai--DeepSeek-R1", 8) == per_token("deepseek-ai--DeepSeek-R1")


def test_block_of_a_hybrid_model_holds_its_state() -> None:
    """The log of qwen3-next-12l: attention block 544, mamba page padded by 1.49 %."""
    plan = plan_of(TRUTH["configs"]["qwen3-next-12l"], {"max_model_len": 32768})
    assert {group.tokens for group in plan.cache.groups} == {544}
    state = 8192 * 3 * 2 + 32 * 128 * 128 * 2
    assert plan.cache.groups[0].page / state == pytest.approx(1.0149, abs=0.0001)


def test_stages_share_the_groups_of_the_whole_model() -> None:
    config = TRUTH["configs"]["gemma-3-1b"]
    one = plan_of(config, {}).cache
    two = plan_of(config, {"pipeline_parallel_size": 2}).cache
    assert len(two.groups) == len(one.groups)
    assert two.block_bytes < one.block_bytes


def test_tokens_of_older_versions_are_another_figure() -> None:
    """Before 0.24 the log counted blocks of one group (kv_cache_utils.py of 0.10 to 0.23)."""
    config = TRUTH["configs"]["gemma-3-1b"]
    old = plan_of(config, {}, version=(0, 19, 0))
    assert old.tokens == old.blocks // 7 * 16
    assert old.settings.utilisation == 0.9
    new = plan_of(config, {})
    assert new.tokens == int(new.concurrency * 32768)


def test_newer_versions_keep_a_block_aside() -> None:
    config = TRUTH["configs"]["llama-3.1-8b"]
    for version, spare in (((0, 26, 0), 0), ((0, 32, 0), 1)):
        plan = plan_of(config, {"gpu_memory_utilization": 0.17}, version=version)
        assert plan.limit == "context"
        assert plan.longest == (plan.blocks - spare) * 16
        assert plan.needed_blocks == 131072 // 16 + spare
