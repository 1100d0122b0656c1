"""Fixes that carry the number of the memory plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.memory_plan import Planned
from infer_doctor.fixes.launching import set_option
from infer_doctor.launch.judge import setting
from infer_doctor.launch.model import Launch
from infer_doctor.model import Fix
from infer_doctor.units import gib, plural

SHOWN = 3
"""Changes that a finding offers, the smallest first."""

CHANGES_ANSWERS = ("kv_cache_dtype", "quantization")


def fixes_of(
    planned: Planned,
    launch: Launch,
    options: EngineOptions,
    *,
    only: Collection[str] = (),
) -> tuple[Fix, ...]:
    """The changes that make the launch fit, or with `only`, those of these options."""
    from infer_doctor.memory.changes import changes

    found = []
    for change in changes(planned.inputs, planned.plan.gpu, planned.plan, planned.gpus):
        if not change.plan.fits or (only and set(change.options) - set(only)):
            continue
        shown = " ".join(_written(options, name, value) for name, value in change.options.items())
        requests = (
            f"{change.plan.concurrency:,.1f} requests of {change.plan.settings.context:,} tokens"
        )
        found.append(
            Fix(
                id="plan-" + "-".join(name.replace("_", "-") for name in change.options),
                title=f"Start with {shown}",
                safety="unsafe" if set(change.options) & set(CHANGES_ANSWERS) else "safe",
                restarts=True,
                why=f"{requests} at once; {change.note}",
                actions=tuple(
                    action
                    for name, value in change.options.items()
                    for action in _actions(launch, options, name, value)
                ),
            )
        )
    if not found and not only:
        return _more_gpus(planned)
    return tuple(found[:SHOWN])


def _more_gpus(planned: Planned) -> tuple[Fix, ...]:
    """What nothing on these GPUs cures: the fewest of the same kind, and how large a model may be."""
    from infer_doctor.catalog.gpu_memory import COUNTS
    from infer_doctor.memory.architecture import Unplannable

    plan = planned.plan
    room = max(min(plan.budget, plan.gpu.usable - plan.rank.before), 0)
    beside = plan.rank.activation + plan.rank.non_torch + plan.rank.graphs_inside
    size = (
        f"a model or quantisation of less than {gib(max(room - beside, 0))} of weights on each GPU"
    )
    for count in COUNTS:
        if count <= planned.gpus:
            continue
        try:
            wider = planned.inputs.plan(
                plan.gpu, tensor_parallel_size=count, pipeline_parallel_size=1
            )
        except Unplannable:
            continue
        if not wider.longest:
            continue
        length = "" if wider.fits else f" --max-model-len {wider.safe_longest}"
        if not wider.fits and not (wider.limit == "context" and wider.safe_longest):
            continue
        title = f"Take {count} of these GPUs with --tensor-parallel-size {count}{length}, or {size}"
        break
    else:
        title = f"Take larger GPUs, or {size}"
    return (Fix(id="plan-more-memory", title=title, safety="manual", restarts=True, actions=()),)


def share_of(launch: Launch, options: EngineOptions, name: str, value: int) -> Fix:
    """An option with the number that the cache holds."""
    return Fix(
        id=f"plan-{name.replace('_', '-')}",
        title=f"Start with {setting(options, name, value)}",
        safety="safe",
        restarts=True,
        why=f"{plural(value, 'request')} of the whole context fit at once",
        actions=_actions(launch, options, name, value),
    )


def _written(options: EngineOptions, name: str, value: Any) -> str:
    text = setting(options, name, value)
    return text.removesuffix(" True") if value is True and text.startswith("-") else text


def _actions(launch: Launch, options: EngineOptions, name: str, value: Any) -> Any:
    long = "--" + name.replace("_", "-")
    flag_only = value is True and launch.kind != "python"
    return set_option(launch, long, None if flag_only else value, options.given.get(name))
