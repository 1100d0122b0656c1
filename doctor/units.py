"""Numbers as people read them. Bytes are binary: GiB as `nvidia-smi` and the engines print them."""

from __future__ import annotations

from collections.abc import Sequence

GIB = 1 << 30
MIB = 1 << 20


def gib(size: float) -> str:
    """131.5 GiB; below one GiB in MiB."""
    if abs(size) < GIB:
        return f"{size / MIB:.0f} MiB"
    return f"{size / GIB:.1f} GiB"


def age(seconds: float) -> str:
    """4 min, 3 h, 2 days."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def plural(number: int, word: str) -> str:
    """1 GPU, 2 GPUs."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


NAMED = 5
"""Names in a sentence; more are counted."""


def names(words: Sequence[str], what: str = "node") -> str:
    """ "a", "a and b", "a, b, c and 994 more nodes"."""
    if len(words) > NAMED:
        return f"{', '.join(words[:3])} and {len(words) - 3:,} more {what}s"
    if len(words) > 1:
        return f"{', '.join(words[:-1])} and {words[-1]}"
    return words[0]
