"""How GPUs are connected: PCIe, NVLink, the NVLink fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infer_doctor.catalog.health import (
    FABRIC_COMPLETED,
    FABRIC_HEALTH,
    FABRIC_STATES,
    FULL_SPEED_STATE,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.gpu_health import FabricRow, GpuFabric, GpuNvlinks, GpuPcie, PcieRow
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.fixes.gpu_health import look_at_nvlink, reseat_gpu, start_fabric_manager
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural

PCIE_SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""GT/s, as sysfs writes them, -> generation (PCI Express Base Specification)."""

NVLINK_FIVE = 10
"""Compute capability (major) from which NVSwitch machines need NVLSM beside Fabric Manager: Blackwell
(https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/)."""


@check("gpu-pcie-narrow", severity="warning", category="gpu_health", since="0.1")
def pcie_narrow(pcie: GpuPcie, gpus: Gpus | None, bus: PciBus | None) -> Iterator[Finding]:
    """The PCIe link of a GPU is below what the GPU and its slot can do together.

    ## Why it matters
    Weights load more slowly, and so does everything that goes over the host: tensor parallelism
    without NVLink, offload to the CPU. A link that lost lanes often is a bad contact or riser.

    ## How it decides
    The width counts always: nvmlDeviceGetCurrPcieLinkWidth below nvmlDeviceGetMaxPcieLinkWidth,
    "the maximum possible with this device and system". Half of it, on all GPUs of that model, is
    mostly how the board is wired (two slots share sixteen lanes): info. The generation counts only
    when the GPU was busy, in P0 to P2 with some utilisation, as idle links lower their speed.
    Virtual machines may show nonsense: a link wider than its maximum, or one that sysfs
    contradicts, is not judged.

    ## Fix safety
    Manual: it is about hardware and BIOS settings.
    """
    if not pcie.rows and not pcie.gaps:
        raise NotApplicable("no GPU here tells of a PCIe link")
    names = {gpu.index: gpu.name for gpu in gpus.gpus} if gpus else {}
    devices = _devices(gpus, bus)
    doubtful = []
    for row in pcie.rows:
        narrow = row.width < row.max_width
        slow = row.generation < row.max_generation and _busy(row)
        device = devices.get(row.index)
        if not narrow and not slow:
            continue
        if device and (doubt := _contradiction(row, device)):
            doubtful.append(f"GPU {row.index}: {doubt}")
            continue
        siblings = [other for other in pcie.rows if names.get(other.index) == names.get(row.index)]
        wired = row.width * 2 >= row.max_width and all(s.width <= row.width for s in siblings)
        yield Finding(
            about=f"GPU {row.index}",
            message=f"GPU {row.index}: PCIe {_link(row.generation, row.width)}; it and its slot "
            f"can {_link(row.max_generation, row.max_width)}{_measured(row) if slow else ''}",
            severity="info" if wired and not slow else None,
            confidence="possible" if wired and not slow else "certain",
            evidence=(
                Evidence(
                    source=pcie.source,
                    excerpt=f"GPU {row.index}: link generation {row.generation} of "
                    f"{row.max_generation}, width {row.width} of {row.max_width}{_measured(row)}",
                ),
                *_sysfs(device),
            ),
            fixes=(reseat_gpu(row.index, device.address if device else None),),
        )
    if doubtful:
        raise Unavailable(doubtful[0])


def _devices(gpus: Gpus | None, bus: PciBus | None) -> Mapping[int, PciDevice]:
    """The place of each GPU on the bus, where it is known."""
    if gpus is None or bus is None:
        return {}
    places = {device.address: device for device in bus.gpus}
    return {gpu.index: places[gpu.bus_id] for gpu in gpus.gpus if gpu.bus_id in places}


def _busy(row: PcieRow) -> bool:
    fast = row.state is not None and row.state <= FULL_SPEED_STATE
    return fast and bool(row.utilisation)


