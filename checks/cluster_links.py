"""The links between nodes, as all of them tried them at one time (`snapshot --to DIR --deep`, `--ray --deep`)."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.cluster.compare import advise
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.nodes import Nodes
from infer_doctor.facts.peers import PeerLink, PeerLinks
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding, Fix, Missing
from infer_doctor.registry import check
from infer_doctor.units import names

SLOW = 3.0
"""Times slower than the median link: several connections share a card, so that a factor of two is
seen on healthy ones; 10 instead of 25 Gbit/s, or TCP over a card that was meant for management, is
more."""

NO_ADDRESS = "it has no address"
"""What `hands/links.py` says of a node whose interfaces have none of version 4."""

Links = dict[str, PeerLinks]


def _links(nodes: Nodes) -> tuple[Links, str | None]:
    """By node, and what of it is not known; raises Unavailable where nobody tried."""
    found: Links = {}
    unknown: str | None = None
    for node in nodes.nodes:
        row = node.get(PeerLinks)
        if not isinstance(row, Missing):
            found[node.name] = row
        elif unknown is None:
            unknown = f"links not tried (--deep, with all nodes there); {node.name}: {row.reason}"
    if not found:
        raise Unavailable(unknown or "there is no node")
    if len({row.own for row in found.values()}) < len(found):
        raise Unavailable("the snapshots are not of one meeting")
    if len({(row.met, row.count) for row in found.values()}) > 1:
        raise Unavailable("not all nodes met the same others: some came too late")
    one = next(iter(found.values()))
    if unknown is None and len(found) < one.met:
        unknown = f"{one.met} nodes met, and only {len(found)} of their snapshots are here"
    if one.met < one.count:
        unknown = f"{one.met} of {one.count} nodes met: the others came too late"
    if one.count < 2:
        raise NotApplicable("one node has no link to another")
    return found, unknown


@check("cluster-peer-unreachable", severity="error", category="nccl_network", since="0.3")
def peer_unreachable(nodes: Nodes) -> Iterator[Finding]:
    """A node cannot be reached from others by TCP.

    ## Why it matters
    NCCL, Gloo, Ray and torch.distributed open ports that the kernel chooses, from every node to
    every other. One direction that a firewall drops is enough: the start hangs without a word.

    ## How it decides
    While all nodes ran `snapshot --to DIR --deep`, or under `check --ray --deep`, each listened on a port chosen by the kernel and
    connected to all others, for 2 s each, by the IPv4 addresses of the interfaces that
    NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names, else of all that may lead to others. A node that
    no other reaches, or that reaches no other, is one finding; then pair by pair.

    ## Fix safety
    Manual: a firewall, a route or a security group.
    """
    links, unknown = _links(nodes)
    of_index = {row.own: name for name, row in links.items()}
    failed: dict[tuple[str, str], PeerLink] = {
        (name, of_index[link.index]): link
        for name, row in links.items()
        for link in row.rows
        if link.error is not None and link.index in of_index
    }
    if not failed and unknown is not None:
        raise Unavailable(unknown)
    everywhere = len(links) - 1
    for name in links:
        into = [pair for pair in failed if pair[1] == name]
        if len(into) == everywhere and everywhere > 1:
            yield _unreached(f"no other node reaches {name}", name, into, failed)
            failed = {pair: link for pair, link in failed.items() if pair[1] != name}
    for name in links:
        out = [pair for pair in failed if pair[0] == name]
        if len(out) == everywhere and everywhere > 1:
            yield _unreached(f"{name} reaches no other node", name, out, failed)
            failed = {pair: link for pair, link in failed.items() if pair[0] != name}
    for source in links:
        out = [pair for pair in failed if pair[0] == source]
        if out:
            targets = names([pair[1] for pair in out])
            yield _unreached(f"{source} does not reach {targets}", source, out, failed)


def _unreached(
    text: str,
    name: str,
    pairs: list[tuple[str, str]],
    failed: dict[tuple[str, str], PeerLink],
) -> Finding:
    errors = sorted({str(failed[pair].error) for pair in pairs})
    return Finding(
        about=text,
        message=f"{text} by TCP: {', '.join(errors)}",
        evidence=tuple(
            Evidence(source=pair[0], excerpt=f"connect to {pair[1]}: {failed[pair].error}")
            for pair in pairs[:8]
        ),
        fixes=(_cure(name, errors),),
    )


def _cure(name: str, errors: list[str]) -> Fix:
    if errors == [NO_ADDRESS]:
        return advise(
            "name-interface",
            f"Name an interface of {name} that leads to the others in NCCL_SOCKET_IFNAME and "
            "GLOO_SOCKET_IFNAME",
        )
    title = f"Let all ports between the nodes pass at {name} (firewall, security group, route)"
    return advise("open-ports", title, restarts=False)


@check("cluster-link-slow", severity="warning", category="nccl_network", since="0.3")
def link_slow(nodes: Nodes) -> Iterator[Finding]:
    """A link between two nodes is far slower than the others.

    ## Why it matters
    All ranks wait for the slowest link in every sum.

    ## How it decides
    Each node sent bytes for a second to the next one of a ring over one TCP connection, all at one
    time. Below a third of the median is a finding; RDMA is not measured by it.

    ## Fix safety
    Manual: a cable, a card, or the wrong interface.
    """
    links, unknown = _links(nodes)
    of_index = {row.own: name for name, row in links.items()}
    rates = {
        (name, of_index[link.index]): link.bytes_per_s
        for name, row in links.items()
        for link in row.rows
        if link.bytes_per_s is not None and link.index in of_index
    }
    if len(rates) < 3 and unknown is not None:
        raise Unavailable(unknown)
    if len(rates) < 3:
        raise NotApplicable("fewer than three links were measured: none is the odd one")
    from statistics import median  # 4 ms, only where several links were measured

    middle = median(rates.values())
    if unknown is not None and all(rate * SLOW >= middle for rate in rates.values()):
        raise Unavailable(unknown)
    for (source, target), rate in rates.items():
        if rate * SLOW < middle:
            yield Finding(
                about=f"link from {source} to {target}",
                message=f"{source} sends {_gbit(rate)} to {target}; the median link carries "
                f"{_gbit(middle)}",
                confidence="likely",
                evidence=(Evidence(source=source, excerpt=f"{rate:,.0f} bytes/s to {target}"),),
                fixes=(
                    advise(
                        "check-link",
                        f"Look at the cards, cables and interfaces of {source} and {target}",
                        restarts=False,
                    ),
                ),
            )


def _gbit(rate: float) -> str:
    return f"{rate * 8 / 1e9:.2f} Gbit/s"
