"""One start of an engine: until it answers, ends, or the watchdog ends it."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infer_doctor.facts.log import ColdStart, EngineLog
from infer_doctor.facts.run import WATCHDOG, Start
from infer_doctor.frozen import frozen
from infer_doctor.redact import mask_line, without_secrets
from infer_doctor.runs import owner
from infer_doctor.runs.child import Child, Limits, available
from infer_doctor.runs.masking import masked_after
from infer_doctor.runs.words import (
    AS_ASKED,
    KEYS,
    LISTENING,
    Change,
    NoRun,
    free_port,
    with_options,
    without,
)
from infer_doctor.units import gib

ASK_EVERY_S = 0.25
ANSWER_S = 5.0
TAIL_BYTES = 1 << 16
ROOM = 1 << 20
"""Bytes below which a file system is full for a log."""

TELLING_LINES = 40
"""A cleanup that is cut off prints some lines after the exception."""

NUMBER = re.compile(r"\d+(?=-)")
ERROR = re.compile(r"(\([^)]*\) )?[\w.]*(Error|Exception|Killed|fault)\b")
QUIET = {"VLLM_NO_USAGE_STATS": "1", "TRTLLM_NO_USAGE_STATS": "1"}
"""A run on purpose is no usage."""

ENDS = ("exited", "wall", "idle", "memory", "flood", "refused")

DYING_S = 3.0
"""From the first request that fails to the end of the process: vLLM's API server goes in a second or two
when its engine is dead."""

LOOKS = 3
"""Before a server is called another's: sockets pass from one process of an engine to the next."""

TAKEN = "port {port}, which was free for the engine, was taken by another process meanwhile"

READY_MARK = "infer-doctor: the engine answered"
"""What the adapter of TensorRT-LLM's LLM() prints (`trtllm.py`)."""


@frozen
class Plan:
    """What is started again and again: words, variables, folder, where logs go."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str
    logs: str
    limits: Limits = Limits()
    serves: bool = True
    engine: str = "vllm"


@frozen
class Seen:
    """A start, and what its log tells."""

    start: Start
    log: EngineLog | None = None
    cold: ColdStart | None = None


Progress = Callable[[str, float], None]
"""What is done now, and for how long."""


class Running:
    """An engine that answered; asked until the block ends."""

    def __init__(self, child: Child, url: str) -> None:
        self.child = child
        self.url = url
        self._since = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since it answered first."""
        return time.monotonic() - self._since


@contextlib.contextmanager
def running(
    plan: Plan, change: Change = AS_ASKED, why: str = "", progress: Progress | None = None
) -> Iterator[tuple[Seen, Running | None]]:
    """Start it; None for the server when it did not come up. It is ended with the block."""
    port = free_port()
    words = with_options(plan.words, change.options)
    if plan.serves:
        words = with_options(
            without(words, LISTENING), (("host", "127.0.0.1"), ("port", str(port)))
        )
    variables = {**plan.variables, **QUIET, **dict(change.variables)}
    variables = {name: value for name, value in variables.items() if name not in KEYS}
    program = shutil.which(words[0], path=variables.get("PATH"))
    if program is None:
        raise NoRun(f"{words[0]} is not on PATH: give it with its folder")
    log = _log_path(plan.logs, change.label)
    began = time.monotonic()
    masking = masked_after(log) if plan.limits.kept else contextlib.nullcontext()
    with (
        masking,
        Child((program, *words[1:]), variables, plan.folder, log, plan.limits) as child,
    ):
        ready = _until_ready(child, port if plan.serves else None, log, began, change, progress)
        seconds = round(time.monotonic() - began, 2)
        if ready:
            child.ready()
            start = _start(change, why, words, child, seconds, log, ready=True)
            yield judged(start, words), Running(child, f"http://127.0.0.1:{port}")
            return
        child.end()
        start = _start(change, why, words, child, seconds, log, ready=False)
        if plan.serves and not start.left and owner.listens(port):
            raise NoRun(f"{TAKEN.format(port=port)}: start it again")
        yield judged(start, words), None


def start(
    plan: Plan, change: Change = AS_ASKED, why: str = "", progress: Progress | None = None
) -> Seen:
    """Start it, see whether it comes up, end it."""
    with running(plan, change, why, progress) as (seen, server):
        if server is None:
            return seen
        ended = server.child.end()
    peak = ended.get("peak", 0)
    taken = dict(server.child.gpus.peak)
    left = tuple(ended.get("left", ()))
    return replace(
        seen, start=replace(seen.start, peak_bytes=peak, gpu_peak=taken, left=left, ended="stopped")
    )


