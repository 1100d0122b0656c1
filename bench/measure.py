"""Times of whole processes, A and B by turns, so that a busy machine slows both.

Every script of this folder prints the rows of one table: what, this, rival, ratio, to reach.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

DOCTOR = str(Path(sys.executable).with_name("infer-doctor"))
ROOT = Path(__file__).parent.parent

Command = Sequence[str]


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This one, with Python's cache of compiled modules as a user has it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, **(variables or {})}


def seconds(command: Command, variables: Mapping[str, str] | None = None) -> float:
    """Wall time of one run; raises when the command could not do its work."""
    began = time.perf_counter()
    done = subprocess.run(command, env=environment(variables), capture_output=True)
    taken = time.perf_counter() - began
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")
    return taken


def medians(
    *commands: Command, runs: int, variables: Mapping[str, str] | None = None
) -> list[float]:
    """The median of each, after one run that warms the caches."""
    for command in commands:
        seconds(command, variables)
    taken = [[seconds(command, variables) for command in commands] for _ in range(runs)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def head() -> None:
    """The head of the table, with what it was measured on."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    version = ".".join(map(str, sys.version_info[:3]))
    print(f"# {os.cpu_count()} cores, load {load}, Python {version}")
    print(f"{'what':<44} {'this':>9} {'rival':>9} {'ratio':>7}  to reach")


def row(what: str, this: float, rival: float | None, goal: str, unit: str = "s") -> None:
    """One line; without a rival there is no ratio."""
    other = f"{rival:7.3f} {unit}" if rival is not None else "-"
    ratio = f"{rival / this:6.1f}x" if rival is not None else "-"
    print(f"{what:<44} {this:7.3f} {unit} {other:>9} {ratio:>7}  {goal}", flush=True)
