"""The live host: asks this machine through children that may hang, die or be abandoned.

Each kind of question has a lane, a child process that answers one after the other; NVML and the
reading of distributions have their own, so that they run beside the rest. A child that does not
answer in time is killed and never waited for: in the D state not even SIGKILL ends it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from infer_doctor import hands
from infer_doctor.host import Capture, Host

SOFT_LIMIT_S = 3.0
"""What one question may take: NVML without persistence mode needs 1 to 3 s a machine, a mount that
needs longer to answer `stat` is no place for a model."""

SLOW_LIMIT_S = {"distributions": 10.0, "find": 10.0}
"""Questions that read many megabytes from what may be a network file system."""

LANES = {"nvml": "nvml", "distributions": "python", "run": "run", "find": "find"}

TICK_S = 0.08

_abandoned: list[subprocess.Popen[bytes]] = []
"""Children that did not die in time: kept, so that nothing waits for them."""


class LiveHost(Host):
    """This machine. `timeout_s` bounds all questions together; `on_wait` is called while waiting."""

    def __init__(self, timeout_s: float = 20.0, on_wait: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.timeout_s = timeout_s
        self._on_wait = on_wait
        self._started = time.monotonic()
        self._lanes: dict[str, _Lane] = {}
        self._asked_early: dict[str, float] = {}
        self._dead_mounts: list[str] = []

    def prefetch(self) -> None:
        """Start the reading of NVML, which may take seconds."""
        self._lane("nvml").send("nvml", {}, self._limit("nvml"))
        self._asked_early["nvml"] = time.monotonic()

    def close(self) -> None:
        """End the children; one that does not end within a moment is left alone."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _lane(self, operation: str) -> _Lane:
        name = LANES.get(operation, "rest")
        lane = self._lanes.get(name)
        if lane is None or lane.ended:
            lane = self._lanes[name] = _Lane(_nvml_folder() if name == "nvml" else None)
        return lane

    def _limit(self, operation: str) -> float:
        share = min(1.0, self.timeout_s / 20.0 * 2)
        return SLOW_LIMIT_S.get(operation, SOFT_LIMIT_S) * share

    def _fetch(self, operation: str, arguments: dict[str, Any], limit_s: float | None) -> Capture:
        began = self._asked_early.pop(operation, None)
        early = began is not None
        began = began if began is not None else time.monotonic()
        end = self._started + self.timeout_s
        deadline = min(end, began + (limit_s or self._limit(operation)))
        path = str(arguments.get("path", ""))
        reply: dict[str, Any]
        if self._on_dead_mount(path):
            reply = _error("timeout", "its mount does not answer")
        elif time.monotonic() >= end:
            reply = _error("timeout", f"the time limit of {self.timeout_s:g} s was reached before")
        else:
            lane = self._lane(operation)
            if not early:
                lane.send(operation, arguments, deadline - began)
            try:
                reply = lane.receive(deadline, self._on_wait)
            except _Silent:
                lane.close()
                self._remember_mount(path)
                reply = _error("timeout", f"no answer within {deadline - began:.1f} s")
            except _Died as death:
                lane.close()
                reply = _error("died", f"the process that asked died ({death})")
        return Capture(
            operation=operation,
            arguments=arguments,
            version=hands.VERSIONS[operation],
            value=reply.get("value"),
            error=reply.get("error"),
            duration_ms=round((time.monotonic() - began) * 1000, 3),
        )

    def _on_dead_mount(self, path: str) -> bool:
        return any(path == dead or path.startswith(f"{dead}/") for dead in self._dead_mounts)

    def _remember_mount(self, path: str) -> None:
        """Ask nothing more below a mount that hangs (below the path itself on the root mount)."""
        if not path.startswith("/"):
            return
        try:
            with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
                points = [line.split(" ")[1] for line in table if " " in line]
        except OSError:
            points = []
        holders = [point for point in points if path == point or path.startswith(f"{point}/")]
        self._dead_mounts.append(max(holders, key=len, default=path))


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
            f"import sys; sys.path.insert(0, {package!r}); {extra}"
            "from hands.loop import main; main()"
        )
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which then closes the lanes
        )
        self._buffer = b""
        self.ended = False

    def send(self, operation: str, arguments: dict[str, Any], limit_s: float) -> None:
        assert self._child.stdin is not None
        question = {
            "operation": operation,
            "arguments": arguments,
            "limit_s": math.ceil(limit_s),
        }
        try:
            self._child.stdin.write(json.dumps(question).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # it died: receive() says so

    def receive(self, deadline: float, on_wait: Callable[[], None] | None) -> dict[str, Any]:
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _Silent
            ready, _, _ = select.select([descriptor], [], [], min(left, TICK_S))
            if not ready:
                if on_wait is not None:
                    on_wait()
                continue
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise _Died(self._death())
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _death(self) -> str:
        try:
            status = self._child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        return f"signal {-status}" if status < 0 else f"exit status {status}"

    def close(self) -> None:
        """Kill the child; one that does not die (state D) is left alone and never waited for.

        It only reads, so there is nothing to finish, and a kill is faster than an orderly end.
        """
        self.ended = True
        self._child.kill()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._child.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            _abandoned.append(self._child)
