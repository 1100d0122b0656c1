"""The inference engine that is installed in the examined environment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineFact:
    """An installed vLLM or TensorRT-LLM."""

    name: str
    """"vllm" or "tensorrt-llm"."""
    version: str | None
    distribution: str | None
    """Name of the distribution that brought it; None when there is no metadata."""
    package: str
    """Its package folder."""
    build: str | None
    """"cuda", "cpu", "rocm", "xpu", "tpu"; None when that cannot be told."""
