"""What a run measured, below the findings: also where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infer_doctor.units import gib

NAME_WIDTH = 34
MOST_PHASES = 3


def lines(measured: Mapping[str, Any], width: int) -> Iterator[str]:
    """Starts, cold starts, the ramp, the comparison: a block each."""
    if measured.get("starts"):
        yield "starts"
        for row in measured["starts"]:
            came = "came up" if row["ready"] else "failed "
            memory = f", {gib(row['peak_bytes'])} of host memory" if row["peak_bytes"] else ""
            gpus = "".join(
                f", {gib(taken)} of GPU {index}"
                for index, taken in row["gpu_peak_bytes"].items()
                if taken > 0
            )
            yield f"      {row['label'][:NAME_WIDTH]:<{NAME_WIDTH}} {came} {row['seconds']:>6.1f} s{memory}{gpus}"
        yield ""
    if measured.get("cold_starts"):
        yield "starts, to ready"
        for name, row in measured["cold_starts"].items():
            seconds = row["seconds_to_ready"]
            took = f"{seconds:>6.1f} s" if seconds is not None else "failed"
            phases = sorted(row["phases"].items(), key=lambda item: -item[1])[:MOST_PHASES]
            yield f"      {name:<16} {took}   " + ", ".join(f"{n} {s:.1f}" for n, s in phases)
        yield ""
    if measured.get("ramp"):
        yield from _ramp(measured["ramp"])
    if measured.get("quality"):
        yield from _quality(measured["quality"])


def _ramp(ramp: Mapping[str, Any]) -> Iterator[str]:
    yield f"load, {ramp['tokens']} tokens each, limit {ramp['limit_s']:g} s"
    yield "      at once   first token  (worst)     answer  (worst)   tokens/s  late  failed"
    for row in ramp["steps"]:
        cells = [_s(row[name]) for name in ("ttft_median", "ttft_worst")]
        cells += [_s(row[name]) for name in ("total_median", "total_worst")]
        yield (
            f"      {row['concurrency']:>7}  {cells[0]:>11} {cells[1]:>9}  {cells[2]:>9} "
            f"{cells[3]:>9} {row['tokens_per_s'] or 0:>9.0f}  {row['late']:>4} {row['failed']:>7}"
        )
    safe = ramp["safe"]
    if ramp["broken"] is None:
        yield f"      no answer was late with up to {safe} at once"
    elif ramp.get("died"):
        yield f"      the engine {ramp['died']}"
    elif safe is not None:
        worst = max(
            (row["total_worst"] or 0) for row in ramp["steps"] if row["concurrency"] <= safe
        )
        yield f"      safe: {safe} at once; a client should wait at least {_s(worst * 1.5)}"
    else:
        yield "      not even one request alone keeps the limit"
    yield ""


def _quality(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"answers: {found['verdict'].replace('-', ' ')}, {found['compared']} of {found['prompts']} prompts"
    names = {
        "agreement": "agreement until first difference",
        "divergence": "KL of the top tokens, nats",
        "noise": "the same of the baseline twice",
        "perplexity": "log perplexity against its own",
    }
    for key, name in names.items():
        value = found[key]
        if value is not None:
            yield (
                f"      {name:<{NAME_WIDTH}} {value['value']:.4f} "
                f"({value['low']:.4f} to {value['high']:.4f})"
            )
    distinct = found["distinct"]
    yield f"      {'distinct-2':<{NAME_WIDTH}} {distinct[0]:.3f}, candidate {distinct[1]:.3f}"
    yield ""


def _s(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
