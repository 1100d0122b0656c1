"""What Ray says of a node; only ever given, by `check --ray`."""

from __future__ import annotations

from infer_doctor.frozen import frozen
from infer_doctor.registry import given


@given("Ray was not asked")
@frozen
class RayNode:
    """A row of `ray.nodes()`; `gpus` is the resource that Ray gives out."""

    id: str
    alive: bool
    gpus: float
