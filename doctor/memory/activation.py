"""The peak of one forward pass of the profile run, and what libraries take beside torch.

The engine runs one batch of `max_num_batched_tokens` without attention and then the sampler on
`max_num_seqs` rows, and takes the peak of torch's allocator (v1/worker/gpu/model_runner.py:
profile_run; v1/worker/gpu_model_runner.py: profile_run of vLLM 0.26.0). The terms below are the
tensors that are alive at that moment, read out of the model code; the constants are measured.
"""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Architecture, Attention, Experts, Layer
from infer_doctor.memory.layout import Layout
from infer_doctor.units import MIB

CUBLAS_WORKSPACE = 32 * MIB
"""cuBLAS on Hopper and newer, taken from torch's allocator (aten/src/ATen/cuda/CublasHandlePool.cpp)."""

CUBLAS_WORKSPACE_OLD = 8 * MIB + 128 * 1024
"""":4096:2:16:8" on GPUs before Hopper."""

HELD = 3
"""Hidden-size tensors alive while an MLP runs: its input, the residual and the output before."""

SANDWICH = 4
HELD_SANDWICH = 5
"""With a norm after each part (Gemma 2 and 3), which is not done in place."""

COMPILED = 60 * MIB
"""What a compiled forward pass holds beyond the eager one: 61, 57 MiB in two starts (8B, 7B)."""

COMPILED_SAMPLER = 32 * MIB
"""The same while the sampler runs: a second workspace of cuBLAS (Gemma 3 1B: 32 MiB)."""

QUANTISED_QUERY = 6
"""Bytes a number of the query that is scaled to fp8 in compiled code: float32 and 16 bit copies."""

MLA_CONTEXT_TOKENS = 64 * 1024
"""The most tokens of a prefill chunk whose keys are projected up (mla_attention.py:1694)."""


@frozen
class Batch:
    """What a profile run does."""

    tokens: int
    sequences: int
    context: int
    itemsize: int
    sampler: int
    """Bytes that the sampler holds for each logit."""
    block: int = 16
    compiled: bool = False
    fp8_cache: bool = False
    hopper: bool = True
    expert_parallel: bool = False
    packed_experts: bool = False
    """mxfp4: the kernels of triton_kernels have no such workspace (gpt-oss)."""
    quantised: bool = False
    """No linear layer multiplies with cuBLAS: its workspace is not there yet at the peak."""


def peak(model: Architecture, layout: Layout, stage: int, batch: Batch) -> int:
    """Bytes at the highest point of the profile run on one rank of a stage.

    The copy that an all-reduce makes is never more than what the other ranks take away.
    """
    found = _peak(model, layout, stage, batch)
    if layout.tensor == 1:
        return found
    return min(found, _peak(model, replace(layout, tensor=1), stage, batch))


def _peak(model: Architecture, layout: Layout, stage: int, batch: Batch) -> int:
    first, end = layout.layers_of(stage)
    layers = model.layers[first:end]
    workspace = highest = 0
    for layer in layers:
        workspace = max(workspace, _expert_workspace(layer.experts, model, layout, batch))
        highest = max(highest, _layer(layer, model, layout, batch, workspace, bool(stage)))
    hidden = batch.tokens * model.hidden * batch.itemsize
    if stage == layout.stages - 1:
        rows = min(batch.sequences, batch.tokens)
        sampler = workspace + 2 * hidden + rows * model.vocabulary * batch.sampler
        highest = max(highest, sampler + (COMPILED_SAMPLER if batch.compiled else 0))
    if batch.quantised:
        return highest
    return highest + (CUBLAS_WORKSPACE if batch.hopper else CUBLAS_WORKSPACE_OLD)


def _layer(
    layer: Layer, model: Architecture, layout: Layout, batch: Batch, workspace: int, later: bool
) -> int:
    """The highest point within one layer. On a later stage the tensors that came in are buffers."""
    tokens, item = batch.tokens, batch.itemsize
    hidden = tokens * model.hidden * item
    held = (HELD_SANDWICH if model.norms == SANDWICH else HELD) - later
    parts = [0]
    if layer.width:
        parts.append(held * hidden + _dense(layer.width, model, layout, batch))
    if layer.experts is not None:
        shared = layer.experts.shared
        parts.append(held * hidden + (_dense(shared, model, layout, batch) if shared else 0))
    if layer.attention is not None:
        parts.append((held - 1) * hidden + _attention(layer.attention, layout, batch))
    if layer.state is not None:
        channels = layer.state.channels + 2 * model.hidden
        parts.append(held * hidden + 3 * tokens * -(-channels // layout.tensor) * item)
    kept = 0
    if batch.compiled:
        kept = COMPILED
        if batch.fp8_cache and layer.attention is not None and layer.attention.kind != "mla":
            query = -(-layer.attention.heads // layout.tensor) * layer.attention.head_dim
            kept += QUANTISED_QUERY * tokens * query
    if model.moe and layout.tensor > 1:
        kept += hidden  # the result of the all-reduce, which is not done in place
    return workspace + max(parts) + kept


def _dense(width: int, model: Architecture, layout: Layout, batch: Batch) -> int:
    """gate and up side by side, and their product: three times the width; twice without a gate."""
    factor = 3 if model.gated else 2
    return batch.tokens * factor * -(-width // layout.tensor) * batch.itemsize


def _attention(attention: Attention, layout: Layout, batch: Batch) -> int:
    """Projections; for MLA also the keys and values of a prefill's context."""
    heads = -(-attention.heads // layout.tensor)
    query = heads * attention.head_dim
    if attention.kind != "mla":
        both = max(1, attention.kv_heads // layout.tensor) * 2 * attention.head_dim
        return batch.tokens * (2 * query + both) * batch.itemsize
    wanted = max(8 * batch.context, 4 * batch.sequences * batch.block)
    context = max(min(wanted, MLA_CONTEXT_TOKENS), batch.sequences * batch.block)
    nope = attention.head_dim - attention.rope_dim
    up = context * heads * (nope + attention.value_dim)
    latent = 2 * (attention.latent + attention.rope_dim)
    return (up + batch.tokens * (query + latent + heads * attention.value_dim)) * batch.itemsize


def _expert_workspace(
    experts: Experts | None, model: Architecture, layout: Layout, batch: Batch
) -> int:
    """Two buffers of the fused kernel that stay (triton_moe.py: workspace_shapes)."""
    if experts is None or batch.packed_experts:
        return 0
    width = experts.width if batch.expert_parallel else -(-experts.width // layout.tensor)
    rows = batch.tokens * experts.per_token * batch.itemsize
    first = max(width, model.hidden)
    second = max(2 * width if model.gated else width, model.hidden)
    return rows * (first + second)
