"""A sum over the ranks of all nodes, as the engine makes it; all need `--deep` with all nodes there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from infer_doctor.catalog.links import (
    LEAST_SHARE,
    NVLINK_BYTES,
    PCIE_LANE_BYTES,
    TCP_MOST_BYTES,
    kind_of,
)
from infer_doctor.cluster.compare import advise
from infer_doctor.cluster.sums import Sums, sums_of
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.gpu_health import GpuNvlinks, GpuPcie
from infer_doctor.facts.limits import Rdma
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.network import Interfaces, RdmaRates, leading
from infer_doctor.facts.node_sum import STEPS, STORE
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import names as words
from infer_doctor.units import plural

SETUP_S = 10.0
"""What NCCL's set-up and a first sum take on two H200 with their contexts; a rank that is not back by then
may still come on a larger or busier machine."""

SURE_S = 30.0
"""After that much a rank hangs, as `nccl-allreduce-failed` counts it with a context of its own before."""

CONNECT = re.compile(
    r"timed? ?out|refused|no route|unreachable|failed to connect|connect.{0,20}fail|connection",
    re.I,
)
"""Words of the kernel, of Gloo, of NCCL and of torch's store for a connection that does not come."""

NO_INTERFACE = re.compile(r"unable to find address for|no socket interface|no interface", re.I)
"""Gloo (common/linux or transport/tcp/device.cc) and NCCL (misc/socket.cc)."""

TRIED_S = 5.0
"""A rank whose interpreter came so late that it had less did not fail to reach rank 0: it came late. The
kernel's third SYN goes out after 3 s."""

WAITED = re.compile(r"timed? ?out waiting|wait timeout|watchdog.{0,60}timeout", re.I | re.S)
"""Words of a rank that waited for another in vain: Gloo, torch's store, torch's watchdog over NCCL."""

NO_ROOM = re.compile(r"out of memory", re.I)
"""CUDA and torch, of a GPU that somebody fills: nothing of the links was seen then."""

PLACE = re.compile(r"\[(?:enforce fail at )?/[^\]]*\] ?")
"""Where in torch's sources a text comes from."""

