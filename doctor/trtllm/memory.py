"""The KV cache of TensorRT-LLM: what a start leaves for it, and how many tokens that is.

PyTorch backend (1.0 to the newest, _torch/pyexecutor/_util.py, kv_cache_manager): after a dry run,
(total - peak + temporary pool) x free_gpu_memory_fraction, divided by the bytes of a token, rounded
up to blocks. TensorRT backend (docs/source/reference/memory.md of 0.14): the fraction of what is free
after the engine, its activations and its buffers. Compared with the numbers of five logs and pages
(tests/trtllm/test_memory.py); never run here.
"""

from __future__ import annotations

import math
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.units import GIB, MIB, gib

BLOCK = {"pytorch": 32, "tensorrt": 64}
"""Tokens of a block where nothing else is set: KvCacheConfig of 1.x, plugin_config of 0.14."""

CONTEXT = 780 * MIB
"""CUDA context and libraries. The page of 0.14: 79.10 GiB, of which 70.48 are free after an engine of
6,695 MiB, 1,134 MiB of activations, 43 MB and 180 MB of buffers: 0.76 GiB are these."""

ENGINE_BUFFERS = 224 * MIB
"""Runtime and decoder buffers of the same page: 43.29 and 180.30 MB."""

ENGINE_ACTIVATION = 18
"""Activations of an engine in hidden states: 1,134 MiB for 8,192 tokens of 4,096 float16 (the same
page), so one example; halved and doubled it is the error band."""

NCCL = 500 * MIB
"""Of more than one rank (an estimate, as doctor/memory has for small groups)."""

BAND = 0.3
"""How wrong activation, context and buffers together may be."""

Backend = Literal["pytorch", "tensorrt"]


@frozen
class Layers:
    """What a token keeps on one rank."""

    layers: int
    kv_heads: int
    head_dim: int
    latent: int = 0
    """MLA: kv_lora_rank + qk_rope_head_dim; one vector of it, not cut by tensor parallelism."""

    def bytes_per_token(self, item: float, tensor: int = 1, stages: int = 1) -> float:
        """Heads are replicated where there are fewer than ranks."""
        count = math.ceil(self.layers / stages)
        if self.latent:
            return count * self.latent * item
        return 2 * count * max(1, math.ceil(self.kv_heads / tensor)) * self.head_dim * item


def available(total: float, peak: float, temporary: float, fraction: float) -> float:
    """Bytes for the cache after the dry run: the fraction is of what is left, not of the GPU."""
    return max(0.0, total - peak + temporary) * fraction


def tokens_in(size: float, per_token: float) -> int:
    return int(size // per_token) if per_token else 0


def allocated(tokens: int, block: int) -> int:
    """Tokens in whole blocks, rounded up as the log shows (86,711 -> 86,720)."""
    return math.ceil(tokens / block) * block


@frozen
class Demand:
    """What the launch and the files tell."""

    backend: Backend
    version: str | None
    total: int
    """What CUDA can give."""
    used: int
    weights: int
    activation: int
    buffers: int
    ranks: int
    per_token: float
    fraction: float
    max_tokens: int | None
    length: int | None
    """max_seq_len; None where the model decides."""
    most: int | None
    """What the model can."""
    block: int
    fail_fast: bool = False
    basis: str = ""
    assumptions: tuple[str, ...] = ()


@frozen
class TrtPlan:
    """The plan of the fullest GPU."""

    demand: Demand
    gpu: str
    peak: int
    cache: int
    tokens: int
    limit: Literal["load", "no_cache", "context"] | None
    reason: str | None
    band: int

    @property
    def fits(self) -> bool:
        return self.limit is None

    @property
    def length(self) -> int:
        return self.demand.length or self.demand.most or 0

    @property
    def longest(self) -> int:
        """The longest sequence: what is silently taken where max_seq_len is more."""
        most = self.demand.most or self.length
        return min(self.tokens, most) if most else self.tokens


def plan_of(demand: Demand, gpu: str) -> TrtPlan:
    """What is left for the cache, and whether a sequence fits."""
    group = NCCL if demand.ranks > 1 else 0
    other = CONTEXT + group + demand.buffers
    peak = demand.used + demand.weights + demand.activation + other
    size = int(available(demand.total, peak, 0, demand.fraction))
    tokens = tokens_in(size, demand.per_token)
    if demand.max_tokens is not None:
        tokens = min(tokens, demand.max_tokens)
    count = allocated(tokens, demand.block) if tokens else 0
    if demand.max_tokens is not None:
        size = min(size, int(count * demand.per_token))
    length = demand.length or demand.most or 0
    limit: Literal["load", "no_cache", "context"] | None = None
    reason = None
    free = demand.total - demand.used - CONTEXT
    if demand.weights > free:
        limit = "load"
        reason = f"weights of {gib(demand.weights)} are more than the {gib(free)} that are free"
    elif tokens <= 0:
        limit = "no_cache"
        reason = (
            f"weights {gib(demand.weights)}, activation {gib(demand.activation)} and other "
            f"{gib(other)} leave nothing of {gib(demand.total)} for the KV cache"
        )
    elif length and tokens < length and demand.fail_fast:
        limit = "context"
        reason = f"one sequence may have {length:,} tokens, the KV cache holds {count:,}"
    return TrtPlan(
        demand=demand,
        gpu=gpu,
        peak=peak,
        cache=size,
        tokens=count,
        limit=limit,
        reason=reason,
        band=int(BAND * (demand.activation + other) * demand.fraction) + GIB // 20,
    )
