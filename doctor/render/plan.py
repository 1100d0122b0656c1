"""The memory plan in a terminal: a bar for each GPU, what fits, and what each change buys."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from infer_doctor.units import GIB, gib

PARTS = (
    ("weights", "weights_bytes", "#"),
    ("activation", "activation_bytes", "+"),
    ("other", "non_torch_bytes", "."),
    ("KV cache", "kv_cache_bytes", "="),
)
INSIDE = ("graphs", "cuda_graph_bytes", "*")
SHOWN = 6
"""Changes in the table."""

TIED = "\x00"
"""Stands for a blank where no line may end."""

TYPICAL = 8192
"""A request length that people compare by, beside the longest."""


def lines(plan: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    """(text, style) of each line."""
    if plan.get("fits") is None:
        yield from _kinds(plan, width)
        return
    fits = plan["fits"]
    engine = _engine(plan)
    count = plan["gpus"]
    gpu = plan["gpu"] if count == 1 else f"{count} x {plan['gpu']}, each"
    head = (
        f"{gpu} {gib(plan['total_bytes'])}, budget {gib(plan['budget_bytes'])} "
        f"({plan['utilization']:g}), {engine}"
    )
    mark, style = ("fits", "green") if fits else ("FAIL", "bold red")
    yield from _hanging(mark, head, width, style)
    yield from _bar(plan, width)
    if not fits:
        yield from _hanging("", str(plan["reason"]), width)
    else:
        yield from _hanging("", _holds(plan), width)
    if plan["cuda_graph_bytes"] and not plan["cuda_graphs_in_budget"]:
        size = gib(plan["cuda_graph_bytes"])
        yield from _hanging("", f"CUDA graphs take about {size} outside the budget", width)
    yield from _changes(plan, width)
    yield from _hanging("from", "; ".join(plan["assumptions"]), width, "dim")


def _engine(plan: Mapping[str, Any]) -> str:
    """ "vLLM 0.26"; TensorRT-LLM, whose version need not be known, by name alone."""
    if plan.get("engine") == "tensorrt-llm":
        return f"TensorRT-LLM {plan['engine_version']}".strip()
    return f"vLLM {plan['engine_version'].removesuffix('.0')}"


def _holds(plan: Mapping[str, Any]) -> str:
    context, tokens = plan["max_model_len"], plan["kv_cache_tokens"]
    if not tokens:
        return "no KV cache"
    text = f"{tokens:,} tokens: {plan['max_concurrency']:,.1f} requests of {context:,}"
    each = plan["kv_bytes_per_token"]
    if context > TYPICAL and each and tokens * each >= 0.5 * plan["kv_cache_bytes"]:
        text += f", or {tokens // TYPICAL:,} of {TYPICAL:,}"
    return f"{text}   (+-{plan['error_band_percent']:g} %)"


def _bar(plan: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    """Each part as wide as its share of the GPU, with its name below."""
    total = plan["total_bytes"]
    parts = [(name, plan[key], sign) for name, key, sign in PARTS]
    if plan["cuda_graphs_in_budget"]:
        parts.insert(3, (INSIDE[0], plan[INSIDE[1]], INSIDE[2]))
    if plan["used_by_others_bytes"] > GIB / 2:
        others = ("others", plan["used_by_others_bytes"], "X")
        parts = [others] if plan["limit"] == "free" else [others, *parts]
    shown = [(name, max(size, 0), sign) for name, size, sign in parts]
    whole = max(total, sum(size for _, size, _ in shown))
    cells = width - 8
    text = ""
    for _, size, sign in shown:
        text += sign * (max(1, round(size / whole * cells)) if size else 0)
    yield f"{'':<6}|{text[:cells]:<{cells}}|", ""
    words = [f"{sign} {name} {gib(size)}" for name, size, sign in shown if size]
    words += [
        f"no {name}: {gib(-size)} short"
        for name, size, _ in parts
        if name == "KV cache" and size <= 0
    ]
    joined = "  ".join(word.replace(" ", TIED) for word in words)
    for text, style in _hanging("", joined, width):
        yield text.replace(TIED, " "), style


def _changes(plan: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    """What each change buys; the smallest that makes it fit stands first."""
    rows = plan["changes"][:SHOWN]
    if not rows:
        return
    column = max(len(row["flags"]) for row in rows)
    for number, row in enumerate(rows):
        mark = ("buys" if plan["fits"] else "fix") if number == 0 else ""
        text = f"{row['flags']:<{column}}  {_gain(plan, row)}"
        if len(text) + 6 <= width:
            yield f"{mark:<6}{text}", "mark" if mark else ""
            continue
        yield f"{mark:<6}{row['flags']}", "mark" if mark else ""
        yield from _hanging("", f"  {_gain(plan, row)}", width)


def _gain(plan: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    tokens = row["kv_cache_tokens"]
    if not row["fits"]:
        return f"not enough alone: {tokens:,} tokens" if tokens else "not enough alone"
    if not plan["fits"]:
        return f"fits: {tokens:,} tokens, {row['max_concurrency']:,.1f} requests; {row['note']}"
    before = plan["kv_cache_tokens"]
    more = (
        f"{tokens / before:.1f} x tokens"
        if tokens >= 1.5 * before
        else f"+{tokens - before:,} tokens"
    )
    return f"{more}; {row['note']}"


def _kinds(plan: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    """The fewest GPUs of each kind, for a model without a GPU."""
    context = plan["max_model_len"]
    words = f"The fewest GPUs of each kind at a context of {context:,}" if context else "No GPU"
    yield from _hanging("plan", f"{words}, vLLM {plan['engine_version'].removesuffix('.0')}", width)
    for row in plan["kinds"]:
        if row["gpus"] is None:
            yield f"{'':<6}{row['gpu']:<16}does not fit on 16", ""
            continue
        yield (
            f"{'':<6}{row['gpu']:<16}{row['gpus']:>2}   {row['kv_cache_tokens']:>12,} tokens   "
            f"{row['max_concurrency']:,.1f} requests at once",
            "",
        )
    yield from _hanging("from", "; ".join(plan["assumptions"]), width, "dim")


def _hanging(mark: str, text: str, width: int, style: str = "") -> Iterator[tuple[str, str]]:
    for number, line in enumerate(textwrap.wrap(text, width - 6, break_on_hyphens=False)):
        yield f"{mark if number == 0 else '':<6}{line}", style if number == 0 else ""