TURNED_OFF = ("NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "NCCL_NET_PLUGIN=none")


@check("cluster-allreduce-failed", severity="error", category="nccl_network", since="0.3")
def allreduce_failed(nodes: Nodes) -> Iterator[Finding]:
    """A sum over the ranks of all nodes fails or hangs.

    ## Why it matters
    The engine starts with exactly this: all ranks meet at rank 0, connect to each other and sum. It
    then hangs without a word until a time-out of ten minutes or more, on every node but the guilty one.

    ## How it decides
    With `--deep` the engine's own interpreter sums on all nodes at one time: torch.distributed, one
    rank for each GPU over NCCL, or one for each node over Gloo where no node has a GPU. All ranks
    first call at the store of rank 0. One that tries to reach it for 5 s and more in vain is the
    finding, else the one that failed first, in its own words; that others wait for it is none. Without
    words a rank hangs when it is not back 10 s after all had come, surely after 30 s. Ranks that never
    came leave this undecided and are named: they may only be slow (`--timeout`); so does a GPU without
    room for the sum, and a node whose GPUs hold more than 1 GiB: something runs there, which a sum
    would disturb.

    ## Fix safety
    Manual: a firewall, an interface's name or a route.
    """
    found = sums_of(nodes)
    rows = found.ranks
    failed = sorted(
        (row for row in rows.values() if row.error), key=lambda row: row.failed_s or 0.0
    )
    apart = [r.rank for r in failed if r.step == STORE and (r.tried_s or 0.0) >= TRIED_S]
    if apart and 0 in rows:
        yield _failing(found, apart, f"cannot reach rank 0 on {found.node_of(0)}")
        return
    late = found.absent | (set(range(found.world)) - set(rows))
    if late:
        raise Unavailable(_waits(found, sorted(late)))
    first = next((row for row in failed if not WAITED.search(row.error or "")), None)
    if first is not None and NO_ROOM.search(first.error or ""):
        who = _ranks(found, [first.rank])
        raise Unavailable(f"no room for a sum on the GPU of {who}: does the engine run there?")
    if first is not None:
        yield _failing(found, [first.rank], f"fails in {first.step}")
        return
    begun = {row.step for row in rows.values() if not row.done}
    step = next((name for name in STEPS if name in begun), None)
    hung = [rank for rank, row in sorted(rows.items()) if not row.done and row.step == step]
    if hung and found.patience_s < SETUP_S:
        raise Unavailable(
            f"{_ranks(found, hung)} had not done the sum {found.patience_s:g} s after all had come: "
            "give it more time (--timeout)"
        )
    if hung:
        yield _failing(found, hung, f"did not come back from {step}")
    elif found.lost:
        name, reason = next(iter(found.lost.items()))
        raise Unavailable(f"the sum was made without {name}: {reason}")


def _waits(found: Sums, lost: list[int]) -> str:
    """Who did not come, and what is known of them."""
    text = f"{_ranks(found, lost)} did not come to rank 0 on {found.node_of(0)}"
    reasons = [
        found.lost[name] for name in dict.fromkeys(map(found.node_of, lost)) if name in found.lost
    ]
    return f"{text}: {reasons[0]}" if reasons else f"{text} in time: give it more (--timeout)"


def _ranks(found: Sums, ranks: list[int]) -> str:
    """ "rank 2 on n2", "ranks 0 and 1 on n0, rank 3 on n2"."""
    rows: dict[str, list[str]] = {}
    for rank in ranks:
        rows.setdefault(found.node_of(rank), []).append(str(rank))
    parts = [
        f"rank{'s' if len(r) > 1 else ''} {words(r)} on {n}" for n, r in list(rows.items())[:4]
    ]
    more = len(rows) - len(parts)
    return ", ".join(parts) + (f" and those of {plural(more, 'more node')}" if more else "")


def _failing(found: Sums, ranks: list[int], what: str) -> Finding:
    rows = [found.ranks[rank] for rank in ranks]
    said = next((row.error for row in rows if row.error), None)
    warned = [found.named(text) for row in found.ranks.values() for text in row.warnings]
    texts = [PLACE.sub("", found.named(said))] if said else []
    every = " ".join([*texts, *warned])
    late = "" if said else f" within {found.patience_s:g} s"
    who = list(dict.fromkeys(found.node_of(rank) for rank in ranks))
    between = (
        f"{words(who)} and the other nodes" if len(who) < len(found.taking_part) else "the nodes"
    )
    fixes: tuple[Fix, ...] = ()
    if NO_INTERFACE.search(every):
        fixes = (
            advise(
                "name-interface",
                f"Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME on {words(who)} to "
                "the interface that leads to the other nodes",
            ),
        )
    elif CONNECT.search(every) or not said:
        fixes = (
            advise(
                "open-ports",
                f"Let all ports between {between} pass (firewall, security group, route), and name the "
                "interface between them in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
                restarts=False,
            ),
        )
    return Finding(
        about=f"sum over {found.world} ranks",
        message=f"a sum over {found.world} ranks of {plural(len(found.rows), 'node')} ({found.backend}): "
        f"{_ranks(found, ranks)} {what}{late}" + (f": {_short(texts[0])}" if texts else ""),
        confidence="certain" if said or found.patience_s >= SURE_S else "likely",
        evidence=(
            *(
                Evidence(
                    source=found.node_of(row.rank),
                    excerpt=f"rank {row.rank} in {row.step}"
                    + (f": {_short(PLACE.sub('', found.named(row.error)))}" if row.error else ""),
                )
                for row in rows[:8]
            ),
            *(Evidence(source="NCCL", excerpt=text) for text in warned[:3]),
        ),
        fixes=fixes,
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:156]} ..."


@check("cluster-sum-wrong", severity="error", category="p2p_allreduce", since="0.3")
def sum_wrong(nodes: Nodes) -> Iterator[Finding]:
    """A sum over the ranks of all nodes gives wrong numbers.

    ## Why it matters
    The engine starts, and its answers are nonsense. A card or a driver that writes to the wrong memory
    over GPUDirect does it, on one node of many.

    ## How it decides
    1,024 small whole numbers of known sum; floats add them exactly, so each must be equal on each rank.

    ## Fix safety
    No fix of its own: NCCL_NET_GDR_LEVEL=LOC keeps the data off GPUDirect, and shows whether it is that.
    """
    found = sums_of(nodes)
    for rank, row in sorted(found.ranks.items()):
        if row.wrong:
            yield Finding(
                about=f"rank {rank}",
                message=f"{row.wrong} of 1,024 sums over {found.world} ranks are wrong on rank {rank} on "
                f"{found.node_of(rank)}",
                evidence=(
                    Evidence(
                        source=found.node_of(rank),
                        excerpt=f"{found.backend}, via {', '.join(row.via) or 'the host'}",
                    ),
                ),
            )
    if any(row.wrong is None for row in found.ranks.values()) or len(found.ranks) < found.world:
        raise Unavailable("the sum did not come to its end: cluster-allreduce-failed says why")


