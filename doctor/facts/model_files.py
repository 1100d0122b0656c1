"""The files of the model that a launch names: a folder, or a hub id in the local cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen


@frozen
class Tensor:
    """One entry of a safetensors header (github.com/huggingface/safetensors, "Format").

    `dtype` as written there ("BF16", "F8_E4M3", "I32"); `size` in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    file: str


@frozen
class ModelFile:
    """A file of the model folder; `size` in bytes."""

    name: str
    size: int


@frozen
class ModelFiles:
    """What is known of the model without loading it.

    `origin` is "folder", "cache" or "named" (only a name: nothing of it is here). JSON files are
    None where they do not exist; what exists and cannot be read is in `broken` with the reason.
    """

    model: str
    origin: str
    folder: str | None = None
    revision: str | None = None
    config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    generation_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    tokenizer_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    quantization: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    """quantization_config of config.json, else hf_quant_config.json or quantize_config.json."""
    files: tuple[ModelFile, ...] = field(default=(), metadata={"report": False})
    tensors: tuple[Tensor, ...] = field(default=(), metadata={"report": False})
    """Of all safetensors headers; empty when there are none or one could not be read."""
    missing_shards: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    """File -> what is wrong: "is a Git LFS pointer", "the header ends after 120 of 4,096 bytes"."""
    gaps: tuple[str, ...] = ()
