"""The installed command as a process of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("infer-doctor"))

LIMIT_S = 8.0
"""The --timeout of tests where something hangs."""

MARGIN_S = 60.0
"""What only a hang exceeds, on a busy machine too."""

DEATH_S = 5.0

MARK = "INFER_DOCTOR_TEST_RUN"


@dataclass
class Run:
    """How to start the command: environment, folder; every run is marked to find its processes."""

    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    user: int | None = None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self) -> dict[str, str]:
        base = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), MARK: self.mark}
        return {**base, **self.variables}

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        who = (
            {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        )
        settings: dict[str, Any] = {
            "env": self.environment(),
            "cwd": self.home,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            **who,
            **more,
        }
        return subprocess.Popen([COMMAND, *arguments], **settings)

    def __call__(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """The ended process; raises TimeoutExpired when it hangs."""
        process = self.start(*arguments, **more)
        try:
            out, err = process.communicate(timeout=LIMIT_S + MARGIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:  # left open it would be another test that fails
                    pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(DEATH_S)  # what hangs in the kernel does not die
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def report(self, *arguments: str) -> dict[str, Any]:
        """The report of `check` within LIMIT_S; nothing may stand on standard error."""
        ended = self("check", "--format", "json", "--timeout", str(LIMIT_S), *arguments)
        assert ended.stderr == ""
        assert ended.returncode in (0, 1, 3)
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    def living(self) -> dict[int, str]:
        """Number and state of the processes of these runs that are still there."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment.split(b"\0"):
                found[int(entry)] = state
        return found


def outcomes(report: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Check -> outcome and reason."""
    return {row["check"]: (row["outcome"], row["reason"]) for row in report["results"]}


def until(condition: Callable[[], object]) -> None:
    """Wait for what must happen; fails when it does not."""
    end = time.monotonic() + MARGIN_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not happen")
        time.sleep(0.05)
