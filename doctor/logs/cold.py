"""Where the time of a start went: the marks cut it into phases, and what the engine printed is kept."""

from __future__ import annotations

import re

from infer_doctor.facts.log import ColdStart, Phase
from infer_doctor.logs.figures import count, figure
from infer_doctor.logs.line import elapsed
from infer_doctor.logs.story import Event, Start
from infer_doctor.model import Evidence

GB_PER_GIB = 1.073741824

PRINTED = {
    "download": ("took", "download"),
    "weights": ("took", "weights"),
    "loaded": ("took", "weights"),
    "quantise": ("took", "quantise"),
    "compiled": ("took", "compile"),
    "profiled": ("took", "profile run"),
    "jit": ("took", "kernel warm-up"),
    "graphs": ("took", "CUDA graphs"),
}
"""Mark -> the value in which the engine prints how long the phase took."""

LONG_S = 30.0
"""A phase of a start that is not whole in the log is worth a word from here on."""

LONGEST_GAP_S = 0.5
"""Times are whole seconds: a difference below half of one is none."""


def of(start: Start) -> ColdStart | None:
    """The phases of a start; None when no times are there.

    Of one that did not become ready only what the engine printed, and only when that was long.
    """
    last = start.ready or (start.events[-1] if start.events else None)
    if last is None:
        return None
    seconds, printed, proof = _cut(start, last)
    if start.ready is None:  # a part of a start: what the engine printed still counts
        seconds = {name: value for name, value in seconds.items() if name in printed}
        total: float | None = sum(seconds.values())
        if not total or max(seconds.values()) < LONG_S:
            return None
    else:
        total = elapsed(start.time, start.ready.time)
    if total is None or total <= 0:
        return None
    phases = tuple(
        Phase(name=name, seconds=round(value, 2), printed=name in printed, evidence=proof[name])
        for name, value in seconds.items()
        if value >= 0.05
    )
    known = sum(phase.seconds for phase in phases)
    loading = seconds.get("weights")
    size = start.number_of("checkpoint") or start.number_of("weights")
    speed = None
    if size and loading and start.values.get("load_format") != "dummy":
        speed = round(size * GB_PER_GIB / loading, 2)
    return ColdStart(
        phases=phases,
        seconds=round(total, 1),
        unattributed=round(max(0.0, total - known), 1),
        weights_gib=size,
        weights_per_second=speed,
        filesystem=start.values.get("filesystem"),
        weight_format=start.values.get("format"),
        compiled=("dynamo" in start.values or "graph" in start.values)
        and "aot" not in start.values
        and "cached" not in start.values,
        cache=start.values.get("cache"),
        graph_sizes=_sizes(start),
        complete=start.ready is not None,
        ready=last.place.evidence(last.text),
    )


def _cut(start: Start, ready: Event) -> tuple[dict[str, float], set[str], dict[str, Evidence]]:
    """Seconds of each phase, those that the engine printed, and the line of each.

    A mark ends a phase. Where it prints its own duration that is the phase's, and what is left of
    the time since the mark before belongs to what the engine did in between, by its next name.
    """
    seconds: dict[str, float] = {}
    printed: set[str] = set()
    proof: dict[str, Evidence] = {}
    before = start.time
    said: dict[str, float] = {}
    for event in start.events:
        if event.time is None:
            continue
        name = PRINTED.get(event.mark.id)
        value = figure(event.values.get(name[0])) if name else None
        if name and value is not None and name[1] not in printed:
            said[name[1]] = value
            printed.add(name[1])
            proof[name[1]] = event.place.evidence(event.text)
        elif value is not None and event.mark.id == "loaded" and "model set-up" not in said:
            # The whole of it: the model's initialisation stands around the weights.
            said["model set-up"] = max(0.0, value - said["weights"])
            proof["model set-up"] = event.place.evidence(event.text)
    for event in start.events:
        if event.time is None:
            continue
        gone = elapsed(before, event.time)
        if gone is None or gone < 0:
            continue
        phase = event.mark.phase
        if not phase or gone == 0:
            if not phase:
                continue
            before = event.time
            continue
        before = event.time
        seconds[phase] = seconds.get(phase, 0.0) + gone
        proof.setdefault(phase, event.place.evidence(event.text))
        if event is ready:
            break
    for phase, lasted in said.items():
        rest = seconds.get(phase, 0.0) - lasted
        if phase == "weights":
            rest -= said.get("model set-up", 0.0)
        if phase == "model set-up":
            rest = 0.0
        seconds[phase] = lasted
        if rest > LONGEST_GAP_S:
            other = _neighbour(phase)
            seconds[other] = seconds.get(other, 0.0) + rest
            proof.setdefault(other, proof[phase])
    return seconds, printed, proof


def _neighbour(phase: str) -> str:
    """What the engine does before it, where the marks do not tell the two apart."""
    return {
        "download": "model config",
        "weights": "process group",
        "quantise": "weights",
        "compile": "memory profile",
        "profile run": "memory profile",
        "CUDA graphs": "kernel warm-up",
    }.get(phase, "kernel warm-up")


def _sizes(start: Start) -> int | None:
    for event in reversed(start.events):
        if event.mark.id == "capturing" and (match := re.search(r"0/(\d+)", event.text)):
            return count(match[1])
    return None
