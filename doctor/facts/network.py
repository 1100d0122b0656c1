"""The network of one machine as the others need it: interfaces, its own name, its clock."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
    """The interfaces that a variable names."""
    exact = name != "NCCL_SOCKET_IFNAME" or value.startswith("=")
    wanted = [part.split(":")[0] for part in value.lstrip("=").split(",") if part]
    return [
        row
        for row in rows.rows
        if any(row.name == part if exact else row.name.startswith(part) for part in wanted)
    ]


def leading(rows: Interfaces, variables: Mapping[str, str]) -> list[Interface]:
    """The interfaces that NCCL or Gloo is told to use, else all that may lead to another node."""
    for name in IFNAMES[:2]:
        value = variables.get(name)
        if value and not value.startswith("^"):
            return chosen(name, value, rows)
    return [row for row in rows.rows if not row.loopback and not NEVER_CHOSEN.fullmatch(row.name)]


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
                    Address(address=a["address"], network=a["network"], prefix=a["prefix"])
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
