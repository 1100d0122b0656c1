"""Steps that end a process: SIGTERM, then SIGKILL, and only the one that was meant."""

from __future__ import annotations

import os
import select
import signal

from infer_doctor.fixing.files import Refused
from infer_doctor.fixing.journal import Journal, Record, Run
from infer_doctor.fixing.steps import State
from infer_doctor.frozen import frozen
from infer_doctor.model import EndProcess

TERM_S = 10.0
"""Seconds between SIGTERM and SIGKILL: what Kubernetes' kubelet and `docker stop` (10) give."""

KILL_S = 5.0
"""Seconds for a killed process to go; one in an uninterruptible call does not go at all."""


@frozen
class End:
    """The process `pid` that started at `started` will be ended."""

    pid: int
    started: int
    text: str

    def record(self, journal: Journal) -> Record:
        return {"kind": "process", "text": self.text, "pid": self.pid, "started": self.started}

    def do(self, record: Record) -> Record:
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return {}
        try:
            if started(self.pid) != self.started:
                return {}  # it ended, and the number is another's now
            for number, wait_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
                signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], wait_s)[0]:
                    return {}
        except ProcessLookupError:
            return {}
        except PermissionError:
            raise Refused(f"PID {self.pid}: belongs to another user") from None
        finally:
            os.close(descriptor)
        raise Refused(f"PID {self.pid}: does not end, not even with SIGKILL: the kernel holds it")


def started(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (proc_pid_stat(5)): its start in ticks after the boot.

    None when it has ended, also while its parent has not taken notice (state Z).
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def prepared(action: EndProcess) -> End:
    """The step, or Refused: it ended meanwhile, or is somebody else's."""
    found = started(action.pid)
    if found is None:
        raise Refused(f"PID {action.pid}: has ended by itself")
    if found != action.started:
        raise Refused(f"PID {action.pid}: is another process now; the one that was meant has ended")
    owner = os.stat(f"/proc/{action.pid}").st_uid
    if os.geteuid() not in (owner, 0):
        raise Refused(f"PID {action.pid}: belongs to uid {owner}, not to you")
    return End(pid=action.pid, started=action.started, text=f"end PID {action.pid} {action.name}")


def state(run: Run, record: Record) -> State:
    return "old" if started(record["pid"]) == record["started"] else "new"


def take_back(run: Run, record: Record) -> None:
    """Nothing brings a process back."""
    if state(run, record) == "new":
        raise Refused(f"PID {record['pid']}: a process that was ended cannot be brought back")


def difference(run: Run, record: Record) -> str:
    return ""


def forget(record: Record) -> None:
    """Nothing is kept."""
