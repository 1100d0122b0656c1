"""Peak memory of `infer-doctor check`: of the largest process, and of all of them together."""

import os
import resource
import subprocess
import time
from pathlib import Path

from measure import DOCTOR, environment, head, row

TICK_S = 0.002


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def resident(pid: int) -> int:
    """Bytes that the process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def main() -> None:
    """The sum is sampled; shared pages count in each process."""
    head()
    subprocess.run([DOCTOR, "check"], env=environment(), capture_output=True)
    child = subprocess.Popen([DOCTOR, "check"], env=environment(), stdout=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        try:
            peak = max(peak, sum(map(resident, tree(child.pid))))
        except OSError:  # one of them ended meanwhile
            continue
        time.sleep(TICK_S)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    row("check, largest process", largest / 1e6, None, "at most 80 MB", "MB")
    row("check, all processes together", peak / 1e6, None, "at most 80 MB", "MB")


if __name__ == "__main__":
    main()
