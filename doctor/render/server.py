"""What a probe measured, in a terminal: layers, the stream against the server's count, a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NAME_WIDTH = 34
BAR_WIDTH = 30


def lines(measured: Mapping[str, Any], width: int) -> Iterator[str]:
    """The blocks that are there."""
    if "layers" in measured:
        yield from _layers(measured["layers"], width)
    if "stream" in measured:
        yield from _stream(measured["stream"])
    if "load" in measured:
        yield from _load(measured["load"])
        yield from _histogram(measured.get("time_to_first_token") or (), width)


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _layers(rows: list[Mapping[str, Any]], width: int) -> Iterator[str]:
    yield "layer"
    room = width - NAME_WIDTH - 18
    for row in rows:
        state = str(row["state"])
        shown = state if len(state) <= room else f"{state[: room - 4]} ..."
        yield f"      {row['name'][:NAME_WIDTH]:<{NAME_WIDTH}}{_ms(row['seconds'] * 1000):>9}  {shown}"
    yield ""


def _stream(row: Mapping[str, Any]) -> Iterator[str]:
    """Client against server."""
    first, server = row["first_token_ms"], row["server_first_token_ms"]
    text = f"first token {_ms(first)}"
    if server is not None:
        outside, count = row["outside_server_ms"], row.get("server_first_tokens")
        text += (
            f" (server {_ms(server)}, outside it {_ms(max(outside, 0))})"
            if outside is not None
            else f" (server {_ms(server)}, the mean of {count} requests)"
        )
    yield f"token {text}"
    each, engine = row["time_per_token_ms"], row["server_time_per_token_ms"]
    text = f"each further token {_ms(each)}"
    if engine is not None:
        text += f" (server {_ms(engine)})"
    if row["own_delay_ms"] and row["own_delay_ms"] > 0.3 * (row["whole_ms"] or 0):
        text += f"; this machine was late by {_ms(row['own_delay_ms'])}"
    yield f"      {text}"
    yield ""


def _load(load: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{'load':<6}{'at once':>7}{'answered':>10}{'tokens/s':>10}"
        f"{'first token p50':>17}{'p99':>9}{'most':>9}{'per token':>11}"
    )
    for row in load["levels"]:
        answered = row["requests"] - sum(row["failed"].values())
        first, each = row["time_to_first_token_ms"] or {}, row["mean_time_per_token_ms"]
        count = f"{answered}/{row['requests']}"
        yield (
            f"{'':<6}{row['concurrency']:>7}{count:>10}{row['tokens_per_s']:>10,.0f}"
            f"{_ms(first.get('p50')):>17}{_ms(first.get('p99')):>9}{_ms(first.get('most')):>9}"
            f"{_ms(each):>11}"
        )
    ttft, itl = load["server_ttft"], load["server_time_per_token"]
    if ttft is not None:
        each = f", per token {_ms(itl['mean_ms'])}" if itl is not None else ""
        yield f"      server's own mean: first token {_ms(ttft['mean_ms'])}{each}"
    if load.get("outside_server_ms") is not None:
        outside = max(load["outside_server_ms"], 0)
        yield f"      outside the server: {_ms(outside)} of the mean first token"
    if load["own_delay_ms"] > 50:
        yield (
            f"      this machine was late by up to {_ms(load['own_delay_ms'])}: shorter times are "
            "not the server's"
        )
    if not all(row["tokens_exact"] for row in load["levels"]):
        yield "      the server does not count tokens: events were counted"
    if load["stopped"]:
        yield f"      ended because {load['stopped']}"
    yield ""


def _histogram(rows: Any, width: int) -> Iterator[str]:
    most = max((row["count"] for row in rows), default=0)
    if not most:
        return
    yield "first token"
    for row in rows:
        bar = "#" * round(row["count"] / most * min(BAR_WIDTH, width - 30))
        yield f"      up to {_ms(row['up_to_ms']):>9} {row['count']:>6} {bar}"
    yield ""
