"""One field of one of N snapshots is changed: it is always found, and exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import cluster
import pytest
from cluster import Document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infer_doctor.cluster.compare import Compared, Group
from infer_doctor.cluster.reading import Reader, ReadNode
from infer_doctor.examine import Examination
from infer_doctor.model import CheckResult
from infer_doctor.registry import load

REGISTRY = load()
CLUSTER = [check for id, check in REGISTRY.checks.items() if id.startswith("cluster-")]
BASE = cluster.document()
PACKAGES = sorted(
    row["name"]
    for row in cluster.value(BASE, "distributions")["distributions"]
    if row["name"] and row["version"]
)
MEETING = {
    "cluster-peer-unreachable",
    "cluster-link-slow",
    "cluster-allreduce-failed",
    "cluster-allreduce-slow",
    "cluster-rdma-unused",
    "cluster-sum-wrong",
}
"""What only nodes that met can tell."""

MOST = 7


def text(made: Document) -> str:
    return json.dumps(made, indent=1) + "\n"


EQUAL = [text(cluster.node(i, BASE)) for i in range(MOST)]


def judged(count: int, **changed: Document) -> list[CheckResult]:
    """Equal nodes n0, n1, ..., of which some are changed."""
    reader = Reader()
    rows = [
        ReadNode(
            name=f"n{i}",
            snapshot=reader.read(text(changed[f"n{i}"]) if f"n{i}" in changed else EQUAL[i]),
        )
        for i in range(count)
    ]
    return Examination.of(REGISTRY, cluster=rows).run(CLUSTER)


def _package(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        found = cluster.value(node, "distributions")["distributions"]
        row = next(row for row in found if row["name"] == name)
        row["version"] += ".post9"

    return change


def _uninstalled(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        answer = cluster.value(node, "distributions")
        answer["distributions"] = [row for row in answer["distributions"] if row["name"] != name]

    return change


def _driver(node: Document) -> None:
    cluster.value(node, "nvml")["driver"] = "590.1.2"


def _gpu_model(node: Document) -> None:
    cluster.value(node, "nvml")["gpus"][0]["Name"] = "NVIDIA H100 80GB HBM3"


def _gpu_gone(node: Document) -> None:
    del cluster.value(node, "nvml")["gpus"][1]


def _gpu_memory(node: Document) -> None:
    for gpu in cluster.value(node, "nvml")["gpus"]:
        gpu["MemoryInfo_v2"]["total"] //= 2


def _variable(name: str, text: str | None) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        variables = cluster.value(node, "environ")["variables"]
        if text is None:
            del variables[name]
        else:
            variables[name] = text

    return change


def _limit(name: str) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "limits")[name] = [4242, 4242]

    return change


def _locked(node: Document) -> None:
    """Without CAP_IPC_LOCK, beside which the limit is none."""
    _limit("memlock")(node)
    status = cluster.value(node, "read", path="/proc/self/status")
    status["text"] = re.sub(r"CapEff:\s*\w+", f"CapEff:\t{0:016x}", status["text"])


def _clock(node: Document) -> None:
    cluster.value(node, "clock")["synchronised"] = False


def _interface(**fields: Any) -> Callable[[Document], None]:
    def change(node: Document) -> None:
        cluster.value(node, "interfaces")["interfaces"][0] |= fields

    return change


def _subnet(node: Document) -> None:
    address = cluster.value(node, "interfaces")["interfaces"][0]["addresses"][0]
    address["network"] = "<ip:bb.0>"


def _name(node: Document) -> None:
    cluster.value(node, "own_name")["addresses"] = ["127.0.1.1"]


def _other_address(node: Document) -> None:
    cluster.value(node, "environ")["variables"]["VLLM_HOST_IP"] = "<ip:cc.1>"


CHANGES = st.one_of(
    st.sampled_from(PACKAGES).map(lambda name: (f"version of {name}", _package(name))),
    st.sampled_from(PACKAGES).map(lambda name: (f"no {name}", _uninstalled(name))),
    st.sampled_from(
        [
            ("driver", _driver),
            ("GPU model", _gpu_model),
            ("a GPU less", _gpu_gone),
            ("GPU memory", _gpu_memory),
            ("locked memory", _locked),
            ("open files", _limit("nofile")),
            ("clock", _clock),
            ("interface renamed", _interface(name="ens7")),
            ("interface down", _interface(up=False)),
            ("subnet", _subnet),
            ("name", _name),
            ("address of another", _other_address),
            ("no master", _variable("MASTER_ADDR", None)),
        ]
    ),
    st.tuples(
        st.sampled_from(["NCCL_P2P_DISABLE", "NCCL_ALGO", "VLLM_USE_V1", "UCX_TLS", "MASTER_PORT"]),
        st.text("abcdef0123456789", min_size=1, max_size=6),
    ).map(lambda pair: (f"{pair[0]}={pair[1]}", _variable(*pair))),
)


def test_equal_nodes_have_no_finding() -> None:
    results = judged(4)
    blocked = {row.check for row in results if row.outcome == "blocked"}
    assert blocked == MEETING  # the nodes have not met
    assert [row for row in results if row.outcome in ("failed", "crashed")] == []
    assert {row.subject for row in results} == {"cluster"}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), count=st.integers(3, MOST), change=CHANGES)
def test_one_change_is_found_exactly_once(
    data: st.DataObject, count: int, change: tuple[str, Callable[[Document], None]]
) -> None:
    odd = data.draw(st.integers(0, count - 1))
    made = cluster.node(odd, BASE)
    change[1](made)
    results = judged(count, **{f"n{odd}": made})
    found = [finding for row in results for finding in row.findings]
    assert [row.reason for row in results if row.outcome == "crashed"] == []
    assert len(found) == 1, (change[0], [(f.check, f.message) for f in found])
    assert f"n{odd}" in found[0].message
    others = [f"n{i}" for i in range(count) if i != odd]
    assert not any(f"{name}," in found[0].about for name in others)


@pytest.mark.parametrize("count", [2, 4])
def test_a_tie_is_told_as_a_tie(count: int) -> None:
    changed = {f"n{i}": cluster.node(i, BASE) for i in range(count // 2, count)}
    for made in changed.values():
        _driver(made)
    (found,) = [finding for row in judged(count, **changed) for finding in row.findings]
    assert "no value is that of most nodes" in found.message
    assert all(f"n{i}" in found.message for i in range(count))
    assert found.fixes == ()


def test_two_of_five_are_not_most() -> None:
    groups = [Group(text=t, source="", nodes=n) for t, n in (("a", ("n0", "n1")), ("b", ("n2",)))]
    more = [Group(text=t, source="", nodes=(f"n{t}",)) for t in ("3", "4")]
    assert not Compared(groups=tuple(groups), unknown=(), absent=()).tie
    assert Compared(groups=(*groups, *more), unknown=(), absent=()).tie
