"""A thousand snapshots of two-GPU nodes judged together: time and memory.

Beside Python that only parses the files with `json`, one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import DOCTOR, ROOT, environment, head, row

sys.path.insert(0, str(ROOT / "tests" / "rigs"))

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

PARSE = "import json, sys; [json.load(open(path)) for path in sys.argv[1:]]"


def run(command: list[str]) -> tuple[float, float, float]:
    """Wall and processor seconds, and MB, of one process."""
    code = (
        "import json, resource, subprocess, sys, time; began = time.perf_counter(); "
        "status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode; "
        "assert status in (0, 1, 3), status; "
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
        "print(json.dumps([time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], env=environment(), capture_output=True, check=True
    )
    wall, used, memory = json.loads(done.stdout)
    return wall, used, memory / 1024


def main() -> None:
    import cluster

    head()
    with tempfile.TemporaryDirectory() as folder:
        base = cluster.document()
        paths = []
        for number in range(NODES):
            made = cluster.node(number, base)
            if number == NODES // 2:
                cluster.value(made, "nvml")["driver"] = "570.86.10"
            path = Path(folder) / f"node-{number:04d}.json"
            path.write_text(json.dumps(made, indent=1) + "\n")
            paths.append(str(path))
        parsed = run([sys.executable, "-c", PARSE, *paths])
        for form in ("text", "json"):
            wall, used, memory = run([DOCTOR, "check", "--snapshot", folder, "--format", form])
            row(f"{NODES} snapshots, {form} (rival: json.load)", wall, parsed[0], "at most 10 s")
            row(f"{NODES} snapshots, {form}, processor", used, parsed[1], "")
            row(f"{NODES} snapshots, {form}, memory", memory, parsed[2], "at most 500 MB", "MB")


if __name__ == "__main__":
    main()
