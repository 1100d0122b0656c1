"""Memory of CUDA graphs: what their capture takes, and the estimate that the engine reserves."""

from __future__ import annotations

from infer_doctor.memory.architecture import Architecture
from infer_doctor.memory.layout import Layout
from infer_doctor.memory.settings import Settings
from infer_doctor.units import MIB

PER_LAYER = 0.081 * MIB
"""Bytes a graph and layer. The V1 runner's estimates on an H200 lie on one line: 0.35 GiB for 102
graphs of 12 layers, 0.58 for 166 of 24, 0.64 for 102 of 48 (tests/memory/starts.json)."""

RESERVED = 259 * MIB
"""Where that line begins."""

ACTUAL = 1.25
"""What the capture then took in place of 0.64 GiB: 0.80."""

PER_HIDDEN = 375
"""Bytes for each token of the largest graph and number of the hidden size, in the V2 runner: 0.99
GiB (hidden 4096), 0.89 (3584), 0.46 (1152) and 0.22 (4096, but 128 tokens): within 0.05 GiB."""


def graph_bytes(settings: Settings, model: Architecture, layout: Layout, stage: int) -> int:
    """What the capture takes on one rank of a stage."""
    if settings.eager or not settings.capture_sizes:
        return 0
    each = _each(settings, layout, stage)
    if settings.runner == 1:
        return int(ACTUAL * (RESERVED + each))
    return int(each + PER_HIDDEN * settings.capture_sizes[-1] * model.hidden)


def reserved_bytes(settings: Settings, model: Architecture, layout: Layout, stage: int) -> int:
    """What the engine's profile takes out of the budget for them."""
    if not settings.graphs_inside or not settings.capture_sizes:
        return 0
    if settings.runner == 1:
        return int(RESERVED + _each(settings, layout, stage))
    return graph_bytes(settings, model, layout, stage)


def _each(settings: Settings, layout: Layout, stage: int) -> float:
    """A piecewise graph for each size, and a full one for each that a decode batch can have."""
    sizes = settings.capture_sizes
    full = [size for size in sizes if size <= settings.sequences] if settings.full_graphs else []
    first, end = layout.layers_of(stage)
    return (len(sizes) + len(full)) * (end - first) * PER_LAYER