def ended_under(server: Running, seen: Seen, wait_s: float = DYING_S) -> Start | None:
    """How an engine that answered ended while it was asked; None where it lives."""
    if server.child.alive(wait_s):
        return None
    ended: dict[str, Any] = server.child.ended or {}
    seconds = round(seen.start.seconds + server.age, 2)
    return replace(
        seen.start,
        ready=False,
        ended="exited",
        status=ended.get("status"),
        signal=ended.get("signal"),
        seconds=seconds,
        tail=_last(seen.start.log),
    )


def _until_ready(
    child: Child,
    port: int | None,
    log: str,
    began: float,
    change: Change,
    progress: Progress | None,
) -> bool:
    foreign = 0
    while child.alive(ASK_EVERY_S):
        if progress is not None:
            progress(f"starting {change.label}", time.monotonic() - began)
        if port is not None and _answers(port):
            if owner.is_below(port, child.process.pid) is not False:
                return True
            foreign += 1
            if foreign == LOOKS:
                raise NoRun(f"{TAKEN.format(port=port)}: start it again")
        if port is None and READY_MARK in _tail(log):
            return True
    return port is None and READY_MARK in _tail(log)


def _answers(port: int) -> bool:
    """Whether /health of the server is 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _start(
    change: Change,
    why: str,
    words: tuple[str, ...],
    child: Child,
    seconds: float,
    log: str,
    *,
    ready: bool,
) -> Start:
    ended: dict[str, Any] = child.ended or {}
    reason = str(ended.get("why", ""))
    limits = {
        "wall": f"--wall allows {child.limits.wall_s:.0f} s to ready",
        "idle": f"--idle allows {child.limits.idle_s:.0f} s without a line in the log",
        "memory": f"{gib(child.host_bytes)} of host memory",
        "flood": f"{gib(child.limits.log_bytes)} of log",
    }
    return Start(
        label=change.label,
        why=why,
        command=tuple(without_secrets(words)),
        ready=ready,
        ended=reason if reason in ENDS else "",  # type: ignore[arg-type]
        seconds=seconds,
        status=ended.get("status"),
        signal=ended.get("signal"),
        peak_bytes=ended.get("peak", 0),
        limit=limits.get(reason, ""),
        gpu_peak=dict(child.gpus.peak),
        left=tuple(ended.get("left", ())),
        log=log,
        tail=child.refused or _full(log) or _last(log),
    )


def _last(log: str) -> str:
    lines = [line.strip() for line in _tail(log).splitlines() if line.strip()]
    return mask_line(_telling(lines))[:200]


def _full(log: str) -> str:
    """An engine whose log cannot be written ends, and cannot say why."""
    folder = os.path.dirname(log)
    full = shutil.disk_usage(folder).free < ROOM
    return f"no space is left for the log in {folder}" if full else ""


def judged(start: Start, words: tuple[str, ...]) -> Seen:
    """The start with what `diagnose` reads out of its log."""
    from infer_doctor.logs.choose import STAGES
    from infer_doctor.logs.read import read
    from infer_doctor.logs.source import NotALog, Piece

    try:
        facts = read([Piece(path=start.log, name=os.path.basename(start.log))], words)
    except NotALog:
        return Seen(start=start)
    log, cold = facts.get(EngineLog), facts.get(ColdStart)
    assert isinstance(log, EngineLog)
    cause = log.cause if not start.ready else None
    if cause is not None:
        start = replace(start, category=cause.category, cause=cause.message, stage=cause.stage)
    elif not start.ready:
        # the watchdog's own SIGTERM made it shut down
        stage = "" if log.stage == STAGES["shutdown"] and start.ended in WATCHDOG else log.stage
        start = replace(start, stage=stage)
        if log.state == "incomplete":  # nobody has to send how it ended: we have seen it
            log = replace(log, unexplained=f"its log holds no error; the engine {start.ending}")
    return Seen(start=start, log=log, cold=cold if isinstance(cold, ColdStart) else None)


def _telling(lines: Sequence[str]) -> str:
    """The last line that ends a traceback, else the last one."""
    for line in reversed(lines[-TELLING_LINES:]):
        if ERROR.match(line):
            return line
    return lines[-1] if lines else ""


def _log_path(folder: str, label: str) -> str:
    """A new file, named by what was changed; never one that is there, whose lines would be read as ours."""
    word = "".join(char if char.isalnum() or char in "._-" else "-" for char in label).strip("-")
    taken = [
        int(found[0]) for path in Path(folder).glob("*.log") if (found := NUMBER.match(path.name))
    ]
    return str(Path(folder) / f"{max(taken, default=0) + 1:02d}-{word[:60] or 'start'}.log")


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def room() -> str:
    """What the machine could give now, for the line before a run."""
    return gib(available())
