"""From SIGTERM to the end of the command as the first process of a real container.

The rival is the same command started directly. Needs a Docker daemon, or root and docker.io; the
figures hold what `docker kill` and `docker wait` take themselves.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from measure import head, row

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "rigs"))

import docker_daemon  # noqa: E402

COMMAND = """exec {before}python3 -c 'import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
time.sleep(600)'"""
RUNS = 7


def seconds(docker: docker_daemon.Docker, before: str) -> float:
    """Wall time from the signal to the end of the container."""
    mounts = [word for mount in docker.mounts for word in ("-v", f"{mount}:{mount}:ro")]
    words = ["run", "-d", "--network", "none", "-e", "HOME=/root", *mounts, docker_daemon.IMAGE]
    name = docker.call(*words, "sh", "-c", COMMAND.format(before=before)).stdout.strip()
    try:
        while "ready" not in docker.call("logs", name).stdout:
            time.sleep(0.05)
        words = ["docker", *(["--host", docker.host] if docker.host else []), "wait", name]
        waiting = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)  # it is connected then
        began = time.perf_counter()
        docker.call("kill", "--signal", "TERM", name)
        status, _ = waiting.communicate(timeout=60)
        taken = time.perf_counter() - began
        if status.strip() != "7":
            raise SystemExit(f"the command ended with {status.strip()}, not by its own handler")
        return taken
    finally:
        docker.call("rm", "-f", name)


def main() -> None:
    head()
    preflight = f"{sys.executable} -m infer_doctor preflight -- "
    with docker_daemon.running() as docker:
        taken = [(seconds(docker, preflight), seconds(docker, "")) for _ in range(RUNS)]
    through, direct = (statistics.median(column) for column in zip(*taken, strict=True))
    row("SIGTERM to the end, process 1", through, direct, "at most 0.2 s")


if __name__ == "__main__":
    main()
