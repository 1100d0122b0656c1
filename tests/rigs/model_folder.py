"""Real model files with holes instead of weights: headers as the library writes them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "U8": 1, "I64": 8}

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}

Tensors = Mapping[str, tuple[str, Sequence[int]]]


def safetensors(path: Path, tensors: Tensors, *, cut: int = 0) -> None:
    """Write a safetensors file; `cut` bytes are missing at its end."""
    header, place = {}, 0
    for name, (dtype, shape) in tensors.items():
        size = BYTES[dtype]
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + size]}
        place += size
    raw(path, header, place - cut)


def raw(path: Path, header: object, data: int) -> None:
    """Write a safetensors file whose header is whatever is given."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + data)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def folder(
    path: Path, config: Mapping[str, Any] | None = TINY, *, shards: int = 2, **documents: object
) -> Path:
    """A whole model: config.json, tokenizer files, one layer in each shard, an index."""
    path.mkdir(parents=True, exist_ok=True)
    if config is not None:
        write_json(path / "config.json", config)
    write_json(path / "tokenizer.json", {"version": "1.0"})
    write_json(path / "tokenizer_config.json", {"chat_template": "{{ messages }}"})
    where = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        tensor = f"model.layers.{shard}.mlp.up_proj.weight"
        safetensors(path / name, {tensor: ("BF16", (16, 8))})
        where[tensor] = name
    index = {"metadata": {"total_size": 256 * shards}, "weight_map": where}
    write_json(path / "model.safetensors.index.json", index)
    for name, value in documents.items():
        write_json(path / f"{name}.json", value)
    return path


def cached(cache: Path, name: str, source: Path, commit: str = "a" * 40) -> Path:
    """The files of a folder as huggingface_hub lays them out; returns the snapshot's folder."""
    repository = cache / ("models--" + name.replace("/", "--"))
    snapshot = repository / "snapshots" / commit
    blobs = repository / "blobs"
    for made in (snapshot, blobs, repository / "refs"):
        made.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for number, file in enumerate(sorted(source.iterdir())):
        blob = blobs / f"{number:064x}"
        file.rename(blob)
        (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
    return snapshot


def gguf(
    path: Path,
    keys: Mapping[str, object],
    *,
    tensors: Sequence[tuple[str, int, Sequence[int]]] = (),
    tokens: int | None = 3,
    counts: tuple[int, int] | None = None,
) -> None:
    """Write the header of a GGUF file; `counts` are other numbers of tensors and keys to claim."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    body = b""
    for name, value in keys.items():
        body += text(name)
        if isinstance(value, str):
            body += struct.pack("<I", 8) + text(value)
        elif isinstance(value, float):
            body += struct.pack("<If", 6, value)
        else:
            body += struct.pack("<II", 4, value)
    number = len(keys)
    if tokens is not None:
        body += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, tokens)
        body += b"".join(text(f"t{token}") for token in range(tokens))
        number += 1
    for name, kind, shape in tensors:
        body += text(name) + struct.pack("<I", len(shape))
        body += b"".join(struct.pack("<Q", side) for side in shape) + struct.pack("<IQ", kind, 0)
    claimed = counts or (len(tensors), number)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, *claimed) + body)
