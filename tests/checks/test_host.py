"""Limits and memory of the host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infer_doctor.checks.host import memlock_low, memory_low, nofile_low
from infer_doctor.facts.limits import Limit, LockRight, ProcessLimits, Rdma
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.memory import HostMemory, MemoryGroup, MemoryGroups, parse_meminfo
from infer_doctor.launch.command import read as launch_of
from infer_doctor.launch.model import Launch
from infer_doctor.testing import contract, examine

GIB = 1 << 30
KERNEL_DEFAULT = 8 << 20
"""RLIMIT_MEMLOCK since Linux 5.16."""
CARDS = Rdma(devices=("mlx5_0", "mlx5_1"))
NO_RIGHT = LockRight(unlimited=False)


def machine(container: str | None = None) -> Identity:
    return Identity(
        hostname="node",
        kernel="6.8",
        machine="x86_64",
        uid=0,
        container=container,
        initial_pid_namespace=container is None,
        devices=(),
    )


def limits(
    memlock: int | None = None, nofile: tuple[int | None, int | None] = (20_000, 20_000)
) -> ProcessLimits:
    return ProcessLimits(
        memlock=Limit(soft=memlock, hard=memlock), nofile=Limit(soft=nofile[0], hard=nofile[1])
    )


def launch(command: str) -> Launch:
    return launch_of(command.split())


TWO_NODES = launch("vllm serve m -tp 8 -pp 2 --nnodes 2")


@pytest.mark.parametrize("captured", ["h200", "h200-x2"])
def test_the_real_machines_are_healthy(captured: str) -> None:
    folder = Path(__file__).parents[1] / "captures" / captured
    ulimit = (folder / "ulimit.txt").read_text()
    locked = re.search(r"-l\) (\S+)", ulimit)
    files = re.search(r"-n\) (\d+)", ulimit)
    assert locked and files
    assert locked[1] == "unlimited"
    real = limits(None, (int(files[1]), int(files[1])))
    host = parse_meminfo((folder / "meminfo.txt").read_text())
    start = launch("vllm serve m -tp 2 -pp 2 --nnodes 2")
    facts: list[object] = [real, CARDS, NO_RIGHT, host, groups(), machine(), start]
    for function in (memlock_low, nofile_low, memory_low):
        assert examine(function, *facts).outcome == "passed"


def test_memlock_contract() -> None:
    contract(
        memlock_low,
        fires=[limits(KERNEL_DEFAULT), CARDS, NO_RIGHT, machine(), TWO_NODES],
        passes=[limits(None), CARDS, NO_RIGHT, machine(), TWO_NODES],
    )


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        (None, "info"),
        ("vllm serve m -tp 8 -pp 2 --nnodes 2", "error"),
        ("vllm serve m --distributed-executor-backend ray -tp 16", "error"),
        ("vllm serve m --kv-transfer-config {}", "error"),
    ],
)
def test_memlock_severity(command: str | None, severity: str) -> None:
    facts: list[object] = [limits(65_536), CARDS, NO_RIGHT, machine("docker")]
    facts += [launch(command)] if command else []
    (finding,) = examine(memlock_low, *facts).findings
    assert finding.severity == severity
    assert finding.message == (
        "64 KiB of memory may be locked; one NCCL connection over mlx5_0, mlx5_1 takes 9.2 MiB"
    )
    assert finding.fixes[0].title == "Start the container with --ulimit memlock=-1"


def test_memlock_does_not_matter_on_one_node() -> None:
    result = examine(
        memlock_low, limits(65_536), CARDS, NO_RIGHT, machine(), launch("vllm serve m -tp 8")
    )
    assert result.outcome == "not_applicable"


def test_memlock_does_not_bind_a_process_with_the_right() -> None:
    right = LockRight(unlimited=True)
    result = examine(memlock_low, limits(65_536), CARDS, right, machine(), TWO_NODES)
    assert result.outcome == "passed"


def test_nofile_contract() -> None:
    contract(
        nofile_low,
        fires=[limits(nofile=(1024, 1024)), machine("docker")],
        passes=[limits(), machine()],
    )


@pytest.mark.parametrize(
    ("soft", "hard", "fires"),
    [
        (1024, 524_288, False),  # systemd's default: vLLM raises it
        (1024, 4096, True),  # the kernel's own default
        (1024, 65_534, True),
        (1024, 65_535, False),
        (1055, 4096, True),
        (1056, 4096, False),
        (20_000, 20_000, False),  # the real H200 machine
        (1024, None, False),
        (None, None, False),
    ],
)
def test_nofile_bound(soft: int | None, hard: int | None, fires: bool) -> None:
    result = examine(nofile_low, limits(nofile=(soft, hard)), machine())
    assert (result.outcome == "failed") == fires


def test_nofile_in_kubernetes_is_set_on_the_node() -> None:
    (finding,) = examine(nofile_low, limits(nofile=(1024, 1024)), machine("kubernetes")).findings
    assert "[Service] LimitNOFILE=65535" in [action.text for action in finding.fixes[0].actions]


def memory(total: float, available: float | None = None) -> HostMemory:
    return HostMemory(
        total=int(total * GIB), available=int((total if available is None else available) * GIB)
    )


def groups(
    *limits: float | None, used: float = 0.5, cache: float = 0, gap: str = ""
) -> MemoryGroups:
    rows = tuple(
        MemoryGroup(
            folder=f"/sys/fs/cgroup/{number}",
            limit=None if limit is None else int(limit * GIB),
            used=int(used * GIB),
            cache=int(cache * GIB),
        )
        for number, limit in enumerate(limits)
    )
    return MemoryGroups(groups=rows, gaps=(gap,) if gap else ())


def test_memory_contract() -> None:
    contract(
        memory_low,
        fires=[memory(126), groups(None, 4, 8), machine("docker")],
        passes=[memory(126), groups(None, 20), machine("docker")],
    )


def test_memory_limit_is_named_with_its_group() -> None:
    (finding,) = examine(
        memory_low, memory(126), groups(None, 4, 8), machine("kubernetes")
    ).findings
    assert finding.message == (
        "4.0 GiB of memory is the limit for this process; vLLM's own manifest requests 5.6 GiB "
        "(6 GB) for a 7B model"
    )
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert finding.evidence[0].source == "/sys/fs/cgroup/1"
    assert finding.fixes[0].title == "Set the container's resources.limits.memory to 6Gi or more"


def test_a_machine_that_may_grow_is_only_a_possible_warning() -> None:
    (finding,) = examine(memory_low, memory(2), groups(), machine()).findings
    assert (finding.severity, finding.confidence) == ("warning", "possible")


def test_what_is_free_counts_only_for_a_launch() -> None:
    facts = [memory(126, 3), groups(), machine()]
    assert examine(memory_low, *facts).outcome == "passed"
    (finding,) = examine(memory_low, *facts, launch("vllm serve m")).findings
    assert finding.message.startswith("3.0 GiB of memory are free for this process")


def test_the_file_cache_is_free_memory() -> None:
    start = launch("vllm serve m")
    mapped = groups(20, used=19, cache=18)
    assert examine(memory_low, memory(126), mapped, machine("docker"), start).outcome == "passed"
    held = groups(20, used=19, cache=1)
    assert examine(memory_low, memory(126), held, machine("docker"), start).outcome == "failed"


def test_a_group_that_could_not_be_read_is_no_proof() -> None:
    result = examine(memory_low, memory(126), groups(None, gap="/x: odd"), machine())
    assert (result.outcome, result.reason) == ("blocked", "/x: odd")
