"""A real Ray cluster of several nodes on this machine, in a process of its own.

`python ray_cluster.py` starts it, prints its address and a line of JSON with the nodes, and obeys lines
on standard input: "stop N" freezes the raylet of node N (it hangs), "kill N" kills it (it dies). It ends
with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

PLANTED = {"NCCL_ALGO": "Tree"}


class Rig:
    """The cluster as a test sees it."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        assert child.stdout is not None
        line = next((line for line in child.stdout if line.startswith("{")), "")
        if not line:
            raise RuntimeError("Ray did not start")
        found: dict[str, Any] = json.loads(line)
        self.address: str = found["address"]
        self.nodes: list[str] = found["nodes"]

    def do(self, word: str, number: int) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{word} {number}\n")
        self._child.stdin.flush()

    def name(self, number: int) -> str:
        """What the doctor calls node `number`."""
        return f"ray-{self.nodes[number][:8]}"


@contextlib.contextmanager
def running(planted: int) -> Iterator[Rig]:
    """Four nodes, of which one has other variables."""
    child = subprocess.Popen(
        [sys.executable, __file__, str(planted)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield Rig(child)
    finally:
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            child.wait(timeout=40)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        child.stdout.close()


def main() -> None:
    from ray.cluster_utils import Cluster

    planted = int(sys.argv[1])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.head_node]
    for number in range(1, 4):
        variables = PLANTED if number == planted else None
        # Nodes of one machine unpack what is shipped into one folder, each over that of the others
        # while they import from it (ray 2.x, runtime_env/working_dir.py, overwrite=True).
        own = f"runtime_resources_{number}"
        nodes.append(cluster.add_node(num_cpus=1, env_vars=variables, runtime_env_dir_name=own))
    cluster.wait_for_nodes()
    raylets = [node.all_processes["raylet"][0].process for node in nodes]
    names = [node.node_id if hasattr(node, "node_id") else node.unique_id for node in nodes]
    print(json.dumps({"address": cluster.address, "nodes": names}), flush=True)
    for line in sys.stdin:
        word, number = line.split()
        raylets[int(number)].send_signal(signal.SIGSTOP if word == "stop" else signal.SIGKILL)
    for raylet in raylets:
        with contextlib.suppress(OSError):
            raylet.send_signal(signal.SIGCONT)
    cluster.shutdown()


if __name__ == "__main__":
    main()
