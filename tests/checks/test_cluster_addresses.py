"""The addresses by which nodes reach each other, and name the first of them."""

from __future__ import annotations

import pytest
from nodes import node, nodes

from infer_doctor.checks.cluster_addresses import address_shared, master_elsewhere, name_loopback
from infer_doctor.checks.cluster_network import interface_missing, subnet_differs
from infer_doctor.facts.engine_options import EngineOptions, Option
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.network import Address, Interface, Interfaces, OwnName
from infer_doctor.facts.nodes import Nodes
from infer_doctor.launch.model import Place
from infer_doctor.model import CheckResult
from infer_doctor.testing import contract, examine


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)


def interface(name: str, *addresses: str, loopback: bool = False) -> Interface:
    """Addresses as "10.0.0.1/24" or "fd00::1/64"."""
    rows = []
    for text in addresses:
        address, _, prefix = text.partition("/")
        head = address.rpartition(":" if ":" in address else ".")[0]
        network = f"{head}:" if ":" in address else f"{head}.0"
        rows.append(
            Address(
                address=address,
                network=network,
                prefix=int(prefix),
                link=address.startswith("fe80"),
            )
        )
    return Interface(
        name=name,
        up=True,
        running=True,
        loopback=loopback,
        mtu=1500,
        speed=None,
        addresses=tuple(rows),
    )


LO = interface("lo", "127.0.0.1/8", loopback=True)


def cluster(*rows: list[Interface], **variables: str) -> Nodes:
    """Nodes a, b, ... of different machines."""
    return nodes(
        *(
            node("abcdef"[i], environ(**variables), Interfaces(rows=tuple(own)), machine=f"m{i}")
            for i, own in enumerate(rows)
        )
    )


def eth(*networks: int) -> list[list[Interface]]:
    return [[LO, interface("eth0", f"10.0.{n}.{i + 1}/24")] for i, n in enumerate(networks)]


def words(result: CheckResult) -> list[str]:
    return [finding.message for finding in result.findings]


def spread(address: str) -> EngineOptions:
    given = {"nnodes": 2, "master_addr": address}
    place = Place(file="command line")
    return EngineOptions(
        engine="vllm",
        version="0.32.0",
        basis="installed source",
        exact=True,
        entry="serve",
        model=None,
        given={
            name: Option(name=name, flag=f"--{name}", value=value, text=str(value), place=place)
            for name, value in given.items()
        },
    )


def test_containers_on_the_bridges_of_several_hosts() -> None:
    alike = [[LO, interface("eth0", "172.17.0.2/16")] for _ in range(2)]
    own = [[LO, interface("eth0", f"172.17.0.{i}/16")] for i in (2, 3)]
    contract(address_shared, fires=[cluster(*alike)], passes=[cluster(*own)])
    (text,) = words(examine(address_shared, cluster(*alike)))
    assert text.startswith("a and b have only 172.17.0.2, an address that another machine has too")


def test_containers_of_one_machine_share_its_addresses() -> None:
    row = Interfaces(rows=(LO, interface("eth0", "10.0.0.1/24")))
    one = nodes(
        *(node(name, environ(VLLM_HOST_IP="10.0.0.1"), row, machine="m") for name in ("a", "b"))
    )
    assert examine(address_shared, one).outcome == "passed"


def test_a_bridge_that_all_have_hides_no_other_subnet() -> None:
    """podman0 has one address on every machine: nobody shares a network by it."""
    rows = [[*own, interface("podman0", "10.88.0.1/16")] for own in eth(0, 0, 9)]
    (text,) = words(examine(subnet_differs, cluster(*rows)))
    assert text == "c is in 10.0.9.0/24; a and b are in 10.0.0.0/24: they share no subnet"
    assert examine(address_shared, cluster(*rows)).outcome == "passed"


def test_what_nccl_leaves_out_is_no_network() -> None:
    rows = [
        [*own, interface("ens1", f"10.1.{i // 2}.{i}/24")] for i, own in enumerate(eth(0, 0, 0))
    ]
    assert examine(subnet_differs, cluster(*rows)).outcome == "passed"
    (text,) = words(examine(subnet_differs, cluster(*rows, NCCL_SOCKET_IFNAME="^eth0,lo")))
    assert text.startswith("c is in 10.1.1.0/24; a and b are in 10.1.0.0/24")


def test_gloo_is_judged_beside_nccl() -> None:
    rows = [[*own, interface("ib0", f"10.1.0.{i + 1}/24")] for i, own in enumerate(eth(0, 9, 0))]
    told = {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "eth0"}
    (text,) = words(examine(subnet_differs, cluster(*rows, **told)))
    assert text.startswith("b is in 10.0.9.0/24")
    same = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
    assert len(words(examine(subnet_differs, cluster(*rows, **same)))) == 1


