"""A Llama of random numbers that any engine serves: configuration, tokenizer, safetensors.

Written without torch and without a download. Its byte tokenizer knows every text.
"""

from __future__ import annotations

import json
import math
import random
import struct
from pathlib import Path
from typing import Any

from infer_doctor.frozen import frozen

BYTES_PER_VALUE = 2
"""bfloat16."""

SPECIAL = ("<s>", "</s>", "<unk>")
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


@frozen
class Shape:
    """The sizes of a model. `sharp` scales the logits, so that greedy answers are not chance."""

    hidden: int = 128
    inner: int = 256
    layers: int = 2
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 64
    context: int = 4096
    vocabulary: int = 320
    sharp: float = 6.0

    @property
    def kv_bytes_per_token(self) -> int:
        """Of an unquantised cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_VALUE

    @property
    def weight_bytes(self) -> int:
        """Of the checkpoint."""
        return sum(math.prod(shape) for _, shape in self.tensors()) * BYTES_PER_VALUE

    def tensors(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes as transformers' LlamaForCausalLM has them."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows: list[tuple[str, tuple[int, ...]]] = [
            ("model.embed_tokens.weight", (self.vocabulary, self.hidden))
        ]
        for layer in range(self.layers):
            name = f"model.layers.{layer}"
            rows += [
                (f"{name}.input_layernorm.weight", (self.hidden,)),
                (f"{name}.post_attention_layernorm.weight", (self.hidden,)),
                (f"{name}.self_attn.q_proj.weight", (query, self.hidden)),
                (f"{name}.self_attn.k_proj.weight", (key, self.hidden)),
                (f"{name}.self_attn.v_proj.weight", (key, self.hidden)),
                (f"{name}.self_attn.o_proj.weight", (self.hidden, query)),
                (f"{name}.mlp.gate_proj.weight", (self.inner, self.hidden)),
                (f"{name}.mlp.up_proj.weight", (self.inner, self.hidden)),
                (f"{name}.mlp.down_proj.weight", (self.hidden, self.inner)),
            ]
        return [
            *rows,
            ("model.norm.weight", (self.hidden,)),
            ("lm_head.weight", (self.vocabulary, self.hidden)),
        ]


def write(folder: str, shape: Shape | None = None, *, weights: bool = True, seed: int = 0) -> None:
    """Write the model; without `weights` only what load_format=dummy needs."""
    shape = shape or Shape()
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "vocab_size": shape.vocabulary,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (place / "config.json").write_text(json.dumps(config, indent=1))
    (place / "generation_config.json").write_text('{"bos_token_id": 0, "eos_token_id": 1}')
    (place / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (place / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "model_max_length": shape.context,
                "chat_template": TEMPLATE,
            }
        )
    )
    if weights:
        _weights(place / "model.safetensors", shape, random.Random(seed))  # noqa: S311


def _weights(path: Path, shape: Shape, chance: random.Random) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, sizes in shape.tensors():
        size = math.prod(sizes) * BYTES_PER_VALUE
        header[name] = {"dtype": "BF16", "shape": list(sizes), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, sizes in shape.tensors():
            file.write(_values(name, sizes, shape.sharp, chance))


def _values(name: str, sizes: tuple[int, ...], sharp: float, chance: random.Random) -> bytes:
    """Norms of one; the others normal with a deviation that keeps activations at one."""
    count = math.prod(sizes)
    if len(sizes) == 1:
        return struct.pack("<H", 0x3F80) * count
    deviation = 1.0 if "embed" in name else 1 / math.sqrt(sizes[1])
    if name.startswith("lm_head"):
        deviation *= sharp
    gauss = chance.gauss
    values = struct.pack(f"<{count}f", *(gauss(0.0, deviation) for _ in range(count)))
    return b"".join(values[place + 2 : place + 4] for place in range(0, len(values), 4))


def alphabet() -> list[str]:
    """GPT-2's 256 characters that stand for bytes, in the order of the bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _tokenizer() -> dict[str, Any]:
    """tokenizer.json of the tokenizers library: bytes, without a merge."""
    names = [*SPECIAL, *alphabet()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": number,
                "content": name,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, name in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {name: number for number, name in enumerate(names)},
            "merges": [],
        },
    }
