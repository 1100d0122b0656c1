"""The network between nodes as each node sees its part: interfaces, subnets, addresses, names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.cluster.compare import MASK, MASKED, advise
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.network import IFNAMES, Interfaces, OwnName, chosen, leading
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding, Missing, Severity
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
    GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME (whole names) as each node has them, with the launch's own
    over them, against its interfaces: none of that name, not up, or without an address.

    ## Fix safety
    Manual: another name for that node, or its network.
    """
    unknown: list[str] = []
    named = 0
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
            if (problem := _problem(name, value, rows))
        ]
        if problems:
            alike.setdefault(tuple(problems), []).append(node)
    for texts, group in alike.items():
        yield _missing_interface(nodes, group, texts)
    if not alike and unknown:
        raise Unavailable(unknown[0])
    if not alike and not named:
        raise NotApplicable("no variable names an interface")


def _naming(values: Mapping[str, str]) -> dict[str, str]:
    """The variables that name interfaces to use."""
    found = {name: values.get(name, "") for name in IFNAMES[:3]}
    return {name: value for name, value in found.items() if value and value[0] != "^"}


def _problem(name: str, value: str, rows: Interfaces) -> str | None:
    found = chosen(name, value, rows)
    if not found:
        return "names no interface"
    if not any(row.up for row in found):
        return f"names {found[0].name}, which is down,"
    if not any(row.up and row.addresses for row in found):
        return f"names {found[0].name}, which has no address,"
    return None


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
    The IPv4 networks of the interfaces that NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names, else of
    all that are up and lead to other nodes (not lo, docker, veth, br-). A node that shares no
    network with most is told. Routed networks are no fault, so the finding is only likely, and where
    each node has a network of its own, as in fabrics that route to every host, there is none.

    ## Fix safety
    Manual: the network of a machine.
    """
    networks: dict[str, frozenset[str]] = {}
    unknown: list[str] = []
    for node in nodes.nodes:
        found = _networks(node, launch, nodes)
        if isinstance(found, Missing):
            unknown.append(f"the networks of {node.name} are not known: {found.reason}")
        elif found:
            networks[node.name] = found
    shared: dict[str, list[str]] = {}
    for name, own in networks.items():
        for network in sorted(own):
            shared.setdefault(network, []).append(name)
    by_size = sorted(shared.items(), key=lambda row: -len(row[1]))
    routed = len(by_size) >= 3 and len(by_size[0][1]) == 1
    odd = [name for name in networks if name not in by_size[0][1]] if by_size else []
    if odd and not routed:
        most, have = by_size[0]
        theirs = sorted({network for name in odd for network in networks[name]})
        tie = len(odd) >= len(have)
        yield Finding(
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
        return
    if unknown:
        raise Unavailable(unknown[0])
    if len(networks) < 2:
        raise NotApplicable("fewer than two nodes have an interface that leads to others")


def _networks(node: Node, launch: Launch | None, nodes: Nodes) -> frozenset[str] | Missing:
    """The networks by which a node may reach others."""
    values, rows = variables(node, launch, *IFNAMES), node.get(Interfaces)
    if isinstance(rows, Missing):
        return rows
    used = leading(rows, {} if isinstance(values, Missing) else values)
    found = [
        f"{address.network}/{address.prefix}"
        for row in used
        if row.up
        for address in row.addresses
        if ":" not in address.network.replace("<ip:", "") and address.prefix <= 32
    ]
    if any(MASK.search(text) for text in found) and not nodes.comparable:
        return Missing(fact="Interfaces", reason=MASKED, kind="unavailable")
    return frozenset(found)


@check("cluster-address-shared", severity="error", category="nccl_network", since="0.3")
def address_shared(nodes: Nodes, launch: Launch | None) -> Iterator[Finding]:
    """Several nodes have the same VLLM_HOST_IP, or a node has one that is not its own.

    ## Why it matters
    vLLM tells the other nodes this address as the node's own. One that is set in the image or the
    launch script is the same everywhere, and all ranks connect to one node.

    ## How it decides
    VLLM_HOST_IP of each node, with the launch's own over it: the same on two nodes, or not an
    address of an interface of that node.

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
        if its and not any(a.address == value for row in its.rows for a in row.addresses):
            found += 1
            yield _address(f"VLLM_HOST_IP={value} is no address of {group[0].name}", group, value)
    if not found and unknown:
        raise Unavailable(unknown[0])
    if not found and not owners:
        raise NotApplicable("VLLM_HOST_IP is not set on any node")


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
def name_loopback(nodes: Nodes) -> Iterator[Finding]:
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
    bad: dict[str, list[str]] = {}
    for node in nodes.nodes:
        found = node.get(OwnName)
        if isinstance(found, Missing):
            unknown.append(f"the name of {node.name} was not looked up: {found.reason}")
        elif found.error:
            bad.setdefault(f"leads nowhere ({found.error})", []).append(node.name)
        elif found.addresses and all(_loopback(a) for a in found.addresses):
            bad.setdefault(f"leads to {found.addresses[0]} only", []).append(node.name)
    for words_of, names in bad.items():
        values = variables(next(n for n in nodes.nodes if n.name == names[0]), None)
        named = not isinstance(values, Missing) and "GLOO_SOCKET_IFNAME" in values
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


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
