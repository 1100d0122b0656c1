"""The network between nodes as each node sees its part: interfaces and subnets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infer_doctor.cluster.compare import MASK, MASKED, advise
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.network import (
    IFNAMES,
    Address,
    Interfaces,
    chosen,
    leading,
)
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding, Missing
from infer_doctor.registry import check
from infer_doctor.units import names as words


def variables(node: Node, launch: Launch | None, *deciding: str) -> Mapping[str, str] | Missing:
    """What the engine would see on a node: its own variables under those of the launch."""
    found = node.get(Environ)
    if isinstance(found, Missing):
        return found
    return of_engine(launch, found, *deciding)


@check("cluster-interface-missing", severity="error", category="nccl_network", since="0.3")
def interface_missing(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """An interface that NCCL or Gloo is told to use does not exist on a node, or is down.

    ## Why it matters
    NCCL stops with "Bootstrap : no socket interface found", Gloo with "Unable to find address for:
    IFNAME", only on that node; the others wait for it.

    ## How it decides
    NCCL_SOCKET_IFNAME (names to begin with, `=` for whole ones, `^` for those to leave out),
    GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME (whole names, each of which must be there) as each node
    has them, with the launch's own over them, against its interfaces: none of that name, not up, without
    an address, or lo, which leads to no other node. `^docker0` leaves lo, and NCCL may take it.

    ## Fix safety
    Manual: another name for that node, or its network.
    """
    unknown: list[str] = []
    named = 0
    alone = one_machine(nodes.nodes)
    alike: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes.nodes:
        values, rows = variables(node, launch, *IFNAMES), node.get(Interfaces)
        if isinstance(values, Missing):
            unknown.append(f"the variables of {node.name} are not known: {values.reason}")
            continue
        told = _naming(values)
        named += len(told)
        if isinstance(rows, Missing) and told:
            unknown.append(f"the interfaces of {node.name} are not known: {rows.reason}")
            continue
        problems = [
            f"{name}={value} {problem}"
            for name, value in told.items()
            if (problem := _problem(name, value, rows, alone=alone))
        ]
        if problems:
            alike.setdefault(tuple(problems), []).append(node)
    for texts, group in alike.items():
        yield _missing_interface(nodes, group, texts)
    if not alike and unknown:
        raise Unavailable(unknown[0])
    if not alike and not named:
        raise NotApplicable("no variable names an interface")


def loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def one_machine(nodes: Sequence[Node]) -> bool:
    """Whether all are surely one machine, such as containers of it."""
    marks = {node.machine for node in nodes}
    return len(marks) == 1 and None not in marks


def _naming(values: Mapping[str, str]) -> dict[str, str]:
    """The variables that choose interfaces."""
    found = {name: values.get(name, "") for name in IFNAMES[:3]}
    return {name: value for name, value in found.items() if value}


def _problem(name: str, value: str, rows: Interfaces, *, alone: bool) -> str | None:
    parts = [part for part in value.split(",") if part]
    if name != "GLOO_SOCKET_IFNAME" or len(parts) < 2:
        return _none_of(name, value, rows, alone=alone)
    for part in parts:  # Gloo takes a device for each name (torch, ProcessGroupGloo.cpp)
        if rows.named(part) is None:
            return f"names {part}, which is not there,"
        if problem := _none_of(name, part, rows, alone=alone):
            return problem
    return None


def _none_of(name: str, value: str, rows: Interfaces, *, alone: bool) -> str | None:
    """What is wrong with the interfaces that a value chooses."""
    found = chosen(name, value, rows)
    if not found:
        leaves = name == "NCCL_SOCKET_IFNAME" and value.startswith("^")
        return f"{'leaves' if leaves else 'names'} no interface"
    if not any(row.up for row in found):
        return f"names {found[0].name}, which is down,"
    able = [row for row in found if row.up and row.addresses]
    if not able:
        return f"names {found[0].name}, which has no address,"
    own = [row for row in able if all(loopback(a.address) for a in row.addresses)]
    if alone or not own:
        return None
    if len(own) == len(able):
        return f"names {own[0].name}, which leads to no other node,"
    return f"leaves {own[0].name}, which NCCL may take," if value.startswith("^") else None


def _missing_interface(nodes: Nodes, group: list[Node], problems: tuple[str, ...]) -> Finding:
    bad = [node.name for node in group]
    others = [node.name for node in nodes.nodes if node.name not in bad]
    rows = group[0].get(Interfaces)
    here = [row.name for row in rows.rows if row.up and row.addresses and not row.loopback]
    there = f" on {words(bad)}, unlike on {words(others)}" if others else " on any node"
    names = " and ".join(problem.partition("=")[0] for problem in problems)
    return Finding(
        about=f"interfaces of {' '.join(bad[:20])}",
        message=f"{' and '.join(problems)}{there}",
        evidence=(
            *(Evidence(source=words(bad), excerpt=problem) for problem in problems),
            Evidence(
                source=f"{bad[0]}: interfaces",
                excerpt=", ".join(
                    f"{row.name} ({'up' if row.up else 'down'})" for row in rows.rows[:20]
                ),
            ),
        ),
        confidence="likely" if all(" may take," in problem for problem in problems) else "certain",
        fixes=(
            advise(
                "name-interface",
                f"Set {names} on {words(bad)} to the interface that leads to the other nodes"
                + (f": one of {', '.join(here[:5])}" if here else ""),
            ),
        ),
    )


@check("cluster-subnet-differs", severity="warning", category="nccl_network", since="0.3")
def subnet_differs(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """The interfaces that NCCL or Gloo uses are in another subnet on some nodes.

    ## Why it matters
    Ranks connect from one such address to the other. Where no route leads from subnet to subnet, the
    first collective hangs or ends with "No route to host".

    ## How it decides
    The networks of the interfaces that NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME choose, else of all
    that are up and lead to other nodes (not lo, docker, veth, br-), without those of a link (fe80::) and
    without addresses that another machine has too, as bridges do. A node that shares no network with
    most, or has none, is told. Routed networks are no fault, so the finding is only likely, and where
    each node has a network of its own, as in fabrics that route to every host, there is none.

    ## Fix safety
    Manual: the network of a machine.
    """
    shared = shared_addresses(nodes)
    told: set[tuple[str, ...]] = set()
    unknown: list[str] = []
    enough = False
    for names in _ways(nodes, launch):
        networks: dict[str, frozenset[str]] = {}
        without: list[str] = []
        for node in nodes.nodes:
            found = _networks(node, launch, nodes, names, shared)
            if isinstance(found, Missing):
                unknown.append(f"the networks of {node.name} are not known: {found.reason}")
            elif found:
                networks[node.name] = found
            elif len(names) > 1:  # of a named interface tells cluster-interface-missing
                without.append(node.name)
        enough = enough or len(networks) >= 2
        if without and networks:
            told.add(("", *without))
            yield _without(without)
        odd = _odd(networks)
        if odd and odd[0] not in told:
            told.add(odd[0])
            yield _apart(networks, *odd)
    if told:
        return
    if unknown:
        raise Unavailable(unknown[0])
    if not enough:
        raise NotApplicable("fewer than two nodes have an interface that leads to others")


def _ways(nodes: Nodes, launch: Launch | None) -> list[tuple[str, ...]]:
    """The variables by which interfaces are chosen: NCCL's and Gloo's apart where they are set."""
    rows = [variables(node, launch, *IFNAMES) for node in nodes.nodes]
    known = [row for row in rows if not isinstance(row, Missing)]
    found = [(name,) for name in IFNAMES[:2] if any(row.get(name) for row in known)]
    return [*found] or [IFNAMES[:2]]


def _odd(networks: Mapping[str, frozenset[str]]) -> tuple[tuple[str, ...], str] | None:
    """The nodes that are not in the network of most, and that network."""
    members: dict[str, list[str]] = {}
    for name, own in networks.items():
        for network in sorted(own):
            members.setdefault(network, []).append(name)
    by_size = sorted(members.items(), key=lambda row: -len(row[1]))
    if not by_size or (len(by_size) >= 3 and len(by_size[0][1]) == 1):  # routed
        return None
    most, have = by_size[0]
    odd = tuple(name for name in networks if name not in have)
    return (odd, most) if odd else None


def _apart(networks: Mapping[str, frozenset[str]], odd: tuple[str, ...], most: str) -> Finding:
    have = [name for name, own in networks.items() if most in own]
    theirs = sorted({network for name in odd for network in networks[name]})
    tie = len(odd) >= len(have)
    return Finding(
        about=f"subnet of {' '.join(odd[:20])}",
        message=f"{words(odd)} {'is' if len(odd) == 1 else 'are'} in {', '.join(theirs[:4])}; "
        f"{words(have)} {'is' if len(have) == 1 else 'are'} in {most}"
        f"{', and neither is most' if tie else ''}: they share no subnet",
        confidence="possible" if tie else "likely",
        evidence=(
            Evidence(source=words(odd), excerpt=", ".join(theirs[:8])),
            Evidence(source=words(have), excerpt=most),
        ),
        fixes=(
            advise(
                "same-subnet",
                f"Give {words(odd)} an address in {most}, or name the interface that has one in "
                "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
            ),
        ),
    )


def _without(names: list[str]) -> Finding:
    return Finding(
        about=f"subnet of {' '.join(names[:20])}",
        message=f"{words(names)} {'has' if len(names) == 1 else 'have'} no interface that is up and has "
        "an address which leads to the other nodes",
        confidence="likely",
        evidence=(
            Evidence(source=words(names), excerpt="no address but of lo, bridges and links"),
        ),
        fixes=(advise("join-network", f"Give {words(names)} a network that leads to the others"),),
    )


def shared_addresses(nodes: Nodes) -> frozenset[str]:
    """The addresses that several machines have: of bridges that are made alike, or a mistake."""
    owners: dict[str, set[str]] = {}
    for node in nodes.nodes:
        rows = node.fact(Interfaces)
        if rows is None or node.machine is None:
            continue
        for address in (a.address for row in rows.rows if not row.loopback for a in row.addresses):
            if nodes.comparable or not MASK.search(address):
                owners.setdefault(address, set()).add(node.machine)
    return frozenset(address for address, machines in owners.items() if len(machines) > 1)


def leading_addresses(
    node: Node, launch: Launch | None, names: Sequence[str] = IFNAMES[:2]
) -> list[Address] | Missing:
    """The addresses by which a node may reach others; link-local ones lead over one link only."""
    values, rows = variables(node, launch, *IFNAMES), node.get(Interfaces)
    if isinstance(rows, Missing):
        return rows
    used = leading(rows, {} if isinstance(values, Missing) else values, names)
    return [a for row in used if row.up for a in row.addresses if a.link is not True]


def _networks(
    node: Node, launch: Launch | None, nodes: Nodes, names: Sequence[str], shared: frozenset[str]
) -> frozenset[str] | Missing:
    """The networks by which a node may reach others; those of shared addresses where it has no other."""
    found = leading_addresses(node, launch, names)
    if isinstance(found, Missing):
        return found
    old = [a for a in found if a.link is None and a.prefix > 32]
    rest = [a for a in found if a not in old]
    if old and not rest:
        reason = "the snapshot does not tell which addresses of version 6 lead beyond the link"
        return Missing(fact="Interfaces", reason=reason, kind="unavailable")
    if any(MASK.search(a.network) for a in rest) and not nodes.comparable:
        return Missing(fact="Interfaces", reason=MASKED, kind="unavailable")
    own = [a for a in rest if a.address not in shared] or rest
    return frozenset(f"{a.network}/{a.prefix}" for a in own)