def test_version_6_counts_without_addresses_of_a_link() -> None:
    rows = [[LO, interface("eth0", f"fe80::{i}/64", f"fd00::{i}/64")] for i in (1, 2)]
    assert examine(subnet_differs, cluster(*rows)).outcome == "passed"
    rows.append([LO, interface("eth0", "fe80::3/64", "fd00:9::3/64")])
    (text,) = words(examine(subnet_differs, cluster(*rows)))
    assert text.startswith("c is in fd00:9::/64; a and b are in fd00::/64")


def test_a_node_without_a_network_is_told() -> None:
    (text,) = words(examine(subnet_differs, cluster(*eth(0, 0), [LO])))
    assert text.startswith("c has no interface that is up and has an address")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("^docker0", "NCCL_SOCKET_IFNAME=^docker0 leaves lo, which NCCL may take, on any node"),
        ("^eth,lo", "NCCL_SOCKET_IFNAME=^eth,lo leaves no interface on any node"),
        ("lo", "NCCL_SOCKET_IFNAME=lo names lo, which leads to no other node, on any node"),
        ("^lo", None),
        ("^docker,lo", None),
    ],
)
def test_lo_for_nccl(value: str, text: str | None) -> None:
    found = words(examine(interface_missing, cluster(*eth(0, 0), NCCL_SOCKET_IFNAME=value)))
    assert found == ([text] if text else [])


def test_gloo_needs_each_of_its_names() -> None:
    rows = cluster(*eth(0, 0), GLOO_SOCKET_IFNAME="eth0,eth1")
    (text,) = words(examine(interface_missing, rows))
    assert text.startswith("GLOO_SOCKET_IFNAME=eth0,eth1 names eth1, which is not there,")
    rows = cluster(*eth(0, 0), GLOO_SOCKET_IFNAME="^docker0")
    assert words(examine(interface_missing, rows)) == [
        "GLOO_SOCKET_IFNAME=^docker0 names no interface on any node"
    ]


def test_a_name_that_leads_home_is_graver_without_an_interface_for_gloo() -> None:
    bad = OwnName(listed=("127.0.1.1",), addresses=("127.0.1.1",), error=None)
    rows = nodes(node("a", bad, environ(GLOO_SOCKET_IFNAME="eth0")), node("b", bad, environ()))
    found = examine(name_loopback, rows).findings
    assert {finding.message[-4:]: finding.severity for finding in found} == {
        "on a": "warning",
        "on b": "error",
    }


class TestMaster:
    def test_contract(self) -> None:
        fires = [cluster(*eth(0, 0), MASTER_ADDR=value) for value in ("127.0.0.1", "10.0.0.9")]
        passes = [cluster(*eth(0, 0), MASTER_ADDR="10.0.0.1")]
        contract(master_elsewhere, fires=fires, passes=passes)

    def test_home_is_an_error_and_another_address_a_warning(self) -> None:
        home = examine(master_elsewhere, cluster(*eth(0, 0), MASTER_ADDR="localhost"))
        assert words(home) == [
            "MASTER_ADDR localhost: each of a and b takes itself for the first node"
        ]
        other = examine(master_elsewhere, cluster(*eth(0, 0), MASTER_ADDR="10.0.0.9"))
        assert words(other) == ["MASTER_ADDR 10.0.0.9 is no address of the 2 nodes"]
        assert [row.findings[0].severity for row in (home, other)] == ["error", "warning"]

    def test_the_option_counts_before_the_variable(self) -> None:
        rows = [Interfaces(rows=tuple(own)) for own in eth(0, 0)]

        def given(address: str) -> Nodes:
            told = (environ(MASTER_ADDR="127.0.0.1"), spread(address))
            return nodes(*(node("ab"[i], *told, rows[i], machine=f"m{i}") for i in range(2)))

        assert examine(master_elsewhere, given("10.0.0.2")).outcome == "passed"
        assert words(examine(master_elsewhere, given("10.0.0.9"))) == [
            "--master-addr 10.0.0.9 is no address of the 2 nodes"
        ]

    def test_what_cannot_be_compared_is_undecided(self) -> None:
        masked = [[LO, interface("eth0", f"<ip:a.{i}>/24")] for i in (1, 2)]
        assert examine(master_elsewhere, cluster(*masked, MASTER_ADDR="10.0.0.9")).outcome == (
            "blocked"
        )
        name = examine(master_elsewhere, cluster(*eth(0, 0), MASTER_ADDR="head.example"))
        assert name.reason == "MASTER_ADDR head.example is a name, which was not looked up"
        partly = nodes(*cluster(*eth(0), MASTER_ADDR="10.0.0.9").nodes, node("b", environ()))
        assert examine(master_elsewhere, partly).outcome == "blocked"

    def test_nobody_is_told(self) -> None:
        assert examine(master_elsewhere, cluster(*eth(0, 0))).outcome == "not_applicable"
