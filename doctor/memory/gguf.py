"""A GGUF file as the plan needs it: its keys as a config, its tensors as weights.

Keys: ggml/docs/gguf.md. Sizes of the types: ggml/src/ggml.c (type_traits: blck_size, type_size).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infer_doctor.memory.architecture import Architecture, Unplannable
from infer_doctor.memory.reading import read_architecture
from infer_doctor.memory.weights import Rule, Weight
from infer_doctor.models.gguf import Gguf

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}

FIELDS = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "max_position_embeddings": "context_length",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}

TYPES = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    30: (1, 2),
    39: (32, 17),
}
"""ggml type -> numbers and bytes of a block."""

LAYER = re.compile(r"^blk\.(\d+)\.")


def config_of(file: Gguf) -> Mapping[str, Any]:
    """The keys in the words of config.json; raises Unplannable for an unknown architecture."""
    kind = str(file.architecture)
    if kind not in ARCHITECTURES:
        raise Unplannable(f"no memory model for the GGUF architecture {kind}")
    config: dict[str, Any] = {"architectures": [ARCHITECTURES[kind]], "torch_dtype": "float16"}
    for name, key in FIELDS.items():
        value = file.number(key)
        if value is not None:
            config[name] = value
    words = file.arrays.get("tokenizer.ggml.tokens") or file.number("vocab_size")
    if words is not None:
        config["vocab_size"] = words
    config["tie_word_embeddings"] = all(tensor.name != "output.weight" for tensor in file.tensors)
    return config


def architecture_of(file: Gguf) -> Architecture:
    """The layers of the model in the file."""
    return read_architecture(config_of(file))


def weights_of(file: Gguf) -> list[Weight]:
    """Each tensor as it is in the file: the engine keeps the blocks (quantization/gguf.py)."""
    found = []
    for tensor in file.tensors:
        if tensor.kind not in TYPES or any(side < 0 for side in tensor.shape):
            raise Unplannable(f"no size for the GGUF type {tensor.kind} of {tensor.name}")
        numbers = 1
        for side in tensor.shape:
            numbers *= side
        block, size = TYPES[tensor.kind]
        layer = LAYER.match(tensor.name)
        found.append(
            Weight(
                name=tensor.name,
                rule=_rule(tensor.name),
                size=-(-numbers // block) * size,
                layer=int(layer[1]) if layer else None,
                numbers=numbers,
                head=tensor.name.startswith("output."),
                first=tensor.name.startswith("token_embd"),
            )
        )
    return found


def _rule(name: str) -> Rule:
    if name in ("token_embd.weight", "output.weight"):
        return "vocabulary"
    if "_exps." in name:
        return "expert"
    if "attn_k." in name or "attn_v." in name:
        return "kv"
    return "whole" if "norm" in name or "ffn_gate_inp" in name else "cut"