@check("cluster-rdma-unused", severity="warning", category="nccl_network", since="0.3")
def rdma_unused(nodes: Nodes) -> Iterator[Finding]:
    """NCCL sends over TCP between nodes that all have RDMA devices.

    ## Why it matters
    All traffic between nodes goes through the kernels of both, at a tenth of the speed, and nothing
    says so: NCCL falls back without an error.

    ## How it decides
    Every node with ranks has a device in /sys/class/infiniband that a process can open, and NCCL's own
    log of the sum names NET/Socket and no NET/IB. A variable that NCCL says was set and that turns
    InfiniBand off is named as the cause.

    ## Fix safety
    Manual: the variable may have been set as a way round a fault.
    """
    found = _of_gpus(nodes)
    via = sorted({name for row in found.ranks.values() for name in row.via})
    if not any(kind_of(name) == "Ethernet" for name in via):
        if not via:
            raise Unavailable("NCCL did not say by which transport")
        return
    devices: dict[str, tuple[str, ...]] = {}
    for node in found.taking_part:
        row = node.get(Rdma)
        if not isinstance(row, Rdma):
            if row.kind == "absent":
                raise NotApplicable(f"{node.name}: {row.reason}")
            raise Unavailable(f"the RDMA devices of {node.name} are not known: {row.reason}")
        devices[node.name] = row.devices
    if any(kind_of(name) == "RDMA" for name in via):
        return
    settings = sorted({text for row in found.ranks.values() for text in row.settings})
    off = [text for text in settings if text in TURNED_OFF]
    first = next(iter(devices))
    title = (
        f"Take {words([text.partition('=')[0] for text in off])} out on all nodes"
        if off
        else "Read NCCL's lines NET/IB (NCCL_DEBUG=INFO): it found no usable port, or a rank lacks its library"
    )
    yield Finding(
        about="RDMA between nodes",
        message=f"NCCL sends by {', '.join(via)} although {plural(len(devices), 'node')} have RDMA devices"
        + (f"; {' and '.join(off)} is set" if off else ""),
        confidence="certain" if off else "likely",
        evidence=(
            Evidence(source="NCCL", excerpt=f"via {', '.join(via)}"),
            Evidence(source=first, excerpt=f"/sys/class/infiniband {' '.join(devices[first][:8])}"),
            *(Evidence(source="NCCL", excerpt=f"{text} (environment)") for text in off),
        ),
        fixes=(advise("use-rdma", title),),
    )


