"""A tree of processes shaped like an engine's, for tests of the guard: run it with a Python.

A server, a core in a session of its own, workers in theirs, one that ignores SIGTERM, one whose parent
is gone. Each writes its PID into the folder given and then only sleeps.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

MOST_S = 600
"""After which a process that a broken guard left ends by itself."""


def stand(folder: str, name: str) -> None:
    """Leave the PID, sleep."""
    Path(folder, f"{name}-{os.getpid()}").touch()
    print(name, "stands", flush=True)
    time.sleep(MOST_S)
    os._exit(0)


def child(folder: str, name: str, *, session: bool, stubborn: bool = False) -> None:
    """A process of that name."""
    if os.fork() == 0:
        if session:
            os.setsid()
        if stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stand(folder, name)


def main(folder: str) -> None:
    """Server -> core (own session) -> workers (own sessions), and one whose parent ended."""
    if os.fork() == 0:
        os.setsid()
        child(folder, "worker", session=True)
        child(folder, "stubborn", session=True, stubborn=True)
        if os.fork() == 0:
            child(folder, "adopted", session=True)
            os._exit(0)
        stand(folder, "core")
    child(folder, "tracker", session=False)
    stand(folder, "server")


if __name__ == "__main__":
    main(sys.argv[1])
