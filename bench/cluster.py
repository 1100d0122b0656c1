"""A thousand snapshots of two-GPU nodes judged together: time and memory.

Every node has its own name, addresses, serial numbers, loads and caches, and one in ten differs in what a
cluster must agree on. Beside Python that only parses the files with `json`, one after the other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import DOCTOR, ROOT, environment, head, row

sys.path.insert(0, str(ROOT / "tests" / "rigs"))
import cluster

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

PARSE = "import json, sys; [json.load(open(path)) for path in sys.argv[1:]]"


def own(made: cluster.Document, number: int) -> None:
    """What differs on every node and is no difference of the cluster."""
    memory = cluster.value(made, "read", path="/proc/meminfo")
    memory["text"] = re.sub(
        r"(MemFree|MemAvailable|Cached):\s+(\d+)",
        lambda found: f"{found[1]}: {int(found[2]) - 997 * number % 99_999}",
        memory["text"],
    )
    cluster.value(made, "environ")["variables"]["VLLM_CACHE_ROOT"] = f"/scratch/{number}"
    for index, gpu in enumerate(cluster.value(made, "nvml")["gpus"]):
        gpu["Serial"] = f"16{number:05d}{index}"
        gpu["UtilizationRates"] = {"gpu": number % 90, "memory": number % 50}
        gpu["ecc_corrected_volatile"] = number % 3


def driver(made: cluster.Document) -> None:
    cluster.value(made, "nvml")["driver"] = "570.86.10"


def variable(made: cluster.Document) -> None:
    cluster.value(made, "environ")["variables"]["NCCL_ALGO"] = "Tree"


def limit(made: cluster.Document) -> None:
    cluster.value(made, "limits")["nofile"] = [1024, 4096]


def clock(made: cluster.Document) -> None:
    cluster.value(made, "clock")["synchronised"] = False


def interface(made: cluster.Document) -> None:
    cluster.value(made, "interfaces")["interfaces"][0]["name"] = "ens3"


def package(made: cluster.Document) -> None:
    cluster.value(made, "distributions")["distributions"][7]["version"] = "0.0.1"


ODD = (driver, variable, limit, clock, interface, package)


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
    head()
    with tempfile.TemporaryDirectory() as folder:
        base = cluster.document()
        paths = []
        for number in range(NODES):
            made = cluster.node(number, base)
            own(made, number)
            if number % 10 == 3:
                ODD[number // 10 % len(ODD)](made)
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