@check("cluster-allreduce-slow", severity="warning", category="nccl_network", since="0.3")
def allreduce_slow(nodes: Nodes) -> Iterator[Finding]:
    """A sum over the GPUs of all nodes is far slower than the links between them.

    ## Why it matters
    With tensor parallelism over nodes every layer of every token waits for it.

    ## How it decides
    The bus bandwidth of 256 MiB (2 (n - 1) / n x size / time of the slowest rank, as nccl-tests count
    it) against a share of the rate of one link of the kind that NCCL's log names: a quarter of the
    slowest active port of an RDMA device, of the interface for TCP (at most 25 Gbit/s of it: one
    connection moves no more), of NVLink between nodes (25 GB/s a link), or a tenth of a GPU's PCIe link
    where nodes are containers of one machine. NET/IB on any rank makes it RDMA. Sums over Gloo are not
    judged: they are bound by the processor.

    ## Fix safety
    Manual: cards, cables, and NCCL's variables.
    """
    found = _of_gpus(nodes)
    speed = found.bus_bytes_per_s
    if speed is None:
        raise Unavailable("the sum did not come to its end: cluster-allreduce-failed says why")
    via = sorted({name for row in found.ranks.values() for name in row.via})
    kinds = {kind for name in via if name.startswith("NET") and (kind := kind_of(name))}
    if not via:
        raise Unavailable("NCCL did not say by which transport")
    other = [name for name in via if name.startswith("NET") and kind_of(name) is None]
    if other:
        raise Unavailable(f"NCCL sends by {words(other)}, a plugin whose links are not known")
    kind = "RDMA" if "RDMA" in kinds else min(kinds, default="host")
    if kind == "host":  # the nodes are containers of one machine, or share an NVLink switch
        linked = all(node.fact(GpuNvlinks) for node in found.taking_part)
        kind = "NVLink" if linked and not all(kind_of(name) == "PCIe" for name in via) else "PCIe"
    rate, source, name = min(_rate(node, kind) for node in found.taking_part)
    least = rate * LEAST_SHARE[kind]
    if speed >= least:
        return
    yield Finding(
        about="speed of the sum",
        message=f"GPUs of {plural(len(found.taking_part), 'node')} sum at {speed / 1e9:.2f} GB/s over {kind} "
        f"(at least {least / 1e9:.2f} of the {rate / 1e9:.1f} GB/s that one link moves)",
        confidence="likely",
        evidence=(
            Evidence(
                source="all-reduce",
                excerpt=f"{found.bytes >> 20} MiB in {found.slowest[0]:.4f} s on rank {found.slowest[1]} on "
                f"{found.node_of(found.slowest[1])}, via {', '.join(via)}",
            ),
            Evidence(source=name, excerpt=source),
        ),
        fixes=(
            advise(
                "check-fabric",
                f"Look at the {kind} links of {found.node_of(found.slowest[1])} first: state, errors, and "
                "which of them NCCL uses (NCCL_DEBUG=INFO)",
                restarts=False,
            ),
        ),
    )


def _of_gpus(nodes: Nodes) -> Sums:
    found = sums_of(nodes)
    if found.backend != "nccl":
        raise NotApplicable("no node has a GPU: the sum went over Gloo")
    found.require_all()
    return found


def _rate(node: Node, kind: str) -> tuple[float, str, str]:
    """Bytes/s of the slowest link of that kind on a node, where that stands, and the node."""
    if kind == "RDMA":
        rates = node.get(RdmaRates)
        if not isinstance(rates, RdmaRates):
            raise Unavailable(f"the ports of {node.name} are not known: {rates.reason}")
        row = min(rates.rows, key=lambda port: port.gbit)
        return row.gbit * 1e9 / 8, f"{row.device} port {row.port}: {row.gbit:g} Gb/sec", node.name
    if kind == "NVLink":
        links = node.get(GpuNvlinks)
        if not isinstance(links, GpuNvlinks):
            raise Unavailable(f"the NVLinks of {node.name} are not known: {links.reason}")
        up = min((sum(states) for states in links.links.values()), default=0)
        if not up:
            raise Unavailable(f"{node.name} has a GPU without an NVLink that is up")
        return up * NVLINK_BYTES, f"{up} NVLinks up", node.name
    if kind == "PCIe":
        pcie = node.get(GpuPcie)
        if not isinstance(pcie, GpuPcie):
            raise Unavailable(f"the PCIe links of {node.name} are not known: {pcie.reason}")
        moved = {
            row: PCIE_LANE_BYTES.get(row.max_generation, 0) * row.max_width for row in pcie.rows
        }
        slot = min(moved, key=lambda row: moved[row], default=None)
        if slot is None or not moved[slot]:
            raise Unavailable(f"the PCIe links of {node.name} are not known")
        return (
            moved[slot],
            f"GPU {slot.index}: PCIe {slot.max_generation} x{slot.max_width}",
            node.name,
        )
    rows, values = node.get(Interfaces), node.fact(Environ)
    if not isinstance(rows, Interfaces):
        raise Unavailable(f"the interfaces of {node.name} are not known: {rows.reason}")
    used = [r for r in leading(rows, values.variables if values else {}) if r.up and r.addresses]
    slowest = min(used, key=lambda r: r.speed or 0, default=None)
    if slowest is None or not slowest.speed:
        raise Unavailable(f"{node.name} does not tell the speed of its interface")
    rate = min(slowest.speed * 1e6 / 8, TCP_MOST_BYTES)
    return rate, f"{slowest.name}: {slowest.speed:,} Mbit/s", node.name
