"""The process between the doctor and an engine: whatever happens to the doctor, it ends the engine.

Standard library only; started with `python -I -S -c SOURCE`. It reads one line of JSON on standard
input and then watches that pipe: its end means that the doctor is gone, also after kill -9. It is
the subreaper of everything below (prctl(2), PR_SET_CHILD_SUBREAPER), so that processes which an
engine puts into sessions of their own come back to it when their parent dies, and are found.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import time
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

TICK_S = 0.25
SAMPLE_S = 1.0
GRACE_S = 5.0
"""From SIGTERM to SIGKILL: vLLM's API server needs 1 to 2 s to end its cores and free their
shared memory."""

DEATH_S = 20.0
"""How long a killed process is waited for before it is told as left: in the D state none dies."""

ORPHAN_GRACE_S = 1.0
"""The same after the doctor is gone: nobody waits for an orderly end."""

ORPHAN_S = 600.0
"""How long the guard goes on killing after the doctor is gone."""

PAGE = os.sysconf("SC_PAGE_SIZE")


def prctl(option: int, value: int) -> None:
    """prctl(2); what an old kernel refuses is left out."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def parents() -> dict[int, tuple[int, str]]:
    """Parent and state of every process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            found[int(name)] = (int(fields[1]), fields[0].decode())
    return found


def below(root: int) -> list[int]:
    """The living descendants of a process, in any session."""
    table = parents()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            waiting.append(pid)
            if table[pid][1] not in "ZX":
                found.append(pid)
    return found


def held(pids: list[int]) -> int:
    """Bytes of memory that these processes took: their own, and shared memory once."""
    own = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                rows = dict(line.split(":", 1) for line in file if line.startswith("Rss"))
        except (OSError, ValueError):
            continue
        own += int(rows.get("RssAnon", "0").split()[0]) * 1024
        shared = max(shared, int(rows.get("RssShmem", "0").split()[0]) * 1024)
    return own + shared


class Guard:
    """One engine and its limits."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.began = time.monotonic()
        self.peak = 0
        self.status: int | None = None
        self.idle_s: float = asked["idle_s"]
        self.wall_s: float = asked["wall_s"]
        self._size = -1
        self._moved = self.began
        self._sampled = 0.0
        self._buffer = b""
        with open(asked["log"], "ab", buffering=0) as log:
            self.log = os.fstat(log.fileno()).st_ino
            self.process = subprocess.Popen(
                asked["command"],
                env=asked["environment"],
                cwd=asked["folder"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        self.tell("started", pid=self.process.pid)

    def tell(self, event: str, **more: Any) -> None:
        """A line for the doctor; one that does not read must not hold us up."""
        line = json.dumps({"event": event, **more}).encode() + b"\n"
        try:
            os.write(1, line)
        except OSError:
            return

    def watch(self) -> str:
        """Why the engine has to end, or has ended."""
        while True:
            told = self._listen(TICK_S)
            if told:
                return told
            self._reap()
            if self.status is not None:
                return "exited"
            now = time.monotonic()
            if now - self._sampled >= SAMPLE_S:
                self._sampled = now
                reason = self._sample(now)
                if reason:
                    return reason

    def _listen(self, wait_s: float) -> str:
        ready, _, _ = select.select([0], [], [], wait_s)
        if not ready:
            return ""
        data = os.read(0, 4096)
        if not data:
            return "orphaned"
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if line == b"stop":
                return "stopped"
            if line == b"ready":  # a server that nobody asks has nothing to log
                self.idle_s = float("inf")
                self.wall_s = float("inf")
        return ""

    def _reap(self) -> None:
        """Take the end of our engine, and of what came to us as orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.process.pid:
                self.status = os.waitstatus_to_exitcode(status)
                self.process.returncode = self.status

    def _sample(self, now: float) -> str:
        pids = below(os.getpid())
        used = held(pids)
        self.peak = max(self.peak, used)
        self.tell("sample", bytes=used, pids=pids)
        try:
            size = os.stat(self.asked["log"]).st_size
        except OSError:
            size = self._size
        if size != self._size:
            self._size, self._moved = size, now
        if used > self.asked["host_bytes"]:
            return "memory"
        if size > self.asked["log_bytes"]:
            return "flood"
        if now - self.began > self.wall_s:
            return "wall"
        return "idle" if now - self._moved > self.idle_s else ""

    def end(self, grace_s: float, death_s: float) -> list[int]:
        """End everything below us; who is left after `death_s`."""
        began = time.monotonic()
        asked: set[int] = set()
        while True:
            self._reap()
            pids = below(os.getpid())
            waited = time.monotonic() - began
            if not pids or waited > grace_s + death_s:
                return pids
            for pid in pids:
                if waited >= grace_s:
                    self._signal(pid, signal.SIGKILL)
                elif pid not in asked:
                    asked.add(pid)
                    self._signal(pid, signal.SIGTERM)
            time.sleep(0.05)

    def clear(self) -> None:
        """Remove what the doctor would have removed."""
        if self.asked["scratch"]:
            shutil.rmtree(self.asked["scratch"], ignore_errors=True)
        elif self.asked[
            "kept"
        ]:  # its secrets were to be masked at the end; a masked one is another file
            try:
                if os.stat(self.asked["log"]).st_ino == self.log:
                    os.unlink(self.asked["log"])
            except OSError:
                return

    @staticmethod
    def _signal(pid: int, number: int) -> None:
        try:
            os.kill(pid, number)
        except OSError:
            return


def main() -> None:
    """Read what to start, watch it, end it."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:  # the doctor was killed before it could say what to start
            return
        line += part
    os.set_blocking(1, False)
    try:
        guard = Guard(json.loads(line))
    except OSError as error:
        message = json.dumps({"event": "refused", "reason": f"{error.strerror}: {error.filename}"})
        os.write(1, message.encode() + b"\n")
        return

    def ended(*_: object) -> None:
        guard.end(0.0, ORPHAN_S)
        guard.clear()
        os._exit(0)

    signal.signal(signal.SIGTERM, ended)  # systemd stops every process of a unit
    why = guard.watch()
    orphaned = why == "orphaned"
    left = guard.end(ORPHAN_GRACE_S, ORPHAN_S) if orphaned else guard.end(GRACE_S, DEATH_S)
    if orphaned:
        guard.clear()
    status = guard.status
    guard.tell(
        "ended",
        why=why,
        status=status if status is not None and status >= 0 else None,
        signal=-status if status is not None and status < 0 else None,
        seconds=round(time.monotonic() - guard.began, 3),
        peak=guard.peak,
        left=left,
    )


if __name__ == "__main__":
    main()
