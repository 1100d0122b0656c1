"""What the header of a GGUF file says (ggml/docs/gguf.md, "Standardized key-value pairs")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen


@frozen
class GgufTensor:
    """A tensor; `kind` is the number of its ggml type, `shape` as written (fastest side first)."""

    name: str
    kind: int
    shape: tuple[int, ...]


@frozen
class Gguf:
    """The keys of a GGUF file, and the lengths of those that are arrays."""

    version: int
    keys: Mapping[str, Any] = field(metadata={"report": False})
    arrays: Mapping[str, int] = field(metadata={"report": False})
    tensors: tuple[GgufTensor, ...] = field(default=(), metadata={"report": False})

    @property
    def architecture(self) -> str | None:
        """general.architecture: "llama", "qwen2"."""
        found = self.keys.get("general.architecture")
        return found if isinstance(found, str) else None

    def number(self, name: str) -> int | None:
        """A number of the architecture's own: "block_count" for llama.block_count."""
        found = self.keys.get(f"{self.architecture}.{name}")
        return found if isinstance(found, int) else None


def gguf_of(answer: Mapping[str, Any]) -> Gguf:
    """Out of what the operation `gguf` returns."""
    return Gguf(
        version=answer["version"],
        keys=answer["keys"],
        arrays=answer["arrays"],
        tensors=tuple(
            GgufTensor(name=name, kind=kind, shape=tuple(shape))
            for name, kind, shape in answer["tensors"]
        ),
    )
