"""A sum over the ranks of all nodes: who fails first, who never came, and how fast it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from nodes import node, nodes, proven, silent

from infer_doctor.catalog.links import kind_of
from infer_doctor.checks.cluster_allreduce import (
    allreduce_failed,
    allreduce_slow,
    rdma_unused,
    sum_wrong,
)
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.gpu_health import GpuNvlinks, GpuPcie, PcieRow
from infer_doctor.facts.limits import Rdma
from infer_doctor.facts.network import Interface, Interfaces, RdmaPort, RdmaRates
from infer_doctor.facts.node_sum import NodeSum, SumRank
from infer_doctor.facts.nodes import Nodes
from infer_doctor.facts.peers import PeerLinks
from infer_doctor.testing import contract, examine

TIMED_OUT = "DistNetworkError: The client socket has timed out after 16504ms, ({node 0}, 35985)."
WAITING = "DistStoreError: wait timeout after 34047ms, keys: /sum/0//cpu//0/2"
CARD = Rdma(devices=("mlx5_0",))
PORTS = RdmaRates(rows=(RdmaPort(device="mlx5_0", port=1, gbit=400),))


def rank(number: int, **fields: Any) -> SumRank:
    done: dict[str, Any] = {
        "rank": number,
        "step": "the end",
        "error": None,
        "failed_s": None,
        "tried_s": 16.0,
        "absent": (),
        "wrong": 0,
        "seconds": 0.01,
        "via": ("NET/IB/0/GDRDMA",),
        "networks": ("IB",),
        "warnings": (),
        "settings": (),
    }
    return SumRank(**(done | fields))


def part(own: int, *ranks: SumRank, backend: str = "nccl", patience_s: float = 40.0) -> NodeSum:
    return NodeSum(
        own=own,
        backend=backend,
        counts=(1, 1, 1),
        bytes=256 << 20,
        patience_s=patience_s,
        ranks=ranks,
    )


def summed(*facts: object, backend: str = "nccl", patience_s: float = 40.0, **odd: Any) -> Nodes:
    """Three nodes of one rank each; the keywords change all ranks, or one by its node's name."""
    own = {name: odd.pop(name) for name in list(odd) if name in ("n0", "n1", "n2")}
    return nodes(
        *(
            node(
                f"n{i}",
                part(
                    i,
                    rank(i, **{**odd, **own.get(f"n{i}", {})}),
                    backend=backend,
                    patience_s=patience_s,
                ),
                *facts,
            )
            for i in range(3)
        )
    )


def ethernet(speed: int | None) -> Interfaces:
    from infer_doctor.facts.network import Address

    address = Address(address="10.0.0.1", network="10.0.0.0", prefix=24)
    return Interfaces(
        rows=(
            Interface(
                name="eth0",
                up=True,
                running=True,
                loopback=False,
                mtu=1500,
                speed=speed,
                addresses=(address,),
            ),
        )
    )


class TestContract:
    def test_failed(self) -> None:
        hangs = summed(step="all_reduce", wrong=None, seconds=None)
        contract(allreduce_failed, fires=[hangs], passes=[summed()])

    def test_wrong(self) -> None:
        contract(sum_wrong, fires=[summed(n1={"wrong": 3})], passes=[summed()])

    def test_rdma(self) -> None:
        contract(rdma_unused, fires=[summed(CARD, via=("NET/Socket/0",))], passes=[summed(CARD)])

    def test_slow(self) -> None:
        fires = summed(PORTS, n2={"seconds": 0.5})
        contract(allreduce_slow, fires=[fires], passes=[summed(PORTS)])