def _contradiction(row: PcieRow, device: PciDevice) -> str | None:
    """What sysfs says, where it is known and another thing than NVML."""
    speed, width, _, _ = device.link
    if width is not None and width.isdigit() and int(width) != row.width:
        return f"NVML says x{row.width}, sysfs x{width}"
    generation = PCIE_SPEEDS.get((speed or "").partition(" ")[0])
    if generation is not None and generation != row.generation and row.width == row.max_width:
        return f"NVML says generation {row.generation}, sysfs {generation} ({speed})"
    return None


def _link(generation: int, width: int) -> str:
    return f"{generation}.0 x{width}"


def _measured(row: PcieRow) -> str:
    state = f"P{row.state}" if row.state is not None else "unknown state"
    used = f"{row.utilisation} % used" if row.utilisation is not None else "unknown use"
    return f" (measured in {state}, {used})"


def _sysfs(device: PciDevice | None) -> tuple[Evidence, ...]:
    if device is None:
        return ()
    speed, width, most, widest = device.link
    return (
        Evidence(
            source=f"/sys/bus/pci/devices/{device.address}",
            excerpt=f"current link {speed or 'unknown'} x{width or '?'}, "
            f"maximum of the GPU {most or 'unknown'} x{widest or '?'}",
        ),
    )


@check("gpu-nvlink-down", severity="warning", category="p2p_allreduce", since="0.1")
def nvlink_down(
    links: GpuNvlinks, gpus: Gpus | None, fabric: GpuFabric | None
) -> Iterator[Finding]:
    """NVLinks of a GPU are down.

    ## Why it matters
    All-reduce falls back to PCIe or to fewer links: tensor parallelism gets several times slower,
    or NCCL stops with "unhandled cuda error" (Xid 74 and 145 to 150 in the kernel log).

    ## How it decides
    nvmlDeviceGetNvLinkState of every link. A GPU with fewer links up than another of its model is
    a finding: certain where an NVSwitch fabric connects them, else only likely, for a card without
    bridge beside a bridged pair is no fault. All of them with the same part of their links up is
    how bridges and cut-out virtual machines look: info. No link up at all connects nothing and is
    left alone.

    ## Fix safety
    Manual: a reset of all connected GPUs, then the hardware.
    """
    if not links.links and not links.gaps:
        raise NotApplicable("no GPU here has NVLink")
    names = {gpu.index: gpu.name for gpu in gpus.gpus} if gpus else {}
    best: dict[str | None, int] = {}
    for index, states in links.links.items():
        name = names.get(index)
        best[name] = max(best.get(name, 0), sum(states))
    switched = fabric is not None and bool(fabric.rows)
    partly = []
    for index, states in links.links.items():
        up, others = sum(states), best[names.get(index)]
        if up == others:
            partly += [index] if 0 < up < len(states) else []
            continue
        yield Finding(
            about=f"GPU {index}",
            message=f"GPU {index}: {up} of {plural(len(states), 'NVLink')} up; others of its model "
            f"have {others}",
            confidence="certain" if switched else "likely",
            evidence=(_links_evidence(index, states, links.source),),
            fixes=(look_at_nvlink(index),),
        )
    if partly and len(links.links) > 1:
        yield _alike(partly, links)


def _alike(partly: Sequence[int], links: GpuNvlinks) -> Finding:
    states = links.links[partly[0]]
    return Finding(
        about="NVLink",
        message=f"{sum(states)} of {plural(len(states), 'NVLink')} up on GPU "
        f"{', '.join(map(str, partly))}, as bridges or a part of a larger board have it",
        severity="info",
        confidence="possible",
        evidence=tuple(
            _links_evidence(index, links.links[index], links.source) for index in partly[:2]
        ),
    )


def _links_evidence(index: int, states: Sequence[bool], source: str) -> Evidence:
    down = ", ".join(str(link) for link, up in enumerate(states) if not up)
    return Evidence(source=source, excerpt=f"GPU {index}: links down: {down}")


