"""The KV cache: groups of layers, bytes of a block, blocks of a request, tokens.

Rules: v1/kv_cache_interface.py and v1/core/kv_cache_utils.py of vLLM 0.26.0 and 0.32.0. Compared
with a real engine: a Llama and a Gemma 3 on the CPU (exact), the starts of tests/memory (exact
where the pool is known).
"""

from __future__ import annotations

from collections.abc import Callable

from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Architecture, Attention, State
from infer_doctor.memory.layout import Layout

BLOCK = 16
"""Tokens of a block where no backend prefers another (platforms/interface.py:700)."""

DTYPE_BYTES = {
    "auto": 0.0,
    "float16": 2.0,
    "half": 2.0,
    "bfloat16": 2.0,
    "float32": 4.0,
    "float": 4.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "nvfp4": 0.5 + 1 / 16,
}
"""--kv-cache-dtype -> bytes a number; "auto" is the dtype of the model."""

SPARSE_MLA_TOKEN = 656
"""Bytes a token of fp8_ds_mla: DeepSeek V3.2's cache (kv_cache_interface.py:686)."""

INDEXER_BLOCK = 128
"""Numbers that share a float32 scale in the cache of the indexer."""

GROUPS_EQUAL = 1.5
"""Below this ratio of layer counts the larger one is the group size (kv_cache_utils.py:1362)."""


@frozen
class CacheLayer:
    """What one layer keeps. `page` is the bytes of a block; equal ones are in one group."""

    kind: str
    page: int
    tokens: int
    """Of a block."""
    window: int | None = None


@frozen
class Demand:
    """What decides how many blocks a request needs."""

    in_flight: int
    """Tokens scheduled and not yet settled: batched tokens for each concurrent batch."""
    states: int = 1
    """Blocks of a layer with a state: 1, or 2 with prefix caching."""


@frozen
class Cache:
    """The cache of one rank."""

    block_bytes: int
    """Of all layers of a group, padding included."""
    groups: tuple[CacheLayer, ...]
    bytes_per_token: float
    """Of one more token in a long request: what full layers keep."""

    def blocks_of(self, length: int, demand: Demand) -> int:
        """Blocks of one request of this length."""
        return sum(_blocks(layer, length, demand) for layer in self.groups)

    def blocks_in(self, size: int) -> int:
        """Blocks that a pool of this size has."""
        return max(0, size) // self.block_bytes if self.block_bytes else 0


def _up(value: int, step: int) -> int:
    return -(-value // step)


def _blocks(layer: CacheLayer, length: int, demand: Demand) -> int:
    if layer.kind == "state":
        return demand.states
    if layer.kind == "cross":
        return _up(layer.window or 0, layer.tokens)
    if layer.kind == "sliding" and layer.window:
        return _up(min(layer.window - 1 + demand.in_flight, length), layer.tokens) + 1
    if layer.kind == "chunked" and layer.window:
        return _up(min(layer.window + demand.in_flight, length), layer.tokens)
    return _up(length, layer.tokens)


def cache_of(
    model: Architecture, layout: Layout, stage: int, item: float, block: int, state_item: int
) -> Cache:
    """The cache of one rank of a stage; `item` is the bytes of a number in it.

    The groups are those of the whole model: a stage holds its layers of each of them.
    """
    own = [(layer.attention, layer.state) for layer in model.layers]
    attention = [one for one, _ in own if one and not one.shared]
    states = [state for _, state in own if state]
    if states and attention:
        block = _aligned(attention[0], states, layout, item, block, state_item)
    page = max((_of_attention(one, layout, item, block).page for one in attention), default=0)
    kept: list[tuple[int, CacheLayer]] = []
    for place, (one, state) in enumerate(own):
        if one and not one.shared:
            kept.append((place, _of_attention(one, layout, item, block)))
            if one.indexer is not None:
                kept.append((place, _indexer(one, block)))
        if state:
            size = max(page, state_bytes(state, layout.tensor, state_item))
            kept.append((place, CacheLayer(kind="state", page=size, tokens=block)))
    return _grouped(kept, layout.layers_of(stage))


def state_bytes(state: State, tensor: int, item: int) -> int:
    """One request's state in one layer: the convolution's window and the recurrent state."""
    window = _up(state.channels, tensor) * (state.kernel - 1) * item
    if not state.shape:
        return window
    numbers = _up(state.shape[0], tensor)
    for side in state.shape[1:]:
        numbers *= side
    return window + numbers * (4 if state.full_precision else item)


def _aligned(
    attention: Attention,
    states: list[State],
    layout: Layout,
    item: float,
    block: int,
    state_item: int,
) -> int:
    """The block of a hybrid model: a page of attention holds a state (interface.py:939)."""
    token = _of_attention(attention, layout, item, 1).page
    largest = max(state_bytes(state, layout.tensor, state_item) for state in states)
    return max(block, block * _up(largest, block * token))


def _of_attention(attention: Attention, layout: Layout, item: float, block: int) -> CacheLayer:
    if attention.kind == "mla":
        numbers = attention.latent + attention.rope_dim
        token = SPARSE_MLA_TOKEN if attention.indexer and item == 1 else int(numbers * item)
        return CacheLayer(kind="full", page=block * token, tokens=block)
    heads = max(1, attention.kv_heads // layout.tensor)
    size = int(block * heads * (attention.head_dim + attention.value_dim) * item)
    return CacheLayer(kind=attention.kind, page=size, tokens=block, window=attention.window)


def _indexer(attention: Attention, block: int) -> CacheLayer:
    assert attention.indexer is not None
    size = attention.indexer[1]
    return CacheLayer(
        kind="indexer", page=block * (size + _up(size, INDEXER_BLOCK) * 4), tokens=block
    )


def _grouped(layers: list[tuple[int, CacheLayer]], stage: tuple[int, int]) -> Cache:
    """kv_cache_utils.py:1362-1500: one group, one aggregated group, or groups of equal size.

    A group takes every n-th layer of its kind, so that each stage has some of each.
    """
    here = [layer for place, layer in layers if stage[0] <= place < stage[1]]
    if not here:
        return Cache(block_bytes=0, groups=(), bytes_per_token=0.0)
    per_token = sum(
        layer.page / layer.tokens for layer in here if layer.kind in ("full", "indexer")
    )
    kinds: dict[CacheLayer, list[int]] = {}
    for place, layer in layers:
        kinds.setdefault(layer, []).append(place)
    names = {"full" if layer.kind == "indexer" else layer.kind for layer in kinds}
    if len(kinds) == 1 or names == {"full"}:
        total = sum(layer.page for layer in here)
        return Cache(block_bytes=total, groups=(layers[0][1],), bytes_per_token=per_token)
    counts = [len(places) for places in kinds.values()]
    size = max(counts) if max(counts) < min(counts) * GROUPS_EQUAL else min(counts)
    groups = []
    most = 0
    for layer, places in kinds.items():
        number = _up(len(places), size)
        groups += [layer] * number
        for first in range(number):
            own = [place for place in places[first::number] if stage[0] <= place < stage[1]]
            most = max(most, len(own))
    page = max(layer.page for layer in kinds)
    return Cache(
        block_bytes=most * page,
        groups=tuple(groups),
        bytes_per_token=per_token,
    )


def longest(fits: Callable[[int], bool], limit: int) -> int:
    """The longest length up to a limit that fits, by halving; 0 when none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
