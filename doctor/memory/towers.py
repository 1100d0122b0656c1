"""Vision encoders of multimodal models, out of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infer_doctor.memory.architecture import number


def tower_of(config: Mapping[str, Any], out: int) -> tuple[int, int]:
    """Parameters of a vision transformer with its projector, roughly, and no item size."""
    hidden = number(config, "embed_dim", "hidden_size", default=0)
    depth = number(config, "num_hidden_layers", "depth", default=0)
    if not hidden or not depth or depth > 200:
        return 0, 0
    ratio = config.get("mlp_ratio")
    scaled = int(hidden * ratio) if isinstance(ratio, (int, float)) else 4 * hidden
    width = number(config, "intermediate_size", default=scaled)
    gated = config.get("hidden_act") in ("silu", "swiglu")
    patch = number(config, "patch_size", default=14)
    temporal = number(config, "temporal_patch_size", default=1)
    block = 4 * hidden * hidden + (3 if gated else 2) * hidden * width
    merge = number(config, "spatial_merge_size", default=1) ** 2 * hidden
    deep = config.get("deepstack_visual_indexes")
    mergers = 1 + (len(deep) if isinstance(deep, (list, tuple)) else 0)
    positions = number(config, "num_position_embeddings", default=0) * hidden
    return (
        depth * block
        + 3 * patch * patch * temporal * hidden
        + mergers * (merge * merge + merge * out)
        + positions,
        0,
    )