@check("gpu-fabric-incomplete", severity="error", category="fabric_manager", since="0.1")
def fabric_incomplete(
    fabric: GpuFabric,
    driver: Driver | None,
    identity: Identity | None,
    capabilities: GpuCapabilities | None,
) -> Iterator[Finding]:
    """GPUs of an NVSwitch machine are not registered with the NVLink fabric.

    ## Why it matters
    CUDA does not start at all, not even on one GPU: error 802, "system not yet initialized", while
    nvidia-smi looks fine.

    ## How it decides
    nvmlDeviceGetGpuFabricInfoV: state 1 (not started) or 2 (in progress), or 3 (completed) with a
    status that is not 0. State 0, not supported, is nothing to judge: GPUs without NVSwitch, or one
    that was given to a virtual machine alone. Fabric Manager registers the GPUs; it must run and be
    of exactly the driver's version (Fabric Manager User Guide). Just after the boot "in progress"
    passes by itself.

    ## Fix safety
    Manual: a service of the host.
    """
    if not fabric.rows and not fabric.gaps:
        raise NotApplicable("no GPU here is on an NVSwitch fabric")
    bad = [row for row in fabric.rows if row.state != FABRIC_COMPLETED or row.status != 0]
    if not bad:
        return
    blackwell = capabilities is not None and any(
        major >= NVLINK_FIVE for major, _ in capabilities.capabilities.values()
    )
    indices = ", ".join(str(row.index) for row in bad)
    states = ", ".join(dict.fromkeys(map(_fabric_words, bad)))
    yield Finding(
        about="NVLink fabric",
        message=f"GPU {indices}: registration with the NVLink fabric is {states}; "
        "CUDA starts only when it is completed",
        evidence=tuple(
            Evidence(
                source=fabric.source,
                excerpt=f"GPU {row.index}: fabric state {row.state}, status {row.status}",
            )
            for row in bad[:4]
        ),
        fixes=(
            start_fabric_manager(
                driver.version if driver else None,
                container=identity.container if identity else None,
                nvlink_five=blackwell,
            ),
        ),
    )


def _fabric_words(row: FabricRow) -> str:
    words = FABRIC_STATES.get(row.state, f"in state {row.state}")
    return f"{words} with error {row.status}" if row.state == FABRIC_COMPLETED else words


@check("gpu-fabric-unhealthy", severity="warning", category="fabric_manager", since="0.1")
def fabric_unhealthy(fabric: GpuFabric) -> Iterator[Finding]:
    """The NVLink fabric reports a fault at a GPU.

    ## Why it matters
    The engine starts, but peer-to-peer traffic of that GPU is slow or stops: all-reduce hangs or
    tensor parallelism is slower than on other nodes.

    ## How it decides
    The fields of healthMask in nvmlDeviceGetGpuFabricInfoV (version 2, nvml.h): degraded
    bandwidth, route recovery, unhealthy route, access timeout, wrong configuration. 0, not
    supported, says nothing. Registration itself is judged by gpu-fabric-incomplete.

    ## Fix safety
    No fix of its own: Fabric Manager's log on the host names the link.
    """
    if not fabric.rows and not fabric.gaps:
        raise NotApplicable("no GPU here is on an NVSwitch fabric")
    for row in fabric.rows:
        faults = [
            field.bad[value]
            for field in FABRIC_HEALTH
            if (value := row.health >> field.shift & field.mask) in field.bad
        ]
        if faults:
            yield Finding(
                about=f"GPU {row.index}",
                message=f"GPU {row.index}: the NVLink fabric reports: {', '.join(faults)}",
                evidence=(
                    Evidence(
                        source=fabric.source,
                        excerpt=f"GPU {row.index}: fabric health mask 0x{row.health:x}",
                    ),
                ),
            )
