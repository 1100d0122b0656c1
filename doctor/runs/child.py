"""The doctor's end of a guarded engine (`guard.py`): starts it, reads its events, ends it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.runs.words import NoRun

WALL_S = 1800.0
"""From the start to ready: vLLM itself gives up after 600 s (VLLM_ENGINE_READY_TIMEOUT_S), a large
checkpoint on a network file system takes longer, with that variable raised."""

IDLE_S = 600.0
"""Without a new line of the log: the longest silence of a start that went on was a compilation."""

HOST_SHARE = 0.95
"""Of the memory that is available: above it the kernel would begin to kill, and not only our run."""

LOG_BYTES = 256 << 20
"""Of an engine's log: those of real starts are below 1 MiB. What writes without end fills the disk."""

ENDING_S = 45.0
"""GRACE_S and DEATH_S of the guard, and time to tell."""

GPU_EVERY_S = 2.0
GPU_ANSWER_S = 10.0
"""nvidia-smi takes a second or two without persistence mode; one that takes longer hangs."""

SUBREAPER = 36


@frozen
class Limits:
    """When the watchdog ends a start; `host_bytes` None: what is available now.

    `scratch` is a folder that goes with the run: where the doctor was killed its guard removes it.
    `kept` is a log that stays when its secrets are masked, and which the guard removes too as it is.
    """

    wall_s: float = WALL_S
    idle_s: float = IDLE_S
    host_bytes: int | None = None
    log_bytes: int = LOG_BYTES
    scratch: str = ""
    kept: bool = False


class Child:
    """An engine that ends with us, however we end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        log: str,
        limits: Limits,
    ) -> None:
        self.limits = limits
        self.host_bytes = limits.host_bytes or int(available() * HOST_SHARE)
        self.pids: tuple[int, ...] = ()
        self.ended: dict[str, Any] | None = None
        self.refused = ""
        self._buffer = b""
        # what the guard leaves when it is killed comes to us, and not to PID 1
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        self.gpus = GpuWatch()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _source()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        asked = {
            "command": list(command),
            "environment": dict(environment),
            "folder": folder,
            "log": log,
            "wall_s": limits.wall_s,
            "idle_s": limits.idle_s,
            "host_bytes": self.host_bytes,
            "log_bytes": limits.log_bytes,
            "scratch": limits.scratch,
            "kept": limits.kept,
        }
        self._say(json.dumps(asked))

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def alive(self, wait_s: float = 0.0) -> bool:
        """Read what the guard has told; False when it has ended."""
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        until = time.monotonic() + wait_s
        while self.ended is None:
            ready, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return True
            data = os.read(out, 65536)
            if not data:
                if self.ended is None:
                    self.ended = {"why": "refused" if self.refused else "died", "left": []}
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        return False

    def ready(self) -> None:
        """It serves: silence and age are no faults any more."""
        self._say("ready")

    def end(self) -> dict[str, Any]:
        """End it, and how it ended."""
        if self.ended is None:
            self._say("stop")
            self.alive(ENDING_S)
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on with what hangs
            self.process.wait(ENDING_S)
        self._adopted()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.gpus.stop()
        return self.ended or {"why": "stopped", "left": list(self.pids)}

    def _adopted(self) -> None:
        """What a killed guard left came to us: end it as the guard would."""
        if self.ended is None or self.ended["why"] != "died":
            return
        from infer_doctor.runs.guard import below

        for _ in range(200):
            left = [pid for pid in below(os.getpid()) if pid in self.pids]
            for pid in left:
                try:
                    os.kill(pid, 9)
                    os.waitpid(pid, os.WNOHANG)
                except OSError:
                    continue
            if not left:
                return
            time.sleep(0.05)

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "sample":
            self.pids = tuple(event["pids"])
        elif event["event"] == "ended":
            self.ended = event
        elif event["event"] == "refused":
            self.refused = event["reason"]


class GpuWatch:
    """Bytes taken of each GPU while a run lasts, above what was taken before it.

    By GPU and not by PID: in a container the driver's PIDs are those of the host. nvidia-smi is asked
    in a process that is given up when it hangs.
    """

    def __init__(self) -> None:
        self.before = gpu_used()
        self.peak: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self.before:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(GPU_EVERY_S):
            for index, used in gpu_used().items():
                taken = used - self.before.get(index, 0)
                self.peak[str(index)] = max(self.peak.get(str(index), 0), taken)

    def stop(self) -> None:
        """No more questions."""
        self._stop.set()


def gpu_used() -> dict[int, int]:
    """Bytes in use by GPU; empty without nvidia-smi."""
    from shutil import which

    program = which("nvidia-smi")
    if program is None:
        return {}
    command = [program, "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    try:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return {}
    try:
        said, _ = child.communicate(timeout=GPU_ANSWER_S)
    except subprocess.TimeoutExpired:
        # not subprocess.run: it waits for what it has killed, and what hangs in the driver does not die
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
        if child.stdout is not None:
            child.stdout.close()
        return {}
    found = {}
    for line in said.splitlines():
        index, _, used = line.partition(",")
        if index.strip().isdigit() and used.strip().isdigit():
            found[int(index)] = int(used) << 20
    return found


def available() -> int:
    """Bytes that a new process could take: the machine's, and the limit of our control group."""
    try:
        import psutil
    except ModuleNotFoundError:  # the single-file build brings nothing compiled
        raise NoRun("psutil is not here: `pip install infer-doctor` brings it") from None
    found = int(psutil.virtual_memory().available)
    for most, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        try:
            with open(most, encoding="ascii") as limit, open(used, encoding="ascii") as now:
                found = min(found, max(0, int(limit.read()) - int(now.read())))
        except (OSError, ValueError):  # not in a group, or "max"
            continue
    return found


def _source() -> str:
    """The guard's text: it must also start from the single-file build."""
    spec = find_spec("infer_doctor.runs.guard")
    assert spec is not None and spec.loader is not None
    text: str | None = spec.loader.get_source(spec.name)  # type: ignore[attr-defined]
    assert text is not None
    return text
