"""The live host: asks this machine through children that may hang, die or be abandoned.

Each kind of question has a lane, a child process that answers one after the other; NVML and the
reading of distributions have their own, so that they run beside the rest. A child that does not
answer in time is killed and never waited for: in the D state not even SIGKILL ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from infer_doctor import hands
from infer_doctor.dead import DeadPlaces, mount_of, mounts
from infer_doctor.host import Capture, Host, Unavailable, key_of

SOFT_LIMIT_S = 3.0
"""What one question may take: NVML without persistence mode needs 1 to 3 s a machine, a mount that
needs longer to answer `stat` is no place for a model."""

SLOW_LIMIT_S = {"distributions": 10.0, "find": 10.0, "gguf": 10.0, "model_files": 10.0}
"""Questions that read many megabytes from what may be a network file system."""

LEAST_LIMIT_S = 0.5
"""What a question may take after many that were not answered: a healthy one takes some 30 ms even
with the start of a new child."""

LANES = {
    "cuda": "cuda",
    "nvml": "nvml",
    "distributions": "python",
    "run": "run",
    "find": "find",
    "gguf": "python",
    "hub": "hub",
    "model_files": "python",
    "libraries": "python",
    "library_marks": "python",
    "loader_cache": "python",
    "owned_libraries": "python",
    "vllm_arguments": "vllm",
    "vllm_digest": "vllm",
}

FOLLOWS: dict[str, tuple[str, dict[str, Any]]] = {"nvml": ("cuda", {"without": []})}
"""What is begun as soon as another answer is there: cuInit beside NVML takes three times as long."""

CHILD_SHARE = 0.9
"""What a child gets of that time, so that it can still say itself what hangs."""

RESERVE_S = 1.0
"""Kept of the whole time limit for starting the doctor, ending its children and the report: 0.5 s
on a healthy machine."""

DEATH_S = 0.1
"""How long a killed child is waited for; one that hangs in the kernel may never die."""

TICK_S = 0.08

_groups: set[int] = set()
"""Process groups of the children that were not closed yet."""

_abandoned: list[subprocess.Popen[bytes]] = []
"""Children that did not die in time: kept, so that nothing waits for them."""


class LiveHost(Host):
    """This machine. `timeout_s` bounds all questions together; `on_wait` is called while waiting."""

    def __init__(self, timeout_s: float = 20.0, on_wait: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.timeout_s = timeout_s
        self._on_wait = on_wait
        self._end = time.monotonic() + timeout_s - min(RESERVE_S, timeout_s / 2)
        self._lanes: dict[str, _Lane] = {}
        self._silences: dict[str, int] = {}
        self._begun: dict[str, _Question] = {}
        """By lane: a question that was sent before its answer is needed."""
        self._dead = DeadPlaces()
        self.cannot_start: str | None = None
        """Why no child could be started, if one could not."""

    def __enter__(self) -> LiveHost:
        """Start the children, and with NVML what may take seconds, while the checks are loaded."""
        self.begin("nvml")
        for operation in ("identity", "distributions"):
            with contextlib.suppress(OSError):  # no process to be had: a question will say so
                self._lane(operation)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, operation: str, **arguments: Any) -> None:
        """Send a question whose answer is needed later; its lane works on it meanwhile."""
        name = _lane_of(operation)
        question = _Question(operation, arguments, time.monotonic())
        if name in self._begun or question.key in self.captures:
            return
        with contextlib.suppress(OSError):
            self._lane(operation).send(operation, arguments, self._limit(operation))
            self._begun[name] = question

    def close(self) -> None:
        """End the children; one that does not end within a moment is left alone."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _lane(self, operation: str) -> _Lane:
        name = _lane_of(operation)
        lane = self._lanes.get(name)
        if lane is None or lane.ended:
            lane = self._lanes[name] = _Lane(_nvml_folder() if name == "nvml" else None)
        return lane

    def _limit(self, operation: str) -> float:
        """Halved by every silence of its lane, so that many dead places do not use up the time."""
        share = min(1.0, self.timeout_s / 20.0 * 2)
        limit = SLOW_LIMIT_S.get(operation, SOFT_LIMIT_S)
        halved: float = limit / 2 ** self._silences.get(_lane_of(operation), 0)
        return max(halved, LEAST_LIMIT_S) * share

    def _fetch(self, operation: str, arguments: dict[str, Any], limit_s: float | None) -> Capture:
        self._take_answers()
        asked = _Question(operation, arguments, time.monotonic())
        if (known := self.captures.get(asked.key)) is not None:
            return known
        begun = self._begun.pop(_lane_of(operation), None)
        if begun is not None and begun.key == asked.key:
            return self._capture(begun, limit_s, sent=True)
        if begun is not None:  # a lane answers in order
            self.captures[begun.key] = self._capture(begun, None, sent=True)
        return self._capture(asked, limit_s, sent=False)

    def _take_answers(self) -> None:
        """Take what lanes have answered by now, and begin what waited for it."""
        for name, question in list(self._begun.items()):
            if not self._lanes[name].answered():
                continue
            del self._begun[name]
            capture = self.captures[question.key] = self._capture(question, None, sent=True)
            if question.operation in FOLLOWS and "gpus" in (capture.value or {}):
                operation, arguments = FOLLOWS[question.operation]
                self.begin(operation, **arguments)

    def _capture(self, question: _Question, limit_s: float | None, *, sent: bool) -> Capture:
        deadline = min(self._end, question.began + (limit_s or self._limit(question.operation)))
        reply = self._reply(question, deadline, sent=sent)
        return Capture(
            operation=question.operation,
            arguments=question.arguments,
            version=hands.VERSIONS[question.operation],
            value=reply.get("value"),
            error=reply.get("error"),
            duration_ms=round((time.monotonic() - question.began) * 1000, 3),
        )

    def _reply(self, question: _Question, deadline: float, *, sent: bool) -> dict[str, Any]:
        path = str(question.arguments.get("path", ""))
        if reason := self._dead.reason(path):
            return _error("timeout", reason)
        if time.monotonic() >= self._end:
            return _error("timeout", f"the time limit of {self.timeout_s:g} s was reached before")
        limit_s = deadline - question.began
        try:
            lane = self._lane(question.operation)
        except OSError as error:
            self.cannot_start = str(error.strerror)
            return _error("failed", f"no process could be started to ask: {error.strerror}")
        if not sent:
            lane.send(question.operation, question.arguments, limit_s)
        try:
            return lane.receive(deadline, self._on_wait)
        except _Silent:
            lane.close()
            self._remember_silence(question.operation, path)
            return _error("timeout", f"no answer within {limit_s:.1f} s")
        except _Died:
            return _error("died", f"the process that asked died ({lane.close()})")

    def _remember_silence(self, operation: str, path: str) -> None:
        lane = _lane_of(operation)
        self._silences[lane] = self._silences.get(lane, 0) + 1
        if path:
            self._dead.add(path)


