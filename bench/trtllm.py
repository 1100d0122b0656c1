"""TensorRT-LLM: the time and memory of `check ENGINE_DIR`, what it reads of the plans, and reports.

    python bench/trtllm.py [REPORTS.jsonl ...]

The folder has 16 rank files of 20 GB with holes. The rival of the time is `infer-doctor check` alone,
by turns, for the two do the same beside it. With files of reports (format of bench/diagnose.py) the
share of right categories for those of TensorRT-LLM and Triton is printed too.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import DOCTOR, ROOT, environment, head, row

sys.path.insert(0, str(ROOT / "tests" / "rigs"))

from trtllm_files import engine

RANKS = 16
SIZE = 20 << 30
RUNS = 9
ENGINES = ("TensorRT-LLM", "Triton+TensorRT-LLM")


def run(*words: str) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, peak MB) of a whole process with its children."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [DOCTOR, *words],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    taken = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"infer-doctor {' '.join(words)} ended with {process.returncode}")
    return taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def bytes_read(path: Path) -> int:
    """What the operation reads of all files of the folder."""
    from infer_doctor.hands import trtllm

    total = 0
    real = os.read

    def counted(descriptor: int, size: int) -> bytes:
        nonlocal total
        data = real(descriptor, size)
        total += len(data)
        return data

    os.read = counted
    try:
        trtllm.trt_folder(str(path))
    finally:
        os.read = real
    return total


def reports(files: list[str]) -> None:
    """The share of right categories of the reports about TensorRT-LLM and Triton."""
    import diagnose

    for tier in ("gold", "silver"):
        rows = [
            report
            for file in files
            for report in diagnose.read(file)
            if report.get("engine") in ENGINES
            and report.get("tier") == tier
            and report.get("has_literal_log", True)
        ]
        diagnose.shares(f"{tier}, TensorRT-LLM and Triton", diagnose.score(rows))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = engine(Path(folder) / "engine", version="1.2.1", tp=RANKS, sizes=[SIZE] * RANKS)
        run("check", str(path))
        rows = [(run("check", str(path)), run("check")) for _ in range(RUNS)]
        ours, plain = ([pair[side] for pair in rows] for side in (0, 1))
        head()
        best = min(taken for taken, _, _ in ours)
        row(
            "check ENGINE_DIR, median",
            statistics.median(taken for taken, _, _ in ours),
            statistics.median(taken for taken, _, _ in plain),
            "0.4 s idle",
        )
        row("  fastest run", best, min(taken for taken, _, _ in plain), "0.4 s idle")
        row(
            "  CPU time",
            statistics.median(cpu for _, cpu, _ in ours),
            statistics.median(cpu for _, cpu, _ in plain),
            "",
        )
        row("  peak memory of a process", max(size for _, _, size in ours), None, "80 MB", "MB")
        read = bytes_read(path)
        print(f"read of {RANKS} plans of {SIZE >> 30} GB and config.json: {read:,} bytes")
    if len(sys.argv) > 1:
        reports(sys.argv[1:])


if __name__ == "__main__":
    main()
