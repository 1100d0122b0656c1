"""`check --ray` on a real Ray cluster of four nodes: a difference, a node that hangs, one that dies."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import ray_cluster
import torch_only
from ray_cluster import Rig

from infer_doctor.cli import run
from infer_doctor.cluster.rays import NoRay, ask

LIMIT_S = 45
"""Of the run that waits for a node that hangs: all of it."""

PATIENT_S = 120
"""Of the others, which end when the last node has answered."""

PLANTED, HANGS, DIES = 1, 2, 3

needs_ray = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (extra `ray`)"),
]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with ray_cluster.running(PLANTED) as started:
        yield started


def checked(rig: Rig, *words: str, limit_s: int = PATIENT_S) -> tuple[int, dict[str, Any]]:
    """The exit status and the report of a run."""
    command = [sys.executable, "-m", "infer_doctor", "check", "--ray", rig.address]
    command += ["--timeout", str(limit_s), "--format", "json", *words]
    # The run keeps its own limit; three times that is for a machine that does other things too.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3 * limit_s)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def rows(report: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [row for row in report["results"] if row["check"] == check]


class TestRay:
    pytestmark = needs_ray

    def test_the_node_with_another_variable_is_named(self, rig: Rig) -> None:
        _, report = checked(rig)
        (row,) = rows(report, "cluster-node-silent")
        assert row["outcome"] == "passed", row["reason"]
        (row,) = rows(report, "cluster-variable-differs")
        (finding,) = row["findings"]
        assert finding["message"].startswith(
            f"NCCL_ALGO is Tree on {rig.name(PLANTED)}; not set on "
        )
        assert {row["subject"] for row in report["results"]} == {
            "cluster",
            *(rig.name(number) for number in range(4)),
        }

    def test_more_ranks_than_gpus_of_ray(self, rig: Rig) -> None:
        words = ("--select", "cluster-ray-*", "--engine", "vllm==0.26.0")
        code, report = checked(rig, *words, "--", "vllm", "serve", "m", "-tp", "4", "-pp", "2")
        (row,) = rows(report, "cluster-ray-placement")
        assert code == 1
        assert row["findings"][0]["message"] == (
            "tensor 4 x pipeline 2 needs 8 GPUs; Ray gives out 0 on 4 nodes"
        )

    @pytest.mark.engine
    @pytest.mark.skipif(torch_only.missing() is not None, reason=str(torch_only.missing()))
    def test_links_and_a_sum_over_all_nodes(self, rig: Rig, tmp_path: Path) -> None:
        python = torch_only.interpreter(tmp_path / "venv")
        words = ("--deep", "--python", str(python), "--ignore", "cluster-name-loopback")
        _, report = checked(rig, *words)
        for check in ("cluster-peer-unreachable", "cluster-allreduce-failed", "cluster-sum-wrong"):
            (row,) = rows(report, check)
            assert row["outcome"] == "passed", row["reason"]
        sums = [report["facts"][rig.name(number)]["NodeSum"] for number in range(4)]
        assert sorted(own["ranks"][0]["rank"] for own in sums) == [0, 1, 2, 3]
        assert {own["ranks"][0]["step"] for own in sums} == {"the end"}
        links = report["facts"][rig.name(0)]["PeerLinks"]
        assert [row["error"] for row in links["rows"]] == [None, None, None]

    def test_a_node_that_hangs_and_one_that_dies_are_named(self, rig: Rig) -> None:
        """The raylet of one is frozen before, that of the other killed before it can have answered:
        to import Ray and to join the cluster takes longer than a second."""
        rig.do("stop", HANGS)
        threading.Timer(1, rig.do, ("kill", DIES)).start()
        words = ("--fail-on", "error", "--ignore", "cluster-name-loopback")
        code, report = checked(rig, *words, limit_s=LIMIT_S)
        assert code == 3, "what nobody saw is no pass"
        assert report["verdict"] == "unknown"
        (row,) = rows(report, "cluster-node-silent")
        assert row["outcome"] == "blocked"
        assert f"{rig.name(HANGS)}: no answer within" in row["reason"]
        assert rig.name(DIES) in row["reason"]
        assert rig.name(0) not in row["reason"]
        for number in (HANGS, DIES):
            own = [row for row in report["results"] if row["subject"] == rig.name(number)]
            assert not [row for row in own if row["outcome"] in ("passed", "failed", "crashed")]
        (row,) = rows(report, "cluster-variable-differs")
        assert rig.name(PLANTED) in row["findings"][0]["message"]


class TestEnd:
    pytestmark = needs_ray

    def test_the_driver_ends_with_the_doctor(self, tmp_path: Path) -> None:
        """However that ends: nothing else closes the pipe. Its folder goes too."""
        folder = tmp_path / "shipped"
        folder.mkdir()
        settings = {"address": "192.0.2.1:1", "limit_s": 600, "folder": str(folder)}
        with subprocess.Popen(
            [sys.executable, "-m", "infer_doctor.cluster.ray_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            assert child.stdin is not None
            child.stdin.write(json.dumps(settings).encode() + b"\n")
            child.stdin.close()
            assert child.wait(timeout=300) == 1
        assert not folder.exists()


def test_local_is_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Ray would start one, and its processes would stay."""
    assert run(["check", "--ray", "local"]) == 2
    assert "a new one of this machine alone" in capsys.readouterr().err


def test_the_variable_that_names_the_cluster_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:1")
    monkeypatch.setattr("sys.executable", "/bin/true")
    with pytest.raises(NoRay, match=r"192\.0\.2\.1:1 \(RAY_ADDRESS\)"):
        ask("auto", 20.0, command=[], python=None, deep=False, created_at="2026-12-01T00:00:00Z")


def test_a_driver_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no settings: the pipe to it breaks."""
    monkeypatch.setattr("sys.executable", "/bin/true")
    monkeypatch.setattr("infer_doctor.cluster.rays.secrets.token_hex", lambda _: "x" * (1 << 20))
    with pytest.raises(NoRay, match="ended without a word"):
        ask("auto", 20.0, command=[], python=None, deep=False, created_at="2026-12-01T00:00:00Z")


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Without Ray, and without a cluster, one clear line."""
    assert run(["check", "--ray", "127.0.0.1:1", "--timeout", "12"]) == 2
    line = capsys.readouterr().err
    assert "Ray" in line and len(line.splitlines()) == 1
