"""Memory of CUDA graphs, which the driver takes when they are captured."""

from __future__ import annotations

from infer_doctor.memory.architecture import Architecture
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.settings import Settings

PER_LAYER = 0.31 * (1 << 20)
"""Bytes a graph and layer: an H200 with vLLM 0.26 took 0.99 GiB for 51 piecewise and 51 full graphs
of 32 layers (tests/memory: fit-8b-default)."""

ROUGH = 0.5
"""The share by which the estimate may be wrong: few starts captured graphs."""


def graph_bytes(settings: Settings, model: Architecture, layout: Layout, stage: int) -> int:
    """One piecewise graph for each size, and a full one for each that a decode batch can have."""
    if settings.eager:
        return 0
    sizes = settings.capture_sizes
    full = (
        len([size for size in sizes if size <= settings.sequences]) if settings.full_graphs else 0
    )
    first, end = layout.layers_of(stage)
    return int((len(sizes) + full) * (end - first) * PER_LAYER)
