"""Weights from the config beside the parameters that the model code makes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.quantization import scheme_of
from infer_doctor.memory.reading import read_architecture
from infer_doctor.memory.tensors import from_config
from infer_doctor.memory.weights import LAYER, TOWER, Weight, from_headers, rank_bytes, rule_of

HERE = Path(__file__).parent
CONFIGS = HERE.parent / "cases" / "configs"
TENSORS: dict[str, list[tuple[str, list[int], int]]] = json.loads(
    (HERE / "tensors.json").read_text()
)


DEFAULTS: dict[str, dict[str, Any]] = json.loads((HERE / "families.json").read_text())


def config_of(model: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIGS / f"{model}.json").read_text())
    return found


def headers_of(model: str, layers: int) -> list[tuple[str, str, list[int], int, int]]:
    """All tensors as a 16-bit checkpoint would have them."""
    found = []
    for first, shape, count in TENSORS[model]:
        place = None if TOWER.match(first) else LAYER.search(first)
        for number in range(count):
            name = first
            if place and count > 1:
                name = f"{first[: place.start(1)]}{number % layers}{first[place.end(1) :]}"
            found.append((name, "BF16", shape, 2 * math.prod(shape), 1))
    return found


def on_rank(weights: list[Weight], layout: Layout) -> int:
    return sum(size for _, size in rank_bytes(weights, layout, 0))


def test_many_families() -> None:
    assert len({read_architecture(config_of(model)).name for model in TENSORS}) >= 25


@pytest.mark.parametrize("tensor", [1, 4])
@pytest.mark.parametrize("model", TENSORS)
def test_config_against_tensors(model: str, tensor: int) -> None:
    config = config_of(model)
    architecture = read_architecture(config)
    attention = next((one.attention for one in architecture.layers if one.attention), None)
    heads = attention.kv_heads if attention and attention.kind != "mla" else 1
    layout = Layout(
        tensor=tensor, layers=len(architecture.layers), kv_heads=heads, tied=architecture.tied
    )
    true = from_headers(headers_of(model, len(architecture.layers)), architecture, 2)
    made = from_config(architecture, 2, None)
    bound = 0.015 if "whisper" in model and tensor > 1 else 0.01
    assert on_rank(made, layout) == pytest.approx(on_rank(true, layout), rel=bound)


@pytest.mark.parametrize("architecture", DEFAULTS)
def test_default_config_of_a_family(architecture: str) -> None:
    """The number of parameters that the model code makes of the family's own default config."""
    model = read_architecture(DEFAULTS[architecture]["config"])
    made = sum(weight.numbers for weight in from_config(model, 2, None))
    assert made == pytest.approx(DEFAULTS[architecture]["numbers"], rel=0.01)


def test_sum_of_headers_is_the_sum_of_their_tensors() -> None:
    for model in ("meta-llama--Meta-Llama-3.1-8B", "Qwen--Qwen3-30B-A3B"):
        architecture = read_architecture(config_of(model))
        headers = headers_of(model, len(architecture.layers))
        layout = Layout(layers=len(architecture.layers), kv_heads=8)
        true = sum(size for *_, size, _ in headers)
        assert on_rank(from_headers(headers, architecture, 2), layout) == true


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("model.layers.3.self_attn.q_proj.weight", "cut"),
        ("model.layers.3.self_attn.k_proj.weight", "kv"),
        ("model.layers.3.self_attn.qkv_proj.qweight", "qkv"),
        ("model.layers.3.self_attn.kv_a_proj_with_mqa.weight", "whole"),
        ("model.layers.3.self_attn.q_a_proj.weight", "whole"),
        ("model.layers.3.self_attn.kv_b_proj.weight", "cut"),
        ("model.layers.3.input_layernorm.weight", "whole"),
        ("model.layers.3.mlp.gate.weight", "whole"),
        ("model.layers.3.mlp.experts.17.down_proj.weight_scale_inv", "expert"),
        ("model.layers.3.mlp.shared_experts.up_proj.weight", "cut"),
        ("model.layers.3.block_sparse_moe.experts.0.w2.weight", "expert"),
        ("model.embed_tokens.weight", "vocabulary"),
        ("lm_head.weight", "vocabulary"),
        ("transformer.wte.weight", "vocabulary"),
        ("model.norm.weight", "whole"),
    ],
)
def test_rules(name: str, rule: str) -> None:
    assert rule_of(name) == rule


def test_tied_head_of_a_checkpoint_is_not_loaded_twice() -> None:
    architecture = read_architecture(config_of("meta-llama--Llama-3.2-1B"))
    head = ("lm_head.weight", "BF16", [128256, 2048], 128256 * 2048 * 2, 1)
    assert from_headers([head], architecture, 2) == []


def test_float32_checkpoint_is_cast_and_quantised_parts_are_not() -> None:
    architecture = read_architecture(config_of("meta-llama--Meta-Llama-3.1-8B"))
    weights = from_headers(
        [
            ("model.layers.0.self_attn.q_proj.weight", "F32", [64, 64], 16384, 1),
            ("model.layers.0.self_attn.q_proj.weight_scale", "F32", [64, 1], 256, 1),
            ("model.layers.0.self_attn.k_proj.weight", "F8_E4M3", [64, 64], 4096, 1),
        ],
        architecture,
        2,
    )
    assert [weight.size for weight in weights] == [8192, 256, 4096]


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ("Qwen--Qwen2.5-72B-Instruct-AWQ", 38.7),
        ("Qwen--Qwen2.5-7B-Instruct-GPTQ-Int4", 5.2),
        ("openai--gpt-oss-20b", 13.03),
    ],
)
def test_quantised(model: str, gib: float) -> None:
    """The sizes of the files on the hub; gpt-oss as an engine loaded it, with its padding."""
    config = config_of(model)
    architecture = read_architecture(config)
    scheme = scheme_of(config["quantization_config"])
    made = sum(weight.size for weight in from_config(architecture, 2, scheme))
    assert made / (1 << 30) == pytest.approx(gib, rel=0.01)


@pytest.mark.parametrize(
    ("config", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128 / 128),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
            },
            4 + 16 / 128,
        ),
    ],
)
def test_bits_a_number(config: dict[str, Any], bits: float) -> None:
    scheme = scheme_of(config)
    assert scheme is not None
    assert 8 * scheme.bytes_of(4096, 4096) / 4096**2 == pytest.approx(bits, rel=0.001)


@pytest.mark.parametrize("config", [{"quant_method": "quark"}, {"bits": 4}])
def test_unknown_quantisation(config: dict[str, Any]) -> None:
    with pytest.raises(Unplannable, match="no memory model for the quantisation"):
        scheme_of(config)


def test_negative_size_in_a_header() -> None:
    architecture = read_architecture(config_of("meta-llama--Meta-Llama-3.1-8B"))
    with pytest.raises(Unplannable, match="negative size"):
        from_headers([("model.norm.weight", "BF16", [-1], 8, 1)], architecture, 2)