@dataclass(frozen=True)
class _Question:
    """What was asked, and when."""

    operation: str
    arguments: dict[str, Any]
    began: float

    @property
    def key(self) -> str:
        return key_of(self.operation, self.arguments)


def _lane_of(operation: str) -> str:
    return LANES.get(operation, "rest")


def kill_children() -> None:
    """For the handler of Ctrl-C: end what was started, wait for nothing."""
    for group in tuple(_groups):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def require_answer(path: str) -> None:
    """Raise Unavailable when a path on a mount with a server does not answer a child of ours.

    What the user names is read and written by the doctor itself, which must not hang with it. A
    local path costs nothing.
    """
    place = os.path.abspath(path)
    if mount_of(place, mounts()) is None:
        return
    host = LiveHost()
    try:
        host.stat(place)
    except Unavailable as error:
        if error.code == "timeout":
            raise
    finally:
        host.close()


def _nvml_folder() -> str | None:
    """The folder that the child has to add to its path to import pynvml (nvidia-ml-py)."""
    spec = find_spec("pynvml")
    if spec is None or spec.origin is None:
        return None
    folder = os.path.dirname(spec.origin)
    # pynvml.py stands in its folder; the deprecated distribution has a package pynvml/__init__.py
    return os.path.dirname(folder) if spec.submodule_search_locations else folder


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


class _Silent(Exception):
    """No answer in time."""


class _Died(Exception):
    """The child ended before it answered."""


class _Lane:
    """One child and its pipes."""

    def __init__(self, extra_path: str | None) -> None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(hands.__file__)))
        extra = f"sys.path.append({extra_path!r}); " if extra_path else ""
        code = (
            f"import sys; sys.path.append({package!r}); {extra}from hands.loop import main; main()"
        )
        no_cache = ["-B"] if sys.dont_write_bytecode else []  # -I ignores the variable
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", *no_cache, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a group to kill as a whole; Ctrl-C is for the parent
        )
        _groups.add(self._child.pid)
        self._buffer = b""
        self.ended = False

    def send(self, operation: str, arguments: dict[str, Any], limit_s: float) -> None:
        assert self._child.stdin is not None
        question = {
            "operation": operation,
            "arguments": arguments,
            "limit_s": limit_s * CHILD_SHARE,
        }
        try:
            self._child.stdin.write(json.dumps(question).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # it died: receive() says so

    def answered(self) -> bool:
        """Whether there is something to read, an answer or the end."""
        assert self._child.stdout is not None
        return b"\n" in self._buffer or bool(
            select.select([self._child.stdout.fileno()], [], [], 0)[0]
        )

    def receive(self, deadline: float, on_wait: Callable[[], None] | None) -> dict[str, Any]:
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0.0, min(left, TICK_S)))
            if not ready:  # an answer that lies there is taken, however late it is asked for
                if left <= 0:
                    raise _Silent
                if on_wait is not None:
                    on_wait()
                continue
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise _Died
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> str:
        """Kill the child and what it started; says how it ended.

        It only reads, so there is nothing to finish, and a kill is faster than an orderly end. One
        that does not die (state D) is left alone and never waited for.
        """
        self.ended = True
        _groups.discard(self._child.pid)
        if self._child.returncode is None:  # else its number may be another's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            status = self._child.wait(timeout=DEATH_S)
        except subprocess.TimeoutExpired:
            _abandoned.append(self._child)
            return "it cannot be killed"
        return f"signal {-status}" if status < 0 else f"exit status {status}"