class TestFailed:
    def texts(self, found: Nodes) -> list[str]:
        result = examine(allreduce_failed, found)
        assert result.outcome == "failed", result.reason
        return [finding.message for finding in result.findings]

    def test_a_rank_that_cannot_reach_the_first(self) -> None:
        at = {"step": "the store of rank 0", "error": TIMED_OUT, "failed_s": 20.0}
        waits = {"step": "the roll call", "absent": (2,)}
        (text,) = self.texts(summed(n0=waits, n1=waits, n2=at))
        assert "rank 2 on n2 cannot reach rank 0 on n0: DistNetworkError" in text
        assert "(n0, 35985)" in text, "a node is named instead of its address"
        (finding,) = examine(allreduce_failed, summed(n0=waits, n1=waits, n2=at)).findings
        assert "all ports between n2 and the other nodes" in finding.fixes[0].title

    def test_one_whose_interpreter_came_late_is_no_fault_of_the_network(self) -> None:
        at = {
            "step": "the store of rank 0",
            "error": "DistNetworkError: Connection refused",
            "failed_s": 20.0,
            "tried_s": 1.0,
        }
        waits = {"step": "the roll call", "absent": (2,)}
        result = examine(allreduce_failed, summed(n0=waits, n1=waits, n2=at))
        assert result.outcome == "blocked"
        assert "rank 2 on n2 did not come to rank 0 on n0" in str(result.reason)

    def test_a_node_without_torch_is_named_with_its_reason(self) -> None:
        waits = {"step": "the roll call", "absent": (2,), "wrong": None}
        rows = summed(n0=waits, n1=waits).nodes[:2]
        lost = node(
            "n2",
            silent(NodeSum, "torch.distributed cannot be imported"),
            PeerLinks(own=2, count=3, met=3, rows=()),
        )
        result = examine(allreduce_failed, nodes(*rows, lost))
        assert result.outcome == "blocked"
        assert str(result.reason) == (
            "rank 2 on n2 did not come to rank 0 on n0: torch.distributed cannot be imported"
        )

    def test_the_first_failure_is_named_and_not_who_waited_for_it(self) -> None:
        gone = {
            "step": "init_process_group",
            "error": "RuntimeError: Unable to find address for: eth0",
            "failed_s": 0.01,
        }
        waits = {"step": "init_process_group", "error": WAITING, "failed_s": 34.0}
        found = summed(n0=waits, n1=gone, n2=waits)
        (text,) = self.texts(found)
        assert "rank 1 on n1 fails in init_process_group: RuntimeError: Unable" in text
        (finding,) = examine(allreduce_failed, found).findings
        assert finding.fixes[0].id == "name-interface"

    def test_ranks_that_hang_are_those_that_came_least_far(self) -> None:
        waits = {"step": "all_reduce", "error": WAITING, "failed_s": 34.0}
        hangs = {"step": "init_process_group"}
        (text,) = self.texts(summed(n0=waits, n1=hangs, n2=hangs))
        assert "rank 1 on n1, rank 2 on n2 did not come back from init_process_group" in text
        assert "within 40 s" in text

    @pytest.mark.parametrize(
        ("patience_s", "outcome", "confidence"),
        [(8.0, "blocked", None), (18.0, "failed", "likely"), (40.0, "failed", "certain")],
    )
    def test_little_patience_proves_little(
        self, patience_s: float, outcome: str, confidence: str | None
    ) -> None:
        result = examine(allreduce_failed, summed(patience_s=patience_s, n1={"step": "all_reduce"}))
        assert result.outcome == outcome
        assert [row.confidence for row in result.findings] == ([confidence] if confidence else [])

    def test_a_full_gpu_says_nothing_of_the_links(self) -> None:
        full = {
            "step": "all_reduce",
            "error": "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
            "failed_s": 1.0,
        }
        result = examine(allreduce_failed, summed(n1=full, n2={"step": "all_reduce"}))
        assert result.outcome == "blocked"
        assert "rank 1 on n1: does the engine run there?" in str(result.reason)

    def test_a_node_without_ranks_takes_no_part(self) -> None:
        rows = [node(f"n{i}", replace(part(i, rank(i - 1)), counts=(0, 1, 1))) for i in (1, 2)]
        head = node("n0", replace(part(0), counts=(0, 1, 1)))
        assert examine(allreduce_failed, nodes(head, *rows)).outcome == "passed"

    def test_parts_of_two_meetings_are_not_judged(self) -> None:
        other = node("n3", replace(part(3, rank(3)), counts=(1, 1, 1, 1)))
        result = examine(allreduce_failed, nodes(*summed().nodes, other))
        assert result.outcome == "blocked"

    def test_two_nodes_of_one_number_are_not_judged(self) -> None:
        other = node("n3", part(2, rank(2, step="all_reduce", seconds=None)))
        result = examine(allreduce_failed, nodes(*summed().nodes, other))
        assert result.outcome == "blocked"


