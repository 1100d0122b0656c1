"""The network of one machine as the others need it: interfaces, its own name, its clock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from infer_doctor.facts.limits import Rdma
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host
from infer_doctor.registry import probe

PEER_MEMORY = ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem")
"""The module by which an RDMA card reads and writes GPU memory; the second is its old name
(docs.nvidia.com/cuda/gpudirect-rdma)."""


IFNAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")

RDMA_FOLDER = "/sys/class/infiniband"
RATE = re.compile(r"([\d.]+) Gb/sec")

NEVER_CHOSEN = re.compile(r"(?:lo|docker|veth|br-|cni|flannel|cali|tunl|virbr)\w*")
"""Interfaces that lead to no other node; NCCL itself leaves out lo and docker
(src/misc/socket.cc, ncclFindInterfaces)."""


@frozen
class Address:
    """An address of an interface and the network that it is in."""

    address: str
    network: str
    prefix: int
    link: bool | None = None
    """Whether it holds on the link only, as fe80:: does; None where an older snapshot does not say."""


@frozen
class Interface:
    """A network interface; `speed` in Mbit/s where its driver tells it."""

    name: str
    up: bool
    running: bool
    loopback: bool
    mtu: int | None
    speed: int | None
    addresses: tuple[Address, ...]


@frozen
class Interfaces:
    """All of this network name space."""

    rows: tuple[Interface, ...]

    def named(self, name: str) -> Interface | None:
        return next((row for row in self.rows if row.name == name), None)


@frozen
class OwnName:
    """What the machine's own host name leads to on it."""

    listed: tuple[str, ...]
    """By /etc/hosts."""
    addresses: tuple[str, ...]
    error: str | None


@frozen
class ClockState:
    """Whether something keeps the clock right, as the kernel says."""

    synchronised: bool
    max_error_us: int


@frozen
class RdmaPort:
    """A port of an RDMA device that is active, and its rate in Gbit/s."""

    device: str
    port: int
    gbit: float


@frozen
class RdmaRates:
    """The active ports of the devices that a process can use."""

    rows: tuple[RdmaPort, ...]


@frozen
class GpuDirect:
    """Whether the module is loaded through which RDMA cards reach GPU memory."""

    module: str | None


def chosen(name: str, value: str, rows: Interfaces) -> list[Interface]:
    """The interfaces that a variable chooses: NCCL reads `^` (all but these) and then `=` (whole names,
    else beginnings; src/misc/socket.cc), Gloo and TensorPipe whole names only."""
    nccl = name == "NCCL_SOCKET_IFNAME"
    others = nccl and value.startswith("^")
    rest = value.removeprefix("^") if others else value
    exact = not nccl or rest.startswith("=")
    rest = rest.removeprefix("=") if nccl else rest
    wanted = [part.split(":")[0] if nccl else part for part in rest.split(",") if part]

    def named(row: Interface) -> bool:
        return any(row.name == part if exact else row.name.startswith(part) for part in wanted)

    return [row for row in rows.rows if named(row) != others]


def leading(
    rows: Interfaces, variables: Mapping[str, str], names: Sequence[str] = IFNAMES[:2]
) -> list[Interface]:
    """The interfaces that NCCL or Gloo is told to use, else all that may lead to another node."""
    name = next((name for name in names if variables.get(name)), None)
    value = variables[name] if name else ""
    used = chosen(name, value, rows) if name else rows.rows
    if name and not value.startswith("^"):
        return list(used)
    return [row for row in used if not row.loopback and not NEVER_CHOSEN.fullmatch(row.name)]


@probe
def interfaces(host: Host) -> Interfaces:
    """By netlink (rtnetlink(7))."""
    rows = host.ask("interfaces")["interfaces"]
    return Interfaces(
        rows=tuple(
            Interface(
                name=row["name"],
                up=row["up"],
                running=row["running"],
                loopback=row["loopback"],
                mtu=row["mtu"],
                speed=row["speed"],
                addresses=tuple(
                    Address(
                        address=a["address"],
                        network=a["network"],
                        prefix=a["prefix"],
                        link=a.get("link"),
                    )
                    for a in row["addresses"]
                ),
            )
            for row in rows
        )
    )


@probe
def own_name(host: Host) -> OwnName:
    """/etc/hosts, and getaddrinfo(3)."""
    found = host.ask("own_name")
    return OwnName(
        listed=tuple(found["listed"]), addresses=tuple(found["addresses"]), error=found["error"]
    )


@probe
def clock_state(host: Host) -> ClockState:
    """adjtimex(2), which only reads."""
    found = host.ask("clock")
    return ClockState(synchronised=found["synchronised"], max_error_us=found["max_error_us"])


@probe
def rdma_rates(host: Host, rdma: Rdma) -> RdmaRates:
    """/sys/class/infiniband/DEVICE/ports/N/{state,rate} ("4: ACTIVE", "400 Gb/sec (4X NDR)"; kernel,
    Documentation/ABI/stable/sysfs-class-infiniband)."""
    rows = []
    for device in rdma.devices:
        ports = f"{RDMA_FOLDER}/{device}/ports"
        for port in host.list(ports):
            state = host.read(f"{ports}/{port}/state")
            rate = RATE.match(host.read(f"{ports}/{port}/rate"))
            if "ACTIVE" in state and rate and port.isdigit():
                rows.append(RdmaPort(device=device, port=int(port), gbit=float(rate[1])))
    if not rows:
        raise Absent("no port of an RDMA device is active")
    return RdmaRates(rows=tuple(rows))


@probe
def gpu_direct(host: Host, rdma: Rdma) -> GpuDirect:
    """Judged only where a process can use RDMA."""
    loaded = (path for path in PEER_MEMORY if host.exists(path))
    found = next(loaded, None)
    return GpuDirect(module=found.rpartition("/")[2] if found else None)
