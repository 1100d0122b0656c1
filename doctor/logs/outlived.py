"""What a process said and outlived: it is no cause of what came later."""

from __future__ import annotations

import re

from infer_doctor.logs.story import Hit, Place, Start

ORDER = (
    "arguments",
    "config",
    "workers",
    "weights",
    "profile",
    "kv",
    "compile",
    "graphs",
    "warmup",
    "server",
    "serving",
)
"""Stages in their order, as far as it is fixed: compiling is part of the profile in V1."""


def overcome(start: Start, hit: Hit) -> bool:
    """Whether the process that said it went on to a later stage: it did not end there.

    What a root says holds for the machine, and other processes may go on for a while.
    """
    if hit.signature.strength == "root":
        return False
    stage = hit.stage or "workers"  # said before the first mark: until the GPUs were used
    if stage not in ORDER:
        return False
    reached = ORDER.index(stage)
    return any(
        event.place.line > hit.place.line
        and event.place.source == hit.place.source
        and (event.tag, event.pid) == (hit.tag, hit.pid)
        and event.mark.stage in ORDER[reached + 1 :]
        for event in start.events
    )


def fails_after(start: Start, hit: Hit) -> bool:
    """Whether a failure that names no reason follows."""
    line = hit.place.line
    if any(row.place.line > line for row in start.unknown):
        return False
    return any(
        other.signature.effect == "wrapper" and other.loud and other.place.line > line
        for other in start.hits
    )


def _went_on(start: Start, hit: Hit) -> bool:
    """Whether the log shows marks after it and no failure at all."""
    if start.unknown or any(
        other.loud and other.signature.effect in ("fatal", "wrapper") for other in start.hits
    ):
        return False
    return any(event.place.line > hit.place.line for event in start.events)


def unproven(start: Start, hit: Hit) -> bool:
    """Whether an exception that no signature knows ended it, and the hit is a mere remark before it."""
    if hit.raised or hit.signature.strength == "root" or hit.level in ("ERROR", "CRITICAL"):
        return False
    if not hit.loud and _went_on(start, hit):
        return True
    return any(
        row.file and row.place.line > hit.place.line and not after_ready(start, row.place.line)
        for row in start.unknown
    )


GIVEN_UP = re.compile(
    r"(?i)time(?:d )?-?out|interrupt|cancel|dead|shut|sigterm|terminat|closed|exit"
)
"""What a stall that was waited for or broken off ends in."""


def ended(start: Start, line: int) -> bool:
    """Whether a process that died, or an error of another kind, is told of after this line."""
    return any(
        hit.signature.send and hit.loud and hit.place.line > line
        for hit in start.hits
        if hit.signature.effect == "wrapper"
    ) or any(
        unknown.place.line > line and not GIVEN_UP.search(unknown.text) for unknown in start.unknown
    )


def stopping(start: Start, place: Place) -> bool:
    """Whether a server that had run was being stopped by then: what it says in dying is no cause."""
    stop = start.stopped
    if not start.served or stop is None:
        return False
    return stop.source == place.source and stop.line < place.line


def after_ready(start: Start, line: int) -> bool:
    """Errors after the start that a wrapper does not follow are requests' own."""
    if start.ready is None or line < start.ready.place.line:
        return start.ready is not None and line < start.ready.place.line
    return not any(
        hit.signature.effect == "wrapper" and hit.loud and hit.place.line >= start.ready.place.line
        for hit in start.hits
    )