class TestSpeed:
    @pytest.mark.parametrize(
        ("facts", "via", "seconds", "outcome"),
        [
            ((PORTS,), "NET/IB/0", 0.02, "passed"),  # 17.9 of 12.5 GB/s
            ((PORTS,), "NET/IB/0", 0.05, "failed"),  # 7.2 GB/s
            ((ethernet(10_000),), "NET/Socket/0", 1.0, "passed"),  # 0.36 of 0.31 GB/s
            ((ethernet(10_000),), "NET/Socket/0", 2.0, "failed"),
            (
                (ethernet(100_000),),
                "NET/Socket/0",
                0.4,
                "passed",
            ),  # 0.89 GB/s; TCP is held to 25 Gbit/s
            ((ethernet(None),), "NET/Socket/0", 2.0, "blocked"),
            (
                (GpuNvlinks(links={0: (True,) * 18}, source="NVML"),),
                "NET/AWS",  # "NET/AWS Libfabric/0/GDRDMA": a plugin, not NVLink
                0.01,
                "blocked",
            ),
            (
                (GpuNvlinks(links={0: (True,) * 18}, source="NVML"),),
                "P2P/MNNVL",
                0.01,  # 35.8 of 112.5 GB/s
                "failed",
            ),
            (
                (
                    proven(GpuNvlinks, "none"),
                    GpuPcie(
                        rows=(
                            PcieRow(
                                index=0,
                                generation=4,
                                width=16,
                                max_generation=4,
                                max_width=16,
                                state=None,
                                utilisation=None,
                            ),
                        ),
                        source="NVML",
                    ),
                ),
                "SHM/direct/direct",
                0.2,  # 1.8 of 3.2 GB/s
                "failed",
            ),
        ],
    )
    def test_the_bound_is_that_of_the_link(
        self, facts: tuple[object, ...], via: str, seconds: float, outcome: str
    ) -> None:
        result = examine(allreduce_slow, summed(*facts, via=(via,), seconds=seconds))
        assert result.outcome == outcome, result

    def test_gloo_is_not_judged(self) -> None:
        result = examine(allreduce_slow, summed(PORTS, backend="gloo", seconds=5.0, via=()))
        assert result.outcome == "not_applicable"

    def test_a_variable_that_turns_infiniband_off_is_the_cause(self) -> None:
        found = summed(CARD, via=("NET/Socket/0",), settings=("NCCL_IB_DISABLE=1",))
        (finding,) = examine(rdma_unused, found).findings
        assert finding.confidence == "certain"
        assert finding.message.endswith("NCCL_IB_DISABLE=1 is set")
        assert finding.fixes[0].title == "Take NCCL_IB_DISABLE out on all nodes"

    def test_a_node_without_a_device_explains_tcp(self) -> None:
        found = summed(proven(Rdma, "no RDMA device"), via=("NET/Socket/0",))
        assert examine(rdma_unused, found).outcome == "not_applicable"

    def test_kinds(self) -> None:
        names = ["NET/IB/0/GDRDMA", "NET/Socket/1", "SHM/direct/direct", "P2P/CUMEM", "NVLS"]
        kinds = ["RDMA", "Ethernet", "PCIe", None, "NVLink"]
        assert [kind_of(name) for name in names] == kinds


def test_a_node_that_took_no_part_leaves_it_undecided() -> None:
    """Its GPUs were in use; a head node without GPUs has no part anyway."""
    rows = [
        node("a", replace(part(0, rank(0)), counts=(1, 1, 0))),
        node("b", replace(part(1, rank(1)), counts=(1, 1, 0))),
    ]
    busy = node("c", silent(NodeSum, "GPU 0 holds 130.5 GiB: a sum would disturb what runs there"))
    result = examine(allreduce_failed, nodes(*rows, busy))
    assert result.outcome == "blocked"
    assert result.reason is not None and result.reason.startswith(
        "the sum was made without c: GPU 0"
    )
    head = node("c", silent(NodeSum, "no torch"), proven(Gpus, "no GPU on the bus"))
    assert examine(allreduce_failed, nodes(*rows, head)).outcome == "passed"
