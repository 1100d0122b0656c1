"""The plan as the report holds it: plain numbers. `docs/report.schema.json` is made from these types."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infer_doctor.frozen import frozen

if TYPE_CHECKING:
    from infer_doctor.engine import Subject
    from infer_doctor.memory.changes import Change, Kind
    from infer_doctor.memory.inputs import Inputs
    from infer_doctor.memory.plan import MemoryPlan


@frozen
class ReportedChange:
    """What one change of the launch buys."""

    flags: str
    fits: bool
    reason: str | None
    kv_cache_tokens: int
    max_model_len_fits: int
    max_concurrency: float
    gpus: int
    note: str


@frozen
class ReportedKind:
    """The fewest GPUs of one kind that hold the model at its whole context; null: none up to 16."""

    gpu: str
    gpus: int | None
    kv_cache_tokens: int | None
    max_concurrency: float | None


@frozen
class ReportedPlan:
    """The field `plan`; bytes are per GPU, that of the smallest KV cache. Without a GPU (a model
    alone) only `kinds` and what does not depend on one are set."""

    engine: str = "vllm"
    """"vllm" or "tensorrt-llm"."""
    fits: bool | None
    reason: str | None
    limit: str | None
    """load, free, no_cache, context or graphs: what stops the start."""
    gpu: str | None
    gpus: int | None
    total_bytes: int | None
    """What CUDA can give of the GPU."""
    budget_bytes: int | None
    used_by_others_bytes: int | None
    weights_bytes: int | None
    activation_bytes: int | None
    non_torch_bytes: int | None
    cuda_graph_bytes: int | None
    cuda_graphs_in_budget: bool | None
    kv_cache_bytes: int | None
    kv_bytes_per_token: float | None
    kv_cache_tokens: int | None
    max_model_len: int | None
    max_model_len_fits: int | None
    max_concurrency: float | None
    error_band_percent: float | None
    utilization: float | None
    engine_version: str
    basis: str
    assumptions: tuple[str, ...]
    changes: tuple[ReportedChange, ...] = ()
    kinds: tuple[ReportedKind, ...] = ()


def wire(plan: MemoryPlan, changes: Sequence[Change] = ()) -> dict[str, Any]:
    """The plan on a GPU as plain JSON."""
    rank = plan.rank
    reported = ReportedPlan(
        fits=plan.fits,
        reason=plan.reason,
        limit=plan.limit,
        gpu=plan.gpu.name,
        gpus=plan.layout.gpus,
        total_bytes=plan.gpu.usable,
        budget_bytes=plan.budget,
        used_by_others_bytes=plan.gpu.used,
        weights_bytes=rank.weights,
        activation_bytes=rank.activation,
        non_torch_bytes=rank.non_torch,
        cuda_graph_bytes=rank.graphs_inside or rank.graphs,
        cuda_graphs_in_budget=bool(rank.graphs_inside),
        kv_cache_bytes=rank.cache,
        kv_bytes_per_token=round(plan.cache.bytes_per_token, 3),
        kv_cache_tokens=plan.tokens,
        max_model_len=plan.settings.context,
        max_model_len_fits=plan.safe_longest,
        max_concurrency=round(plan.concurrency, 2),
        error_band_percent=plan.band_percent,
        utilization=plan.settings.utilisation,
        engine_version=".".join(map(str, plan.settings.version)),
        basis=plan.basis,
        assumptions=plan.assumptions,
        changes=tuple(_change(change) for change in changes),
    )
    made: dict[str, Any] = plain(reported)
    return made


def wire_of_model(inputs: Inputs, kinds: Sequence[Kind]) -> dict[str, Any]:
    """A model without a GPU: the fewest of each kind."""
    names = (field.name for field in dataclasses.fields(ReportedPlan))
    values: dict[str, Any] = dict.fromkeys(names)
    values |= {
        "engine": "vllm",
        "engine_version": ".".join(map(str, inputs.version)),
        "basis": inputs.basis,
        "max_model_len": next((row.plan.settings.context for row in kinds if row.plan), None),
        "assumptions": (
            f"weights from {inputs.basis}",
            "memory of the GPUs from the catalogue",
            *inputs.notes,
        ),
        "changes": (),
        "kinds": tuple(
            ReportedKind(
                gpu=kind.gpu.name,
                gpus=kind.count,
                kv_cache_tokens=kind.plan.tokens if kind.plan else None,
                max_concurrency=round(kind.plan.concurrency, 2) if kind.plan else None,
            )
            for kind in kinds
        ),
    }
    made: dict[str, Any] = plain(ReportedPlan(**values))
    return made


def _change(change: Change) -> ReportedChange:
    return ReportedChange(
        flags=change.flags,
        fits=change.plan.fits,
        reason=change.plan.reason,
        kv_cache_tokens=change.plan.tokens,
        max_model_len_fits=change.plan.safe_longest,
        max_concurrency=round(change.plan.concurrency, 2),
        gpus=change.plan.layout.gpus,
        note=change.note,
    )


def plain(value: Any) -> Any:
    """Dataclasses and tuples as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def plan_of(subjects: Sequence[Subject]) -> dict[str, Any] | None:
    """The plan that the checks of a run have made, for its report."""
    from infer_doctor.facts.memory_plan import Planned
    from infer_doctor.facts.trt_plan import TrtPlanned

    for subject in subjects:
        found = subject.facts.get(Planned)
        if isinstance(found, Planned):
            return wire(found.plan)
        other = subject.facts.get(TrtPlanned)
        if isinstance(other, TrtPlanned):
            from infer_doctor.trtllm.report import wire as wire_of_trtllm

            return wire_of_trtllm(other.plan)
    return None
