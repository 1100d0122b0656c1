"""Examine in a process of its own, then become the command: same PID, signals, environment, files.

The doctor's children must not become the engine's: one that hangs in the kernel cannot be killed, and
after `exec` it would be a child that the engine never started. So all work is done in a fork. When
that ends, what it could not kill belongs to the first process of the container or machine. Only if
that is this very process is it still ours; it is taken then if it dies in time.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

SKIP_VARIABLE = "INFER_DOCTOR_SKIP"

OFF = ("", "0", "false", "no", "off")

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Signals that end the examination at once. As the first process of a container this one would else
not even notice SIGTERM: the kernel drops what process 1 has no handler for (signal(7))."""

CHANGED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""What the interpreter ignores from its start on (Python/pylifecycle.c); `exec` would hand it on."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of shells and container run-times for a command that cannot be started."""

REAP_S = 0.2
"""How long the end of killed children is waited for; one in the D state may never end."""


@dataclass(frozen=True)
class Decision:
    """What the examination says: 0 starts the command, another code ends with it.

    `fault` says why there is none: then the command is started, for a fault of the doctor must not
    keep an engine from its work.
    """

    code: int
    fault: str | None = None


def skipped() -> bool:
    """Whether the environment says to start at once, whatever else is set."""
    return os.environ.get(SKIP_VARIABLE, "").strip().lower() not in OFF


def decide(examine: Callable[[], int], limit_s: float) -> Decision:
    """Run `examine` in a fork, for at most `limit_s`; its result is the exit code."""
    before = _children()
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _examine(examine, writer)
    os.close(writer)
    _end_with(child)
    answer = _read(reader, time.monotonic() + limit_s)
    if answer is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        _reap(child, before)
        return Decision(0, f"no decision within {limit_s:g} s")
    _reap(child, before)
    return answer


def _examine(examine: Callable[[], int], writer: int) -> NoReturn:
    """The child: it only ever ends here."""
    from infer_doctor.engine import crash_line
    from infer_doctor.live import kill_children

    def end(number: int, _: object) -> None:
        kill_children()
        os._exit(128 + number)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    answer: dict[str, object]
    try:
        answer = {"code": examine()}
    except Exception as error:
        answer = {"code": 0, "fault": crash_line(error)}
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os.write(writer, json.dumps(answer).encode())
    os._exit(0)


def _end_with(child: int) -> None:
    """Signals that would end this process end the examination too."""

    def end(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)
        os._exit(128 + number)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def _read(reader: int, deadline: float) -> Decision | None:
    """The answer; None when it did not come in time."""
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            break
        data += part
    os.close(reader)
    return Decision(**json.loads(data)) if data else Decision(0, "the examination died")


def _children() -> set[int]:
    """The children of this process, also those that came to it when their parent ended."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return {int(word) for word in file.read().split()}
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return set()


def _reap(child: int, before: set[int]) -> None:
    """Take the status of the examination and of what it left to us, as far as that ends in time.

    Children of before are the command's: whoever started them replaced itself by the doctor.
    """
    end = time.monotonic() + REAP_S
    while True:
        waiting = {child, *_children()} - before
        for pid in tuple(waiting):
            try:
                done, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # taken already, or SIGCHLD is ignored
                done = pid
            if done:
                waiting.remove(pid)
        if not waiting or time.monotonic() > end:
            return
        time.sleep(0.002)


def become(command: Sequence[str]) -> int:
    """Replace this process by the command; returns the exit code when that cannot be done."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    for number in CHANGED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), _environment())  # noqa: S606 - no shell on purpose
    except ValueError:  # an empty name
        say(f"{command[0]!r}: cannot be started: is no name of a program")
        return NOT_FOUND
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ENOENT and "/" not in command[0]:
            reason = "no folder of PATH has it"
        elif error.errno == errno.ENOENT and os.path.exists(command[0]):
            reason = "the interpreter in its first line is not there"
        say(f"{command[0]}: cannot be started: {reason}")
        return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE


def _environment() -> dict[bytes, bytes]:
    """What this process was started with: Python adds LC_CTYPE where there is no locale (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    pairs = (entry.partition(b"=") for entry in entries if b"=" in entry[1:])
    return {name: value for name, _, value in pairs}


def say(text: str) -> None:
    """A line on standard error, where `kubectl logs` shows it; nobody may be there to read it."""
    from infer_doctor.render.plain import plain

    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(
            "".join(f"{plain(line)}\n" for line in f"infer-doctor: {text}".split("\n"))
        )
        sys.stderr.flush()
