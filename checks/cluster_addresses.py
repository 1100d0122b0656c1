"""The addresses by which nodes name themselves and the first of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from infer_doctor.checks.cluster_network import (
    leading_addresses,
    loopback,
    one_machine,
    shared_addresses,
    variables,
)
from infer_doctor.cluster.compare import MASK, MASKED, advise
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.network import IFNAMES, Interfaces, OwnName
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, whole, word
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding, Missing, Severity
from infer_doctor.registry import check
from infer_doctor.units import names as words

ADDRESS = re.compile(r"<ip:[^>]+>|\d+(?:\.\d+){3}|[0-9a-fA-F:.]*:[0-9a-fA-F:.]+")
"""An address, masked or not; anything else is a name."""

FIRST = ("MASTER_ADDR", "VLLM_DP_MASTER_IP")


@check("cluster-address-shared", severity="error", category="nccl_network", since="0.3")
def address_shared(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """Several nodes have the same address or VLLM_HOST_IP, or a node has one that is not its own.

    ## Why it matters
    vLLM tells the other nodes VLLM_HOST_IP as the node's own. One that is set in the image or the
    launch script is the same everywhere, and all ranks connect to one node. Containers on Docker's
    own bridge have 172.17.0.2 on each machine: none reaches the other.

    ## How it decides
    VLLM_HOST_IP of each node, with the launch's own over it: the same on two machines, or not an
    address of an interface of that node. And nodes of several machines whose every address that
    leads to others another one of them has too.

    ## Fix safety
    Manual: each node needs its own.
    """
    owners: dict[str, list[Node]] = {}
    unknown: list[str] = []
    found = 0
    for node in nodes.nodes:
        values, rows = variables(node, launch, *IFNAMES), node.get(Interfaces)
        if isinstance(values, Missing):
            unknown.append(f"the variables of {node.name} are not known: {values.reason}")
            continue
        value = values.get("VLLM_HOST_IP")
        if not value:
            continue
        if MASK.search(value) and not nodes.comparable:
            unknown.append(MASKED)
        else:
            owners.setdefault(value, []).append(node)
        if isinstance(rows, Missing):
            unknown.append(f"the interfaces of {node.name} are not known: {rows.reason}")
    for value, group in owners.items():
        if len(group) > 1 and one_machine(group):
            continue
        if len(group) > 1:
            found += 1
            names = [node.name for node in group]
            yield _address(
                f"VLLM_HOST_IP={value} is set on {words(names)}: it can be the address of one",
                group,
                value,
            )
            continue
        its = group[0].fact(Interfaces)
        if not ADDRESS.fullmatch(value):
            unknown.append(f"VLLM_HOST_IP={value} is a name, which was not looked up")
        elif its and not any(a.address == value for row in its.rows for a in row.addresses):
            found += 1
            yield _address(f"VLLM_HOST_IP={value} is no address of {group[0].name}", group, value)
    for finding in _doubles(nodes, launch, told=owners):
        found += 1
        yield finding
    if not found and unknown:
        raise Unavailable(unknown[0])
    seen = sum(node.fact(Interfaces) is not None for node in nodes.nodes)
    if not found and not owners and seen < 2:
        raise NotApplicable(
            "VLLM_HOST_IP is not set on any node, and their addresses are not known"
        )


def _doubles(nodes: Nodes, launch: Launch | None, told: Mapping[str, object]) -> Iterator[Finding]:
    """Nodes of several machines that have no address of their own."""
    shared = shared_addresses(nodes)
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in nodes.nodes:
        rows = leading_addresses(node, launch)
        own = () if isinstance(rows, Missing) else tuple(dict.fromkeys(row.address for row in rows))
        if own and shared.issuperset(own) and not any(address in told for address in own):
            alike.setdefault(own, []).append(node.name)
    for own, group in alike.items():
        yield Finding(
            about=f"addresses of {' '.join(group[:20])}",
            message=f"{words(group)} {'have' if len(group) > 1 else 'has'} only {words(own[:4])}, "
            "an address that another machine has too: the nodes cannot reach each other by it",
            evidence=(Evidence(source=words(group), excerpt=", ".join(own[:8])),),
            fixes=(
                advise(
                    "own-network",
                    f"Start the containers on {words(group)} in the host's network (--network host), "
                    "or give each node an address of its own",
                ),
            ),
        )


def _address(message: str, group: list[Node], value: str) -> Finding:
    names = [node.name for node in group]
    return Finding(
        about=f"VLLM_HOST_IP of {' '.join(names[:20])}",
        message=message,
        evidence=(Evidence(source=", ".join(names[:20]), excerpt=f"VLLM_HOST_IP={value}"),),
        fixes=(
            advise(
                "own-address",
                f"Set VLLM_HOST_IP on {words(names)} to the node's own address, or take it out",
            ),
        ),
    )


@check("cluster-name-loopback", severity="error", category="nccl_network", since="0.3")
def name_loopback(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """A node's own name leads to itself only, or nowhere.

    ## Why it matters
    Gloo and torch ask for the address of the host name and give it to the other nodes. 127.0.1.1,
    which Debian's installer writes into /etc/hosts, is themselves for each of them: "Connection
    refused", or a hang.

    ## How it decides
    What getaddrinfo(3) gives for the node's own name: only loopback addresses, or an error. A
    warning where GLOO_SOCKET_IFNAME is set, for Gloo then takes the interface's address.

    ## Fix safety
    Manual: /etc/hosts of another machine.
    """
    unknown: list[str] = []
    bad: dict[tuple[str, bool], list[str]] = {}
    for node in nodes.nodes:
        found = node.get(OwnName)
        values = variables(node, launch)
        named = not isinstance(values, Missing) and "GLOO_SOCKET_IFNAME" in values
        if isinstance(found, Missing):
            unknown.append(f"the name of {node.name} was not looked up: {found.reason}")
        elif found.error:
            bad.setdefault((f"leads nowhere ({found.error})", named), []).append(node.name)
        elif found.addresses and all(loopback(a) for a in found.addresses):
            bad.setdefault((f"leads to {found.addresses[0]} only", named), []).append(node.name)
    for (words_of, named), names in bad.items():
        severity: Severity = "warning" if named else "error"
        yield Finding(
            about=f"host name of {' '.join(names[:20])}",
            message=f"the own host name {words_of} on {words(names)}",
            severity=severity,
            confidence="likely",
            evidence=(Evidence(source=", ".join(names[:20]), excerpt=f"getaddrinfo: {words_of}"),),
            fixes=(
                advise(
                    "name-address",
                    f"Give the host name on {words(names)} its address in /etc/hosts, or set "
                    "GLOO_SOCKET_IFNAME and VLLM_HOST_IP",
                ),
            ),
        )
    if not bad and unknown:
        raise Unavailable(unknown[0])


@check("cluster-master-elsewhere", severity="warning", category="nccl_network", since="0.3")
def master_elsewhere(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """The address of the first rank is that of no node, or leads each node to itself.

    ## Why it matters
    All ranks connect to the first one. With 127.0.0.1 or localhost each node waits for the others at
    home; with the address of a machine that has no rank all of them wait. Nothing is said for ten
    minutes and more.

    ## How it decides
    --master-addr of a launch with --nnodes, else MASTER_ADDR and VLLM_DP_MASTER_IP of each node, with
    the launch's own over them. A loopback address is an error where the nodes are not one machine. An
    address that no interface of any node has is only likely a fault: the first node may not be among
    those that were seen, or a service of Kubernetes leads to it. Names are not looked up.

    ## Fix safety
    Manual: it is set where the engine is started.
    """
    if one_machine(nodes.nodes):
        raise NotApplicable("all nodes are one machine")
    places, unknown = _first_places(nodes, launch)
    if not places and not unknown:
        raise NotApplicable("no node is told the address of the first rank")
    known = [rows for node in nodes.nodes if (rows := node.fact(Interfaces))]
    own = {a.address for rows in known for row in rows.rows for a in row.addresses}
    hosts = {row.hostname for node in nodes.nodes if (row := node.fact(Identity))}
    silent = [node.name for node in nodes.nodes if node.fact(Interfaces) is None]
    masked = any(MASK.search(address) for address in own)
    found = 0
    for (name, value), (group, where) in places.items():
        if loopback(value) or value == "localhost":
            text = f"{name} {value}: each of {words(group)} takes itself for the first node"
            found += 1
            yield _first(text, name, where, severity="error", sure=name not in FIRST)
        elif value in own or value in hosts:
            continue
        elif not ADDRESS.fullmatch(value):
            unknown.append(f"{name} {value} is a name, which was not looked up")
        elif MASK.search(value) and not nodes.comparable:
            unknown.append(MASKED)
        elif masked and not MASK.search(value):
            unknown.append(f"{name} {value} cannot be compared: the snapshots mask addresses")
        elif silent:
            unknown.append(f"the interfaces of {silent[0]} are not known")
        else:
            text = f"{name} {value} is no address of the {len(nodes.nodes)} nodes"
            found += 1
            yield _first(text, name, where, severity="warning", sure=False)
    if not found and unknown:
        raise Unavailable(unknown[0])


Places = dict[tuple[str, str], tuple[list[str], Sequence[Evidence]]]


def _first_places(nodes: Nodes, launch: Launch | None) -> tuple[Places, list[str]]:
    """What names the first rank, and on which nodes; and what is not known."""
    options = next((o for o in (n.fact(EngineOptions) for n in nodes.nodes) if o is not None), None)
    if options is not None and whole(options, "nnodes", 1) > 1:  # then vLLM takes no variable
        value = word(options, "master_addr")
        where = evidence(options, "master_addr", "nnodes")
        names = list(nodes.names)
        return ({("--master-addr", value): (names, where)} if value else {}), []
    groups: dict[tuple[str, str], list[str]] = {}
    unknown: list[str] = []
    for node in nodes.nodes:
        values = variables(node, launch)
        if isinstance(values, Missing):
            unknown.append(f"the variables of {node.name} are not known: {values.reason}")
            continue
        for name in FIRST:
            if value := values.get(name):
                groups.setdefault((name, value), []).append(node.name)
    places = {
        (name, value): (group, (Evidence(source=words(group), excerpt=f"{name}={value}"),))
        for (name, value), group in groups.items()
    }
    return dict(places), unknown


def _first(
    text: str, name: str, where: Sequence[Evidence], *, severity: Severity, sure: bool
) -> Finding:
    return Finding(
        about=name,
        message=text,
        severity=severity,
        confidence="certain" if sure else "likely",
        evidence=tuple(where),
        fixes=(
            advise("name-first", f"Set {name} on all nodes to the address of the node with rank 0"),
        ),
    )
