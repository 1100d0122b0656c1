"""Which tensor parallel sizes a model allows, rule by rule as vLLM divides its layers.

Lines are those of vLLM 0.32.0: heads config/model.py:1547; key-value heads layers/linear.py:1054;
vocabulary layers/vocab_parallel_embedding.py:283-304; groups distributed/utils.py:60; blocks of fp8
layers/quantization/utils/fp8_utils.py:1299-1370; widths divide() of distributed/utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infer_doctor.models import config as read

VOCABULARY_PADDING = 64
"""DEFAULT_VOCAB_PADDING_SIZE."""

LARGEST = 64
"""The largest size that is offered; more ranks of one layer than any machine has."""

GROUPED = ("awq", "gptq")
"""Methods whose every linear layer needs whole groups on each rank."""

Config = Mapping[str, Any]


def problems(
    config: Config, size: int, quantization: Config | None = None, *, expert_parallel: bool = False
) -> Iterator[str]:
    """What cannot be divided over so many ranks, one clause each; what is not known is left out."""
    heads, shared = read.size(config, "heads"), read.kv_heads(config)
    if heads and heads % size:
        yield f"{heads} attention heads"
    if shared and not read.is_mla(config) and (size % shared if size >= shared else shared % size):
        yield f"{shared} key-value heads"
    width = read.size(config, "width")
    experts = read.experts(config)
    if experts and not expert_parallel:
        width = read.size(config, "expert_width") or width
        if width and width % size:
            yield f"experts of width {width}"
    elif experts:
        width = None
    elif width and width % size:
        yield f"the MLP width of {width}"
    vocabulary = read.size(config, "vocabulary")
    if vocabulary and -(-vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING % size:
        yield f"a vocabulary of {vocabulary} (padded to a multiple of {VOCABULARY_PADDING})"
    if width and size > 1 and width % size == 0 and quantization:
        yield from _cut(width, width // size, quantization, bool(experts))


def _cut(width: int, part: int, quantization: Config, experts: bool) -> Iterator[str]:
    method = str(quantization.get("quant_method", "")).lower()
    group = quantization.get("group_size", quantization.get("q_group_size"))
    if method in GROUPED and not experts and type(group) is int and group > 0 and part % group:
        yield f"{width // group} groups of {group} weights ({part} of a width of {width} each)"
    block = quantization.get("weight_block_size")
    if method == "fp8" and isinstance(block, list) and all(type(side) is int for side in block):
        side = next((side for side in block if side > 0 and part % side), None)
        if side:
            what = "experts" if experts else "the MLP"
            yield f"{what} in fp8 blocks of {side} ({part} of a width of {width} each)"


def sizes(
    config: Config, quantization: Config | None = None, *, expert_parallel: bool = False
) -> tuple[int, ...]:
    """The sizes up to LARGEST that no rule forbids."""
    return tuple(
        size
        for size in range(1, LARGEST + 1)
        if not any(problems(config, size, quantization, expert_parallel=expert_parallel))
    )


def listed(sizes: Sequence[int]) -> str:
    """1, 2, 4 or 8."""
    words = [str(size) for size in sizes]
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def offered(sizes: Sequence[int], wanted: int) -> list[int]:
    """The sizes worth naming: up to the next one above the size that was asked for."""
    above = [size for size in sizes if size > wanted][:1]
    return [size for size in sizes if size <= wanted] + above
