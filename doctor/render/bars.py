"""The phases of a start as bars, for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

NAME_WIDTH = 16
NUMBERS_WIDTH = 15
SHORTEST_S = 0.5
"""Shorter phases are put together: a start of a minute has a dozen of them."""


def cold_starts(starts: Mapping[str, Any], width: int) -> Iterator[str]:
    """A block for each log: seconds to ready, then a bar for each phase in the order of the start."""
    for name, start in starts.items():
        total = start["seconds_to_ready"]
        where = f" ({name})" if len(starts) > 1 else ""
        yield f"start {total:g} s from the first line to ready{where}"
        rows = [(row["name"], row["seconds"]) for row in start["phases"]]
        rows.append(("not attributed", start["unattributed_s"]))
        short = sum(seconds for _, seconds in rows if seconds < SHORTEST_S)
        shown = [row for row in rows if row[1] >= SHORTEST_S]
        if short >= SHORTEST_S:
            shown.append(("shorter ones", short))
        room = width - 6 - NAME_WIDTH - NUMBERS_WIDTH
        most = max((seconds for _, seconds in shown), default=1)
        for phase, seconds in shown:
            bar = "#" * max(1, round(seconds / most * room))
            share = f"{100 * seconds / total:.0f} %" if total else ""
            yield f"      {phase:<{NAME_WIDTH}}{seconds:>7.1f} s {share:>4} {bar}"
        yield ""
