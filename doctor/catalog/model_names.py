"""The size of a model's weights by its name: the custom of hub ids, not a promise."""

from __future__ import annotations

import re

COUNT = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")
"""7B, 0.6B, 8x7B; the A3B of Qwen3-30B-A3B are the active ones of the 30."""

MILLIONS = re.compile(r"(?<![A-Za-z0-9.])(\d+)[mM](?![A-Za-z0-9])")

SHARED = 0.83
"""Experts share the attention: Mixtral-8x7B has 46.7 billion parameters, 8x22B 141 (their cards)."""

FOUR_BIT = re.compile(r"awq|gptq|int4|w4a16|[-_]4bit|nf4|nvfp4|mxfp4|bnb|gpt-oss", re.I)
EIGHT_BIT = re.compile(r"fp8|int8|w8a8|w8a16|[-_]8bit", re.I)
FOUR_BITS = 0.6
"""Bytes a parameter with scales and the 16-bit embedding: Llama-3.1-70B AWQ INT4 has 39.8 GB."""

UNKNOWN_FORMAT = re.compile(r"gguf|exl2|bitnet", re.I)


def bytes_by_name(model: str) -> float | None:
    """Bytes of the weights, or None when the name says nothing."""
    name = model.rstrip("/").rpartition("/")[2]
    if UNKNOWN_FORMAT.search(name):
        return None
    found = COUNT.search(name)
    if found is not None:
        experts = int(found[1]) if found[1] else 1
        count = float(found[2]) * 1e9 * experts * (SHARED if experts > 1 else 1)
    elif (small := MILLIONS.search(name)) is not None:
        count = float(small[1]) * 1e6
    else:
        return None
    if FOUR_BIT.search(name):
        return count * FOUR_BITS
    return count * (1 if EIGHT_BIT.search(name) else 2)
