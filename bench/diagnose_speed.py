"""Speed and memory of `infer-doctor diagnose` on a serving log of a GiB with one failure at the end.

    python -m bench.diagnose_speed [GIB] [FOLDER]

Beside it, in the same run and by turns: `LC_ALL=C grep -cE 'Error|error'` on the same file. The log
has access lines, statistics, logged requests with prompts that are all different, and aborts.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.measure import DOCTOR, environment, head

MIB = 1 << 20
RUNS = 3
FAILURE = """\
(EngineCore pid=4321) ERROR 11-30 23:59:59 [core.py:1512] EngineCore encountered a fatal error.
(EngineCore pid=4321) ERROR 11-30 23:59:59 [core.py:1512] Traceback (most recent call last):
(EngineCore pid=4321) ERROR 11-30 23:59:59 [core.py:1512]   File "/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_model_runner.py", line 3100, in execute_model
(EngineCore pid=4321) ERROR 11-30 23:59:59 [core.py:1512] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.14 GiB of which 1.11 GiB is free.
(APIServer pid=4000) ERROR 11-30 23:59:59 [async_llm.py:700] AsyncLLM output_handler failed.
"""


def line(rnd: random.Random, number: int) -> str:
    """One line of a server under load; a tenth of them holds a prompt."""
    clock = f"11-30 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    id = f"chatcmpl-{rnd.getrandbits(128):032x}"
    kind = rnd.random()
    if kind < 0.5:
        host = f"10.{rnd.randrange(256)}.{rnd.randrange(256)}.{rnd.randrange(256)}:{rnd.randrange(65536)}"
        return (
            f'(APIServer pid=4000) INFO:     {host} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        )
    if kind < 0.8:
        return (
            f"(APIServer pid=4000) INFO {clock} [loggers.py:248] Engine 000: Avg prompt throughput: "
            f"{rnd.random() * 9999:.1f} tokens/s, Avg generation throughput: {rnd.random() * 9999:.1f} "
            f"tokens/s, Running: {rnd.randrange(64)} reqs, Waiting: {rnd.randrange(3)} reqs, GPU KV "
            f"cache usage: {rnd.random() * 90:.1f}%, Prefix cache hit rate: {rnd.random() * 60:.1f}%"
        )
    if kind < 0.98:
        return f"(APIServer pid=4000) INFO {clock} [async_llm.py:261] Added request {id}."
    words = " ".join(rnd.choice(WORDS) for _ in range(40))
    return (
        f"(APIServer pid=4000) INFO {clock} [logger.py:40] Received request {id}: prompt: '{words}'"
    )


WORDS = ("the", "memory", "of", "model", "error", "free", "driver", "time", "failed", "version")


def write(path: Path, size: int) -> None:
    """At least `size` bytes: 200,000 different lines again and again, then the failure."""
    rnd = random.Random(6)
    block = "".join(f"{line(rnd, number)}\n" for number in range(200_000)).encode()
    with path.open("wb") as file:
        for _ in range(size // len(block) + 1):
            file.write(block)
        file.write(FAILURE.encode())


def run(command: list[str], variables: dict[str, str]) -> tuple[float, int]:
    """(seconds, largest resident bytes) of one process."""
    began = time.perf_counter()
    child = subprocess.Popen(
        command, env=environment(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert child.stdout
    text = child.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    taken = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(text)
    if "diagnose" in command and "oom_runtime" not in text:
        raise SystemExit(f"the failure was not found: {text[:2000]}")
    return taken, usage.ru_maxrss * 1024


def main() -> None:
    gib = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place, "serve.log")
        write(path, int(gib * (1 << 30)))
        size = path.stat().st_size
        ours = [DOCTOR, "diagnose", "--format", "json", str(path)]
        grep = ["grep", "-cE", "Error|error", str(path)]
        run(grep, {"LC_ALL": "C"})  # the page cache is warm for both
        pairs = [(run(ours, {}), run(grep, {"LC_ALL": "C"})) for _ in range(RUNS)]
    head()
    best = min(pair[0][0] for pair in pairs)
    rival = min(pair[1][0] for pair in pairs)
    memory = max(pair[0][1] for pair in pairs)
    ratio = best / rival
    print(
        f"log of {size / (1 << 30):.2f} GiB: {best:.2f} s, {size / 1e6 / best:.0f} MB/s (to reach 400)"
    )
    print(f"grep -cE 'Error|error': {rival:.2f} s; {ratio:.1f} times as long (at most 5)")
    print(f"largest memory {memory / MIB:.0f} MiB (at most 100)")
    print(f"this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
