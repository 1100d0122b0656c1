"""What single options do to the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from memory_starts import H200, TRUTH, plan_of
from model_folder import gguf

from infer_doctor.hands.gguf import gguf as read_gguf
from infer_doctor.launch.model import Unknown
from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.gguf import architecture_of, weights_of
from infer_doctor.memory.inputs import Inputs, Source, inputs_of
from infer_doctor.memory.parts import Gpu
from infer_doctor.memory.quantization import scheme_of
from infer_doctor.models.gguf import gguf_of

GIB = 1 << 30
LLAMA = TRUTH["configs"]["llama-3.1-8b"]
MOE = TRUTH["configs"]["qwen3-30b-a3b"]
BASE = plan_of(LLAMA, {})


def test_lora_slots_are_in_the_weights() -> None:
    """lora/layers/base_linear.py: a slot of rank 16 for each projection of 32 layers."""
    plan = plan_of(LLAMA, {"enable_lora": True, "max_loras": 4, "max_lora_rank": 16})
    sides = 3 * 4096 + 4096 + 2 * 1024 + 4096 + 4096 + 2 * (4096 + 14336) + 14336 + 4096
    assert plan.rank.weights - BASE.rank.weights == 4 * 16 * sides * 32 * 2
    assert plan.band > BASE.band


def test_replicas_are_gpus_and_cut_the_experts() -> None:
    dense = plan_of(LLAMA, {"data_parallel_size": 2})
    assert dense.layout.gpus == 2 and dense.rank.weights == BASE.rank.weights
    one, two = plan_of(MOE, {}), plan_of(MOE, {"data_parallel_size": 2})
    assert two.rank.weights < 0.6 * one.rank.weights


def test_size_of_the_cache_in_bytes() -> None:
    plan = plan_of(LLAMA, {"kv_cache_memory_bytes": 20 * GIB})
    assert plan.rank.cache == 20 * GIB and plan.fits
    most = plan_of(LLAMA, {"kv_cache_memory_bytes": 130 * GIB})
    assert most.limit == "no_cache"
    assert most.reason is not None and "that is asked for are more than" in most.reason


def test_draft_model_is_said_not_to_be_counted() -> None:
    plan = plan_of(LLAMA, {"speculative_config": {"model": "x-eagle", "num_speculative_tokens": 3}})
    assert "the draft model of speculative decoding is not counted" in plan.assumptions
    assert plan.band > 5 * BASE.band
    ngram = plan_of(LLAMA, {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}})
    assert ngram.band == BASE.band


def test_old_versions_count_context_and_nccl() -> None:
    old = plan_of(LLAMA, {}, version=(0, 10, 1))
    new = plan_of(LLAMA, {}, version=(0, 19, 0))
    assert old.rank.non_torch - new.rank.non_torch > 0.5 * GIB


def test_buffers_count_from_the_version_that_measures_them() -> None:
    """output_bin_counts: 1,024 rows of the vocabulary, outside the budget in 0.26."""
    assert BASE.rank.buffers > 0.4 * GIB
    later = plan_of(LLAMA, {}, version=(0, 32, 0))
    assert later.rank.buffers == 0
    assert later.rank.non_torch - BASE.rank.non_torch == BASE.rank.buffers


@pytest.mark.parametrize(
    ("name", "gib", "entry", "tokens", "sequences"),
    [
        ("NVIDIA H200", 139.8, "LLM", 16384, 1024),
        ("NVIDIA H200", 139.8, "serve", 8192, 1024),
        ("NVIDIA A100-SXM4-80GB", 79.2, "serve", 2048, 256),
        ("NVIDIA L40S", 44.4, "LLM", 8192, 256),
        ("NVIDIA B200", 178.4, "serve", 8192, 1024),
    ],
)
def test_defaults_by_gpu(name: str, gib: float, entry: str, tokens: int, sequences: int) -> None:
    """engine/arg_utils.py: get_batch_defaults of 0.26."""
    plan = plan_of(LLAMA, {}, Gpu(name=name, usable=int(gib * GIB)), entry=entry)
    assert (plan.settings.tokens, plan.settings.sequences) == (tokens, sequences)


def test_value_that_the_file_does_not_tell() -> None:
    with pytest.raises(
        Unplannable, match=r"max_model_len is \$LEN, whose value is not in the file"
    ):
        plan_of(LLAMA, {"max_model_len": Unknown("$LEN")})


@pytest.mark.parametrize(
    ("quantization", "item"),
    [
        (
            {
                "quant_method": "modelopt",
                "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            },
            1,
        ),
        ({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 1),
        ({"quant_method": "fp8"}, 2),
    ],
)
def test_checkpoint_may_ask_for_an_fp8_cache(quantization: dict[str, Any], item: int) -> None:
    inputs = inputs_of(
        Source(config=LLAMA, quantization=quantization), {}, version="0.26.0", entry="serve"
    )
    assert inputs.plan(H200).cache.bytes_per_token == 65536 * item
    inputs = inputs_of(
        Source(config=LLAMA, quantization=quantization),
        {"kv_cache_dtype": "bfloat16"},
        version="0.26.0",
        entry="serve",
    )
    assert inputs.plan(H200).cache.bytes_per_token == 131072


def test_layers_that_are_not_quantised() -> None:
    scheme = scheme_of({"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp"]})
    assert scheme is not None
    assert not scheme.takes("layers.0.mlp.up_proj", expert=False)
    assert scheme.takes("layers.1.mlp.up_proj", expert=False)
    attention = scheme_of(
        {"quant_method": "fp8", "ignore": ["re:.*self_attn.*", "model.layers.*.mlp"]}
    )
    assert attention is not None
    assert not attention.takes("layers.3.self_attn.q_proj", expert=False)
    assert not attention.takes("layers.3.mlp.down_proj", expert=False)


def test_capture_sizes() -> None:
    """51 sizes up to 512; 19 for 64 sequences, of which 11 are full (the log of 8b-fp8kv-seqs64)."""
    assert len(BASE.settings.capture_sizes) == 51
    few = plan_of(LLAMA, {"max_num_seqs": 64}).settings
    assert len(few.capture_sizes) == 19
    assert len([size for size in few.capture_sizes if size <= 64]) == 11
    assert plan_of(LLAMA, {"enforce_eager": True}).settings.capture_sizes == ()


def test_gguf(tmp_path: Path) -> None:
    """Q4_K blocks of 256 numbers take 144 bytes; the norms stay float32."""
    path = tmp_path / "m.gguf"
    keys = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.embedding_length": 512,
        "llama.feed_forward_length": 1024,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": 2,
        "llama.context_length": 4096,
    }
    tensors = [
        ("token_embd.weight", 1, [512, 1000]),
        ("blk.0.attn_k.weight", 12, [512, 128]),
        ("blk.0.attn_norm.weight", 0, [512]),
    ]
    gguf(path, keys, tensors=tensors, tokens=1000)
    file = gguf_of(read_gguf(str(path)))
    architecture = architecture_of(file)
    weights = weights_of(file)
    assert (architecture.vocabulary, architecture.tied) == (1000, True)
    assert [weight.size for weight in weights] == [1024000, 512 * 128 // 256 * 144, 2048]
    inputs = Inputs(
        architecture=architecture,
        options={},
        version=(0, 26, 0),
        entry="serve",
        weights=weights,
        basis="the GGUF file",
    )
    assert inputs.plan(H200).fits


def test_gguf_of_an_unknown_architecture(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf(path, {"general.architecture": "rwkv7"})
    with pytest.raises(Unplannable, match="no memory model for the GGUF architecture rwkv7"):
        architecture_of(gguf_of(read_gguf(str(path))))
