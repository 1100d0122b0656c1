"""What the links between ranks move, and which share of it a sum over them must reach.

Rates are of one direction, in bytes a second, and read on the machine where that can be: the port of an
RDMA device, the interface, the PCIe link of a GPU. The shares are set so low that no healthy fabric is
below: they tell a fault of kind (another transport, a link that trained down, all ranks over one card),
not of tuning.
"""

from __future__ import annotations

NVLINK_BYTES = 25e9
"""One NVLink of generation 2 to 4 (NVIDIA H100 Tensor Core GPU Architecture, "NVLink": 900 GB/s both ways
over 18 links; A100: 600 over 12); later ones move more."""

PCIE_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""By generation, after encoding: 2.5, 5, 8, 16, 32 and 64 GT/s (PCI-SIG, "PCI Express Base
Specification", and its FAQ on 6.0)."""

TCP_MOST_BYTES = 25e9 / 8
"""What TCP is held to on a faster card: NCCL's user guide says that a generic network of 100 Gbit/s needs
more sockets than NCCL opens of itself (environment variables, NCCL_NSOCKS_PERTHREAD and
NCCL_SOCKET_NTHREADS, read 2026-12-01)."""

LEAST_SHARE = {"NVLink": 0.25, "PCIe": 0.1, "RDMA": 0.25, "Ethernet": 0.25}
"""Of one link's rate, although several are used where there are several.

NVLink: two H200 with 18 links each reached 0.65 (295 of 450 GB/s), and 0.06 with NCCL_P2P_DISABLE=1
(docs/verified-on.md); bridges of PCIe boards run a link at 14 GB/s, 0.56. PCIe: the same two
reached 0.43 of generation 5 x16 over the host; every sum of ranks that share a switch divides that.
RDMA and Ethernet: NVIDIA's nccl-tests (doc/PERFORMANCE.md, read 2026-12-01) define the bus bandwidth so
that it can be compared with the bottleneck's rate; what is lost beside it is some tenths, not three
quarters.
"""


def kind_of(via: str) -> str | None:
    """The kind of link behind a transport as NCCL names it: "NET/IB/0/GDRDMA", "P2P/CUMEM".

    src/transport/{net_ib,net_socket,p2p,shm}.cc; P2P may be NVLink or PCIe, so it is neither here.
    """
    if via.startswith("NET/IB"):
        return "RDMA"
    if via.startswith("NET/Socket"):
        return "Ethernet"
    if via.startswith("SHM"):
        return "PCIe"
    return "NVLink" if via.startswith("NVLS") or "MNNVL" in via else None
