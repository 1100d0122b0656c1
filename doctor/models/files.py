"""What is known of a model's files: the types of the fact `ModelFiles`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.models.gguf import Gguf


@frozen
class Tensor:
    """One entry of a safetensors header (github.com/huggingface/safetensors, "Format").

    `dtype` as written there ("BF16", "F8_E4M3", "I32"); `size` in bytes. Equal tensors that differ
    only in a number after the first (experts) are one with a `count`, `*` for that number, the
    `shape` of one and the `size` of all: 90,000 tensors of a mixture of experts are some 2,000.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    file: str
    """The first file that holds one of them."""
    count: int = 1


@frozen
class ModelFile:
    """A file of the model folder; `size` in bytes."""

    name: str
    size: int


@frozen
class WeightIndex:
    """A *.index.json: the files that it names, and tensors that their headers do not have."""

    name: str
    files: tuple[str, ...]
    tensors: int
    total_size: int | None
    lacking: int
    lacking_names: tuple[str, ...] = ()


@frozen
class ModelFiles:
    """What is known of the model without loading it.

    `origin` is "folder", "cache", "gguf" (a file) or "named" (only a name: nothing of it is here).
    JSON files are None where they do not exist; what exists and cannot be read is in `broken` with
    the reason.
    """

    model: str
    origin: str
    folder: str | None = None
    """The folder or GGUF file; for "named", the path that does not exist, else None."""
    revision: str | None = None
    config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    generation_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    tokenizer_config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    quantization: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    """quantization_config of config.json, else hf_quant_config.json or quantize_config.json."""
    files: tuple[ModelFile, ...] = field(default=(), metadata={"report": False})
    tensors: tuple[Tensor, ...] = field(default=(), metadata={"report": False})
    """Of the safetensors files that are loaded; empty when there are none or one is broken."""
    missing_shards: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    """File -> what is wrong: "is a Git LFS pointer", "ends within its header, after 120 of 4,096 bytes"."""
    gaps: tuple[str, ...] = ()
    quantization_source: str | None = None
    """The file that `quantization` is from."""
    documents: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, metadata={"report": False}
    )
    """Every small JSON file that was read, by name."""
    left_out: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict, metadata={"report": False}
    )
    """File -> keys whose values were too long to keep."""
    indexes: tuple[WeightIndex, ...] = field(default=(), metadata={"report": False})
    loaded: tuple[str, ...] = field(default=(), metadata={"report": False})
    """The weight files that the engine would read, by load format "auto"."""
    partial: tuple[ModelFile, ...] = ()
    """Unfinished downloads in the cache (blobs/*.incomplete)."""
    dangling: tuple[str, ...] = ()
    """Links to nothing."""
    gguf: Gguf | None = field(default=None, metadata={"report": False})
    elsewhere: bool = False
    """The launch is of another machine: these are this machine's files of the same name."""

    @property
    def title(self) -> str:
        """What a message calls it: a snapshot of the cache by its name, not by its long path."""
        if self.origin == "cache":
            return f"{self.model} in the cache"
        return self.folder or self.model

    def size_of(self, name: str) -> int | None:
        """Bytes of a file; None when it is not there."""
        return next((file.size for file in self.files if file.name == name), None)

    def path_of(self, name: str) -> str:
        """The path of a file of the folder."""
        return posixpath.join(self.folder or self.model, name)
