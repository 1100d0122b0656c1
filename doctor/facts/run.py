"""What a run of the doctor's own showed: starts of an engine, load on a server, answers compared.

These facts are given by `infer_doctor.runs`; no probe makes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.registry import given

Ended = Literal["", "exited", "stopped", "wall", "idle", "memory", "flood", "refused"]
"""How a start ended: by itself, by us when it had shown enough, or by the watchdog."""

WATCHDOG = frozenset(["wall", "idle", "memory", "flood"])


@frozen
class Start:
    """One start of an engine.

    `label` is what was changed against the launch ("as asked", "--max-model-len 4096"), `why` the
    reason for this start. `ready` is True when the server answered. `signal` is what ended the
    engine's first process. `left` are processes that did not die.
    """

    label: str
    why: str
    command: tuple[str, ...]
    ready: bool
    ended: Ended
    seconds: float
    status: int | None = None
    signal: int | None = None
    peak_bytes: int = 0
    limit: str = ""
    """What the watchdog's limit was, with its unit."""
    gpu_peak: Mapping[str, int] = field(default_factory=dict)
    """Bytes taken on each GPU by index at most, above what was taken before."""
    left: tuple[int, ...] = ()
    log: str = ""
    tail: str = ""
    """The last line of the log."""
    category: str | None = None
    """Of the cause that the log names."""
    cause: str | None = None
    stage: str = ""

    @property
    def ending(self) -> str:
        """How one that did not come up ended; the last line of its log is no cause of it."""
        if self.ended == "refused":
            return f"could not be started: {self.tail}"
        if self.ended in WATCHDOG:
            at = f", while {self.stage}" if self.stage else ""
            return f"was ended by the watchdog after {self.seconds:.0f} s{at} ({self.limit})"
        if self.signal is not None:
            return f"was killed by signal {self.signal} after {self.seconds:.0f} s"
        if self.status is not None:
            return f"ended with exit code {self.status} after {self.seconds:.0f} s"
        return f"ended after {self.seconds:.0f} s, and its guard with it"

    @property
    def why_not(self) -> str:
        """Why it did not come up, in one line: the cause that the log names, and where we ended it, that too."""
        if self.cause is None:
            last = (
                f"; its log ends with: {self.tail}" if self.tail and self.ended != "refused" else ""
            )
            return f"it {self.ending}{last}"
        return f"{self.cause}; it {self.ending}" if self.ended in WATCHDOG else self.cause


@given("no run was made")
@frozen
class Starts:
    """The starts of a run in order; `asked` is the launch without a change."""

    question: str
    rows: tuple[Start, ...]
    gaps: tuple[str, ...] = ()

    @property
    def asked(self) -> Start:
        """The first one: the launch as it was given."""
        return self.rows[0]


@given("no run was made")
@frozen
class Boundary:
    """The largest value of an option with which the launch starts.

    `works` started, `fails` did not; either is None when none was seen. `plan` is what the memory
    plan said beforehand and `engine` what the failed start itself printed.
    """

    option: str
    asked: float | None
    works: float | None
    fails: float | None
    starts: int
    within: float | None
    """The distance of the two, as a share of the larger; None when one is not known."""
    plan: float | None = None
    engine: float | None = None
    category: str | None = None
    stage: str = ""
    smallest: bool = False
    """True: a larger value is what helps (tensor-parallel-size)."""
    log: str = ""
    why_ended: str = ""


@frozen
class Timed:
    """One start of `cold-start`: to ready, and its phases."""

    label: str
    caches: Literal["empty", "filled"]
    eager: bool
    seconds: float | None
    """None when it did not become ready."""
    phases: Mapping[str, float] = field(default_factory=dict)
    log: str = ""


@given("no run was made")
@frozen
class ColdWarm:
    """Cold and warm starts of one launch. `limit_s` is what a start may take, None for no limit."""

    rows: tuple[Timed, ...]
    limit_s: float | None
    gaps: tuple[str, ...] = ()


@frozen
class Step:
    """One step of a load ramp: so many requests at once. Times in seconds."""

    concurrency: int
    requests: int
    failed: int
    late: int
    """Answers that passed the client's limit."""
    ttft_median: float | None
    ttft_worst: float | None
    total_median: float | None
    total_worst: float | None
    ttft_mean: float | None = None
    queue_mean: float | None = None
    """By the server's own sum over count."""
    server_first: float | None = None
    """Mean time to the first token, by the server's own sum over count."""
    waiting_most: float | None = None
    running_most: float | None = None
    preemptions: float | None = None
    kv_most: float | None = None
    tokens_per_s: float | None = None
    loop_lag: float | None = None
    """The longest answer of /health meanwhile: how late the server's event loop is."""
    own_lag: float | None = None
    """How late the doctor's own event loop was at most: no time is known better than that."""
    steps_made: float | None = None
    """Iterations of the engine; 0 with requests running is a stalled one."""
    said: str = ""
    """What the first request that failed was told."""
    tokens_mean: float | None = None
    """Tokens of an answer."""
    unended: int = 0
    """Of the late ones those that were given up: how long they take is not known."""


@given("no run was made")
@frozen
class Ramp:
    """A load ramp against a client's limit."""

    url: str
    limit_s: float
    first_token_s: float | None
    tokens: int
    steps: tuple[Step, ...]
    safe: int | None
    """The highest concurrency without a late answer; None when one request alone is late."""
    broken: Step | None
    """The first step with late answers."""
    cause: Literal["", "queueing", "preemption", "stalled", "blocked-loop", "slow", "failed"]
    max_num_seqs: int | None = None
    died: str = ""
    """How the engine, which the doctor started, ended under the load."""
    source: str = "load ramp"
    gaps: tuple[str, ...] = ()


@frozen
class Bounds:
    """A mean with its bootstrap bounds (95 %)."""

    value: float
    low: float
    high: float


@given("no answers were compared")
@frozen
class Quality:
    """Two sets of answers to the same prompts, compared prompt by prompt."""

    baseline: str
    candidate: str
    prompts: int
    compared: int
    verdict: Literal["degraded", "same", "cannot-tell"]
    reasons: tuple[str, ...]
    """Each measure that is beyond its bound, with numbers."""
    agreement: Bounds | None = None
    first_difference: float | None = None
    divergence: Bounds | None = None
    noise: Bounds | None = None
    perplexity: Bounds | None = None
    empty: tuple[int, int] = (0, 0)
    loops: tuple[int, int] = (0, 0)
    marks: tuple[int, int] = (0, 0)
    language: tuple[int, int] = (0, 0)
    format: tuple[int, int] = (0, 0)
    sampled: tuple[int, int] = (0, 0)
    """Answers with a token that was not the most likely one."""
    distinct: tuple[float, float] = (0.0, 0.0)
    cause: str = ""
    """What of the candidate's launch takes its answers away, where the doctor could start it."""
    cure: str = ""
    """How to start it instead: "without --dtype float16"."""
    tried: tuple[str, ...] = ()
    worst: tuple[str, ...] = ()
    """Names of the prompts that differ most."""
    models: tuple[str, str] = ("", "")
    refused: int = 0
    """Prompts that both refused."""
    gaps: tuple[str, ...] = ()
