"""A sum over name spaces as hosts with a real torch: it works, a port is blocked, a rank never comes.
A machine whose GPUs are in use takes no part."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cluster
import netns
import pytest
import torch_only

from infer_doctor.cluster.collect import Part, part_of
from infer_doctor.examine import Examination
from infer_doctor.hands.allreduce import hidden, nccl_says, plan
from infer_doctor.registry import load

WHY_NOT = netns.missing() or torch_only.missing()
real = [pytest.mark.engine, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]

PATIENT_S = 120
"""Where all come: the last rank ends it."""

LIMIT_S = 40
"""Where one never comes: half of it is waited for it."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_only.interpreter(tmp_path_factory.mktemp("torch") / "venv")


class TestHosts:
    pytestmark = real

    def told(
        self,
        tmp_path: Path,
        capsys: Any,
        python: Path,
        *,
        blocked: bool = False,
        bare: str = "",
        limit_s: int = LIMIT_S,
    ) -> dict[str, dict[str, Any]]:
        """The rows of checks over three hosts; `bare` has an interpreter without torch."""
        words = ["snapshot", "--deep", "--redact-key", "k", "--timeout", str(limit_s)]
        command = [sys.executable, "-m", "infer_doctor", *words]
        with netns.hosts(3) as made:
            if blocked:  # n2 reaches n1, but not the first rank's host
                rule = "-A OUTPUT -p tcp --syn -d 10.77.0.1 -j DROP"
                made.run_in("n2", ["iptables", *rule.split()])
            own = {name: ["--python", str(python)] for name in made.names if name != bare}
            netns.snapshots(made, command, tmp_path, own)
        return cluster.rows_of([str(tmp_path)], capsys)

    def test_all_ranks_sum(self, tmp_path: Path, capsys: Any, python: Path) -> None:
        rows = self.told(tmp_path, capsys, python, limit_s=PATIENT_S)
        for check in ("cluster-allreduce-failed", "cluster-sum-wrong", "cluster-peer-unreachable"):
            assert rows[check]["outcome"] == "passed", rows[check]
        assert rows["cluster-allreduce-slow"]["outcome"] == "not_applicable"
        assert list((tmp_path / ".links").iterdir()) != []
        assert not list((tmp_path / ".links").glob("*.link")), (
            "a later run would take it for its own"
        )

    def test_a_blocked_port(self, tmp_path: Path, capsys: Any, python: Path) -> None:
        rows = self.told(tmp_path, capsys, python, blocked=True)
        (finding,) = rows["cluster-allreduce-failed"]["findings"]
        assert "rank 2 on n2 cannot reach rank 0 on n0" in finding["message"]
        (finding,) = rows["cluster-peer-unreachable"]["findings"]
        assert finding["message"] == "n2 does not reach n0 by TCP: timed out"
        for path in tmp_path.glob("*.json"):
            assert "10.77.0." not in path.read_text()

    def test_a_rank_that_never_comes(self, tmp_path: Path, capsys: Any, python: Path) -> None:
        rows = self.told(tmp_path, capsys, python, bare="n1")
        row = rows["cluster-allreduce-failed"]
        assert row["outcome"] == "blocked"
        assert "rank 1 on n1 did not come to rank 0 on n0: torch.distributed" in row["reason"]
        assert rows["cluster-peer-unreachable"]["outcome"] == "passed"


class TestPlan:
    def offer(self, gpus: int, able: bool = True) -> dict[str, Any]:
        return {"gpus": gpus, "able": able, "store": 40000 + gpus, "addresses": ["10.0.0.1"]}

    def test_a_rank_for_each_gpu(self) -> None:
        offers = [self.offer(8), self.offer(4)]
        parts = [plan(offers, own) for own in range(2)]
        assert [(p["first"], p["local"], p["world"], p["backend"]) for p in parts if p] == [
            (0, 8, 12, "nccl"),
            (8, 4, 12, "nccl"),
        ]
        assert {p["port"] for p in parts if p} == {40008}

    def test_a_head_without_gpus_takes_no_part(self) -> None:
        found = plan([self.offer(0), self.offer(2), self.offer(2)], 0)
        assert found is not None
        assert (found["local"], found["counts"], found["port"]) == (0, [0, 2, 2], 40002)

    def test_without_gpus_a_rank_a_node(self) -> None:
        found = plan([self.offer(0), self.offer(0), self.offer(0, able=False)], 1)
        assert found is not None
        assert (found["backend"], found["counts"]) == ("gloo", [1, 1, 0])

    def test_one_rank_sums_with_nobody(self) -> None:
        assert plan([self.offer(1), self.offer(0)], 0) is None


def test_no_address_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-07")
    text = "connect [gpu-07]:1 to 10.0.0.2<443>, 10.0.0.9, fd00:1:2:3::4 and 127.0.0.1 (2.28.9)"
    assert hidden(text, {"10.0.0.2": 1}) == (
        "connect [this-node]:1 to {node 1}<443>, <address>, <address> and 127.0.0.1 (2.28.9)"
    )


def test_what_a_snapshot_holds_is_what_the_fact_reads() -> None:
    """The answer of the hands in the form that `facts/node_sum.py` takes."""
    node = cluster.node(0)
    row = {"rank": 0, "step": "the end", "wrong": 0, "seconds": 0.1}
    row |= {"via": [], "networks": [], "warnings": [], "set": []}
    answer = {"own": 0, "backend": "gloo", "counts": [1, 1], "bytes": 1, "patience_s": 8.0}
    cluster.add(node, "allreduce", {**answer, "ranks": [row]})
    from infer_doctor.facts.node_sum import node_sum
    from infer_doctor.snapshot import read

    found = node_sum(host=read(json.dumps(node)).host)
    assert found.ranks[0].done and found.ranks[0].seconds == 0.1


def test_what_nccl_says() -> None:
    """The lines of a rank as NCCL 2.27 writes them."""
    lines = [
        "gpu-07:12:34 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "gpu-07:12:34 [0] NCCL INFO Using network Socket",
        "gpu-07:12:34 [0] NCCL INFO Channel 00/02 :    0   1   2   3",
        "gpu-07:12:34 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0",
        "gpu-07:12:34 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
        "gpu-07:12:34 [0] misc/socket.cc:49 NCCL WARN Bootstrap : no socket interface found",
    ]
    assert nccl_says(lines) == {
        "via": ["NET/Socket/0", "P2P/CUMEM/read"],
        "networks": ["Socket"],
        "warnings": [lines[-1]],
        "set": ["NCCL_IB_DISABLE=1"],
    }


def test_a_gpu_that_somebody_uses_is_left_alone(tmp_path: Path) -> None:
    """Also in a container, which sees the memory but no process of others."""
    for case, busy in (("h200-x2-served", True), ("h200-x2", False)):
        node = cluster.node(1, cluster.document(case))
        (path,) = cluster.write(tmp_path / case, [node])
        subject = Examination.of(load(), snapshot=path).subjects[0]
        part = part_of(subject)
        assert isinstance(part, Part)
        offers = [part.offer() for _ in range(2)]
        if not busy:
            assert part.lacking is None
            continue
        assert part.lacking is not None
        assert part.lacking.startswith("GPU 0 holds 129.9 GiB by process ")
        assert part.lacking.endswith(": a sum would disturb what runs there")
        assert part.add_up(offers, 0, 8.0) == {"error": part.lacking}
