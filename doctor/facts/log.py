"""What a log of an engine tells: the failure that ended it, how it started, how it served.

These facts are given by `logs.read`; no probe makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from infer_doctor.frozen import frozen
from infer_doctor.model import Category, Confidence, Evidence, Fix
from infer_doctor.registry import given


@frozen
class Cause:
    """One candidate: what the log says, in which stage of which process, and what follows."""

    signature: str
    category: Category
    confidence: Confidence
    effect: str
    stage: str
    process: str
    message: str
    evidence: tuple[Evidence, ...]
    fixes: tuple[Fix, ...] = ()
    confirm: str = ""
    wrong: str = ""
    """What it is not."""
    count: int = 1
    numbers: Mapping[str, str] = field(default_factory=dict)
    """The values that the line holds, for facts of the machine that are given beside the log."""


@given("no log was given")
@frozen
class EngineLog:
    """The end of a log, judged by its last start.

    `state`: "ready" (started, and nothing ended it), "failed", "incomplete" (the log ends before
    the start does), "quiet" (no start and no failure in it). `unexplained` is the one thing to send
    when a failure shows and its cause does not.
    """

    source: str
    lines: int
    engine: str | None
    version: str | None
    starts: int
    state: str
    stage: str
    cause: Cause | None = None
    others: tuple[Cause, ...] = ()
    earlier: tuple[Cause, ...] = ()
    warnings: tuple[Cause, ...] = ()
    requests: tuple[Cause, ...] = ()
    unexplained: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()


@frozen
class Phase:
    """A part of a start; `printed` when the engine itself gave the duration."""

    name: str
    seconds: float
    printed: bool
    evidence: Evidence


@given("no log was given")
@frozen
class ColdStart:
    """Where the time of the last start that became ready went."""

    phases: tuple[Phase, ...]
    seconds: float
    unattributed: float
    weights_gib: float | None = None
    weights_per_second: float | None = None
    """GB/s of the weights' loading."""
    filesystem: str | None = None
    weight_format: str | None = None
    compiled: bool = False
    """torch.compile worked and did not find its cache."""
    cache: str | None = None
    graph_sizes: int | None = None
    complete: bool = True
    """Whether the log holds the start up to ready."""
    ready: Evidence
    gaps: tuple[str, ...] = ()


@frozen
class Sample:
    """One line of the engine's statistics."""

    time: float | None
    line: int
    prompt: float
    generation: float
    running: int
    waiting: int
    kv: float


@frozen
class AbortBurst:
    """Requests that clients gave up, by how long they had waited; None where that is not logged."""

    count: int
    seconds: int | None
    evidence: Evidence


@given("no log was given")
@frozen
class Serving:
    """What the statistics and access lines say of the time after the last start."""

    source: str
    samples: int
    queue_from: Sample | None = None
    queue_to: Sample | None = None
    kv_full: Sample | None = None
    kv_full_samples: int = 0
    preemptions: int = 0
    stalled: Sample | None = None
    stalled_samples: int = 0
    stalled_s: float | None = None
    stalled_at_end: bool = False
    aborts: AbortBurst | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    """HTTP status -> how many answers."""
    refused_lines: Mapping[str, Evidence] = field(default_factory=dict)
    served: int = 0
    gaps: tuple[str, ...] = ()
