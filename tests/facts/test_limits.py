"""Limits, capabilities and RDMA devices, out of what a host answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.facts.limits import (
    LockRight,
    ProcessLimits,
    Rdma,
    lock_right,
    parse_capabilities,
    process_limits,
    rdma,
)
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Absent, Capture, Host, Unavailable

CAPTURES = Path(__file__).parents[1] / "captures"
DOCKER = "Name:\tsh\nCapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\n"
"""The capabilities that Docker leaves to root; bit 14 is not among them."""
ROOT = "CapEff:\t000001ffffffffff\n"
WHOLE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n"


def capture(
    operation: str, value: Any = None, error: str | None = None, **arguments: Any
) -> Capture:
    return Capture(
        operation=operation,
        arguments=arguments,
        version=VERSIONS[operation],
        value=value,
        error={"code": error, "message": "as the test says"} if error else None,
    )


def text(path: str, content: str) -> Capture:
    return capture("read", {"text": content, "truncated": False}, path=path, limit=1 << 20)


def limits_of(ulimit: str) -> dict[str, list[int]]:
    """The rows of `ulimit -a` in the form of hands/system.py; a shell shows soft limits only."""

    def value(letter: str, unit: int) -> list[int]:
        found = re.search(rf"-{letter}\) (\S+)$", ulimit, re.M)
        assert found is not None
        number = -1 if found[1] == "unlimited" else int(found[1]) * unit
        return [number, number]

    return {"memlock": value("l", 1024), "nofile": value("n", 1)}


@pytest.mark.parametrize("machine", ["h200", "h200-x2"])
def test_real_machines(machine: str) -> None:
    ulimit = (CAPTURES / machine / "ulimit.txt").read_text()
    limits = process_limits(Host([capture("limits", limits_of(ulimit))]))
    assert limits.memlock.soft is None
    assert limits.nofile.soft == 20_000


def test_limits_are_soft_and_hard() -> None:
    found = process_limits(
        Host([capture("limits", {"memlock": [65_536, -1], "nofile": [1024, 524_288]})])
    )
    assert (found.memlock.soft, found.memlock.hard) == (65_536, None)
    assert (found.nofile.soft, found.nofile.hard) == (1024, 524_288)
    assert isinstance(found, ProcessLimits)


@pytest.mark.parametrize(
    ("status", "uid_map", "unlimited"),
    [(DOCKER, WHOLE, False), (ROOT, WHOLE, True), (ROOT, ROOTLESS, False)],
)
def test_the_right_to_lock(status: str, uid_map: str, unlimited: bool) -> None:
    host = Host([text("/proc/self/status", status), text("/proc/self/uid_map", uid_map)])
    assert lock_right(host) == LockRight(unlimited=unlimited)


@pytest.mark.parametrize("broken", ["", "CapEff:", "CapEff:\t00zz\n", DOCKER[:-4]])
def test_no_capabilities_is_no_answer(broken: str) -> None:
    with pytest.raises(Unavailable, match="CapEff"):
        parse_capabilities(broken)


def test_rdma_needs_a_device_and_a_node() -> None:
    cards = capture("list", {"names": ["mlx5_0", "mlx5_1"]}, path="/sys/class/infiniband")
    nodes = capture("list", {"names": ["rdma_cm", "uverbs0"]}, path="/dev/infiniband")
    assert rdma(Host([cards, nodes])) == Rdma(devices=("mlx5_0", "mlx5_1"))
    no_nodes = capture("list", error="ENOENT", path="/dev/infiniband")
    with pytest.raises(Absent, match="uverbs"):
        rdma(Host([cards, no_nodes]))
    with pytest.raises(Absent, match="no RDMA device"):
        rdma(Host([capture("list", error="ENOENT", path="/sys/class/infiniband")]))


def test_a_folder_that_cannot_be_read_proves_nothing() -> None:
    with pytest.raises(Unavailable):
        rdma(Host([capture("list", error="EACCES", path="/sys/class/infiniband")]))
