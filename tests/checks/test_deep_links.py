"""The checks of an all-reduce over all GPUs."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import pytest

from infer_doctor.checks.deep_links import allreduce_failed, not_direct, sum_wrong
from infer_doctor.facts.deep_links import LARGE, SCRIPT, SMALL, LinkRank, LinkRun
from infer_doctor.facts.gpu_health import GpuNvlinks
from infer_doctor.testing import contract, examine

GOOD = LinkRank(
    rank=0,
    step="the end",
    error=None,
    warnings=(),
    via=("P2P/CUMEM",),
    peers=(True, True),
    wrong=0,
    large_s=0.001,
    small_s=0.00002,
)


def run(*ranks: LinkRank) -> LinkRun:
    rows = tuple(dataclasses.replace(row, rank=number) for number, row in enumerate(ranks))
    return LinkRun(ranks=rows, source="python -c ...")


HEALTHY = run(GOOD, GOOD)
NVLINK = GpuNvlinks(links={0: (True,) * 18, 1: (True,) * 18}, source="NVML")
FULL = dataclasses.replace(
    GOOD,
    step="ncclCommInitRank",
    error="RuntimeError: ncclCommInitRank: unhandled system error (2)",
    warnings=(
        "misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-aB to 33030532",
    ),
    wrong=None,
    large_s=None,
)


def test_failed() -> None:
    contract(allreduce_failed, fires=[run(FULL, FULL)], passes=[HEALTHY])


def test_a_full_shm_is_named() -> None:
    (finding,) = examine(allreduce_failed, run(FULL, FULL)).findings
    assert finding.category == "nccl_shm"
    assert finding.fixes[0].id == "enlarge-shm"


def test_the_rank_that_waits_for_another_is_no_finding() -> None:
    waits = dataclasses.replace(GOOD, step="ncclCommInitRank", wrong=None, large_s=None)
    (finding,) = examine(allreduce_failed, run(waits, FULL)).findings
    assert "rank 1" in finding.message


def test_hanging() -> None:
    waits = dataclasses.replace(GOOD, step="ncclAllReduce", wrong=None, large_s=None)
    (finding,) = examine(allreduce_failed, run(waits, waits)).findings
    assert (
        finding.message
        == "an all-reduce over 2 GPUs did not come back from ncclAllReduce on rank 0, 1"
    )


def test_wrong() -> None:
    contract(sum_wrong, fires=[run(GOOD, dataclasses.replace(GOOD, wrong=7))], passes=[HEALTHY])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"via": ("SHM/direct/direct",), "settings": ("NCCL_P2P_DISABLE=1",)}, "is set"),
        ({"peers": (True, False)}, "CUDA denies peer access 0 -> 1"),
        ({"large_s": 0.03}, "GB/s"),
    ],
)
def test_not_direct(change: dict[str, object], words: str) -> None:
    bad = dataclasses.replace(GOOD, **change)
    contract(not_direct, fires=[run(bad, bad), NVLINK], passes=[HEALTHY, NVLINK])
    (finding,) = examine(not_direct, run(bad, bad), NVLINK).findings
    assert words in finding.message


def test_nothing_is_judged_without_nvlink() -> None:
    slow = dataclasses.replace(GOOD, large_s=0.03)
    nothing = GpuNvlinks(links={}, source="NVML")
    assert examine(not_direct, run(slow, slow), nothing).outcome == "not_applicable"
    assert examine(not_direct, run(slow, slow)).outcome == "blocked"


def test_a_bridge_of_four_links_is_no_fault() -> None:
    bridged = GpuNvlinks(links={0: (True,) * 4, 1: (True,) * 4}, source="NVML")
    ranks = dataclasses.replace(GOOD, large_s=LARGE / 45e9)
    assert examine(not_direct, run(ranks, ranks), bridged).outcome == "passed"
    slow = dataclasses.replace(GOOD, large_s=LARGE / 12e9)
    (finding,) = examine(not_direct, run(slow, slow), bridged).findings
    assert finding.confidence == "likely"


def test_an_unfinished_sum_decides_nothing() -> None:
    assert examine(sum_wrong, run(FULL, FULL)).outcome == "blocked"
    assert examine(not_direct, run(FULL, FULL), NVLINK).outcome == "blocked"


def test_the_script_tells_of_libraries_that_cannot_be_loaded() -> None:
    question = json.dumps(["/nowhere/libcudart.so", "/nowhere/libnccl.so", 2, SMALL, LARGE, 5, {}])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", SCRIPT, question],
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = done.stdout.splitlines()
    ranks = json.loads(line)["ranks"]
    assert [row["step"] for row in ranks] == ["loading libraries"] * 2
    assert all("/nowhere/libcudart.so" in row["error"] for row in ranks)
