"""Name spaces as hosts: a missing interface, a blocked port and another subnet are each named."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster
import netns
import pytest
from netns import Hosts

COMMAND = [sys.executable, "-m", "infer_doctor", "snapshot", "--deep", "--redact-key", "k"]

WHY_NOT = netns.missing()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def told(
    tmp_path: Path, capsys: Any, change: Callable[[Hosts], None]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The outcomes, and the messages of each check over four hosts."""
    with netns.hosts(4) as made:
        change(made)
        netns.snapshots(made, [*COMMAND, "--timeout", "20"], tmp_path)
    outcomes, found = cluster.findings_of([str(tmp_path)], capsys)
    messages: dict[str, list[str]] = {}
    for finding in found:
        messages.setdefault(finding["check"], []).append(finding["message"])
    return outcomes, messages


NETWORK = (
    "cluster-interface-missing",
    "cluster-subnet-differs",
    "cluster-peer-unreachable",
    "cluster-link-slow",
)


def test_a_good_network_has_no_finding(tmp_path: Path, capsys: Any) -> None:
    outcomes, messages = told(tmp_path, capsys, lambda made: None)
    assert [outcomes[name] for name in NETWORK[:3]] == ["passed"] * 3
    assert not set(messages) & set(NETWORK[:3])
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [f"n{i}.json" for i in range(4)]


def test_a_missing_interface(tmp_path: Path, capsys: Any) -> None:
    _, messages = told(tmp_path, capsys, lambda made: made.rename("n2", "ens9"))
    (text,) = messages["cluster-interface-missing"]
    assert "NCCL_SOCKET_IFNAME=eth0 names no interface" in text
    assert "on n2, unlike on n0, n1 and n3" in text


def test_a_blocked_port(tmp_path: Path, capsys: Any) -> None:
    _, messages = told(tmp_path, capsys, lambda made: made.block("n1"))
    assert messages["cluster-peer-unreachable"] == ["no other node reaches n1 by TCP: timed out"]
    assert not set(messages) & set(NETWORK[:2])


def test_another_subnet(tmp_path: Path, capsys: Any) -> None:
    _, messages = told(tmp_path, capsys, lambda made: made.address("n3", "10.78.0.4/24"))
    (text,) = messages["cluster-subnet-differs"]
    assert text.startswith("n3 is in <ip:")
    assert "n0, n1 and n2 are in <ip:" in text
    found = messages["cluster-peer-unreachable"]
    assert found[0] == "no other node reaches n3 by TCP: Network is unreachable"
