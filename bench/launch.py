"""`check -- vllm serve ...` with a wrong option beside the engine's own refusal; YAML and its limits.

INFER_DOCTOR_TEST_ENGINE_FIXED names the folder of a vLLM for the CPU that starts; without it there is
no rival.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from measure import DOCTOR, environment, head, medians, row, seconds

WRONG = ["serve", "facebook/opt-125m", "--tensor-paralel-size", "2"]
RIVAL_RUNS = 3
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: vllm}}
spec:
  containers:
    - name: c
      image: vllm/vllm-openai:v0.10.2
      args: ["--model", "m", "--max-model-len", "8192"]
      resources: {limits: {nvidia.com/gpu: 1, memory: 32Gi}}
---
"""


def refusal(command: list[str]) -> float:
    """Seconds until the engine has refused the line."""
    began = time.perf_counter()
    done = subprocess.run(command, env=environment(), capture_output=True)
    taken = time.perf_counter() - began
    if b"unrecognized arguments" not in done.stderr:
        raise SystemExit(f"{command[0]} did not refuse the option: {done.stderr[-300:]!r}")
    return taken


def refusals() -> None:
    """By turns, so that a busy machine slows both."""
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE_FIXED")
    if folder is None:
        (this,) = medians([DOCTOR, "check", "--", "vllm", *WRONG], runs=11)
        row("check -- vllm serve WRONG, no engine", this, None, "at most 0.4 s")
        return
    engine = [f"{folder}/bin/python", f"{folder}/bin/vllm"]
    mine = [DOCTOR, "check", "--", *engine, *WRONG]
    seconds(mine)
    refusal([*engine, *WRONG])  # warms the caches
    theirs, ours = [], []
    for _ in range(RIVAL_RUNS):
        theirs.append(refusal([*engine, *WRONG]))
        ours += [seconds(mine) for _ in range(3)]
    rival, this = statistics.median(theirs), statistics.median(ours)
    row("check -- vllm serve WRONG", this, rival, "at most 0.4 s, 18x")


def peak(path: Path) -> tuple[float, float]:
    """Seconds and megabytes of one `check` of a file."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [DOCTOR, "check", str(path)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if b"internal fault" in said:
        raise SystemExit(said.decode())
    return time.perf_counter() - began, used.ru_maxrss / 1e3


def main() -> None:
    """Each file with its time and peak memory."""
    head()
    refusals()
    one = MANIFEST
    bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 12)
    )
    service = (
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 1}]}\n---\n"
    )
    files = {
        "one manifest": (one, 1),
        "100 documents": (one, 100),
        "a bomb of aliases": (f"{bomb}services: {{a: {{image: vllm/vllm-openai, x: *x11}}}}\n", 1),
        "a bomb as a configuration": (f"{bomb}model: m\nhf-overrides: *x11\n", 1),
        "4 MB of comments": ("# a comment\n", 340_000),
        "11,000 services": (service, 11_000),
        "50 MB": ("# a comment line\n", 3_000_000),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, times) in files.items():
            path = Path(folder) / "f.yaml"
            with path.open("w") as file:  # in parts: a child's peak begins with its parent's size
                file.writelines(itertools.repeat(text, times))
            taken, memory = peak(path)
            row(f"check, {name}", taken, None, "at most 20 s")
            row(f"check, {name}, peak", memory, None, "at most 300 MB", "MB")


if __name__ == "__main__":
    main()
