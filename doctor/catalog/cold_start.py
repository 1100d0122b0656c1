"""How long an engine takes to its first answer: bytes over bandwidth, and what no size changes.

A constant would be wrong for every model (45 s and 180 s are told of the same 70B), so two bounds
are kept: what a fast machine needs at least, and what a plain one needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FAST_S = 45.0
"""Seconds of imports, profiling and graphs with warm caches: 48 s for Qwen3-0.6B on an A10 with
torch.compile's artefacts kept, 79 s in a fresh container (vllm pull request 49782, 2026-07)."""

PLAIN_S = 105.0
"""The same in a fresh container with vLLM's defaults: an 8B without weights to read took 106 s on an
H200, of which imports are 25 and compilation 24 (vLLM 0.26, measured 2026-11)."""

FAST_RATE = 2e9
"""Bytes a second: an NVMe disk of the machine."""

PLAIN_RATE = 0.2e9
"""Of a network file system or a download: 75 MB/s were seen for a plain read of a 7B (vllm issue
3182: 194 s), 650 MB/s from an object store of a cloud (marin issue 7136: 67B in 104 s)."""

MARGIN = 1.5


@dataclass(frozen=True)
class Start:
    """Seconds to the first answer."""

    fast_s: float
    slow_s: float

    @property
    def budget_s(self) -> int:
        """What a probe should wait, in whole minutes."""
        return math.ceil(self.slow_s * MARGIN / 60) * 60


def expected(size: float | None) -> Start:
    """For weights of this size in bytes; None when it is not known."""
    size = size or 0
    return Start(fast_s=FAST_S + size / FAST_RATE, slow_s=PLAIN_S + size / PLAIN_RATE)
