"""The GPUs: there, visible, free and healthy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from infer_doctor.catalog.vllm import default_utilisation
from infer_doctor.catalog.xid import xid
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.chosen import ChosenGpus, index_of, left_out
from infer_doctor.facts.cuda_init import DeviceNodes
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.gpu import EccRow, GpuEcc, GpuMemory, Gpus, MemoryRow
from infer_doctor.facts.kernel_log import XidEvents
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.nodes import HeadNode
from infer_doctor.facts.owners import GpuOwners, Owner
from infer_doctor.facts.pci import PciBus, proof_of_absence
from infer_doctor.facts.visible import NAME, DeviceIdRules, VisibleDevices
from infer_doctor.fixes.gpu import (
    add_gpu_build,
    end_process,
    lower_utilisation,
    repair_missing_gpu,
    reset_gpu,
    set_visible_devices,
)
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import memory_utilization
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import age, gib, plural


@check("gpu-none", severity="warning", category="environment", since="0.1")
def gpu_none(
    bus: PciBus, identity: Identity, engine: EngineFact | None, head: HeadNode | None
) -> Iterator[Finding]:
    """The machine has no NVIDIA GPU.

    ## Why it matters
    vLLM's default build and TensorRT-LLM need one. vLLM then says "Failed to infer device type" or
    "No CUDA GPUs are available", which reads like a fault of the driver.

    ## How it decides
    The PCI bus was read and lists no NVIDIA device, and /dev has no nvidia*, dxg (WSL2) or nvhost*
    (Jetson) node. An error when the installed engine is a CUDA build, else a warning: nothing is
    there that could fail. It does not apply to a CPU build of vLLM, nor to one of several nodes where
    others have GPUs: it is taken for a head node, and `cluster-gpus-few` tells if they are too few.

    ## Fix safety
    Manual: another machine, or the CPU build of vLLM.
    """
    proof = proof_of_absence(bus, identity)
    if proof is None:
        return
    if head is not None:
        raise NotApplicable(f"{plural(head.others, 'other node')} with GPUs: taken for a head node")
    if engine is not None and engine.build not in ("cuda", None):
        raise NotApplicable(f"the installed {engine.name} is a {engine.build} build")
    certain = engine is not None and engine.build == "cuda"
    needed = f"; {engine.name} {engine.version or ''} is a CUDA build" if certain and engine else ""
    yield Finding(
        about="gpu",
        message=f"no NVIDIA GPU: {proof}{needed}",
        severity="error" if certain else None,
        evidence=(Evidence(source="/sys/bus/pci/devices", excerpt=proof),),
        fixes=(add_gpu_build(),),
    )


@check("gpu-fewer-than-bus", severity="error", category="gpu_health", since="0.1")
def gpu_fewer_than_bus(
    bus: PciBus, gpus: Gpus, identity: Identity, nodes: DeviceNodes | None, xids: XidEvents | None
) -> Iterator[Finding]:
    """The driver offers fewer GPUs than stand on the PCI bus.

    ## Why it matters
    A GPU that fell off the bus or did not initialise is missing from CUDA: a launch with the usual
    tensor parallel size fails with "World size is larger than the number of available GPUs".

    ## How it decides
    The addresses of display and 3D controllers of vendor 0x10de that are bound to the driver
    "nvidia", against the bus ids that NVML lists. GPUs bound to another driver (vfio-pci,
    nouveau) are left out: they were given away on purpose. In a container the bus is that of the
    host and the run-time may have passed only some GPUs in, so nothing is said there. GPUs whose
    node in /dev this user may not open are a matter of rights: cuda-gpus-missing names them. An Xid
    of the GPU in the kernel log is added.

    ## Fix safety
    Manual: a reset or a reboot, and the kernel log to find the reason.
    """
    if identity.container is not None:
        raise NotApplicable("a container may have been given some of the host's GPUs only")
    listed = {gpu.bus_id for gpu in gpus.gpus}
    closed = [node for node in nodes.gpus if not node.usable] if nodes else []
    if None in listed or len(closed) >= len(bus.gpus) - len(listed) > 0:
        return
    for device in bus.gpus:
        if device.driver == "nvidia" and device.address not in listed:
            total = sum(gpu.driver == "nvidia" for gpu in bus.gpus)
            yield Finding(
                about=device.address,
                message=f"GPU at {device.address} is on the PCI bus but not offered by the driver: "
                f"{len(gpus.gpus)} of {plural(total, 'GPU')} can be used",
                evidence=(
                    Evidence(
                        source=f"/sys/bus/pci/devices/{device.address}",
                        excerpt=f"device {device.device_id}, driver {device.driver}",
                    ),
                    Evidence(
                        source=gpus.source, excerpt=f"lists {', '.join(sorted(map(str, listed)))}"
                    ),
                    *_logged(device.address, xids),
                ),
                fixes=(repair_missing_gpu(device.address),),
            )


def _logged(address: str, xids: XidEvents | None) -> tuple[Evidence, ...]:
    """The last Xid of the GPU that is an error, else its last one."""
    events = [event for event in xids.events if address.startswith(event.address)] if xids else []
    worst = [event for event in events if xid(event.code, event.text).severity == "error"]
    last = (worst or events)[-1:]
    return tuple(Evidence(source=xids.source, excerpt=event.line) for event in last if xids)


@check("gpu-visible-devices-wrong", severity="error", category="device_ids", since="0.1")
def visible_devices_wrong(
    visible: VisibleDevices, gpus: Gpus, rules: DeviceIdRules | None
) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides GPUs or names some that are not there.

    ## Why it matters
    CUDA never complains: an entry that it does not know ends the list, so later GPUs vanish. The
    engine then reports too few GPUs, or none, or "invalid device ordinal".

    ## How it decides
    As CUDA reads it (CUDA programming guide, "Environment variables"): empty or starting with -1
    means no GPU; the list ends at the first entry that is no index below the number of GPUs and no
    beginning of one UUID; an entry that stands twice leaves no GPU at all (torch.cuda mirrors
    both, `_parse_visible_devices`). UUIDs are refused by those vLLM versions that turn every entry
    into an integer: told by the source of the installed one.

    ## Fix safety
    Safe: it changes the environment of the next start only.
    """
    evidence = (
        Evidence(source="environment", excerpt=f"{NAME}={visible.value}"),
        Evidence(source=gpus.source, excerpt=f"lists {plural(len(gpus.gpus), 'GPU')}"),
    )
    if any(entry.startswith("GPU-") for entry in visible.entries) and any(
        gpu.uuid is None for gpu in gpus.gpus
    ):
        raise Unavailable(f"{NAME} names UUIDs, and those of the GPUs are not known")
    problem = visible_problem(visible.entries, gpus)
    if problem is None:
        by_uuid = [entry for entry in visible.entries if entry.startswith(("GPU-", "MIG-"))]
        if not by_uuid or (rules is not None and rules.takes_uuid):
            return
        if rules is None:
            raise Unavailable("whether the installed engine takes UUIDs is not known")
        problem = f"{by_uuid[0]} is a UUID, and this vLLM turns every entry into an integer"
        evidence = (evidence[0], Evidence(source=rules.source, excerpt="no look-up by UUID"))
    yield Finding(
        about=NAME,
        message=f"{NAME}={visible.value or '(empty)'}: {problem}",
        evidence=evidence,
        fixes=(set_visible_devices(_repaired(visible.entries, gpus)),),
    )


def visible_problem(entries: Sequence[str], gpus: Gpus) -> str | None:
    """What CUDA would silently do, or None when it takes every entry."""
    if not entries or entries[0] == "-1":
        return f"hides all {plural(len(gpus.gpus), 'GPU')}"
    doubled = sorted({entry for entry in entries if list(entries).count(entry) > 1})
    if doubled:
        return f"{doubled[0]} stands twice, which leaves no GPU at all"
    for place, entry in enumerate(entries):
        if entry.startswith("MIG-") or index_of(entry, gpus) is not None:
            continue
        if gpus.gaps:  # how CUDA numbers the others is not known while one does not answer
            raise Unavailable(gpus.gaps[0])
        hidden = len(entries) - place
        known = f"there are GPUs 0 to {len(gpus.gpus) - 1}" if gpus.gpus else "there is no GPU"
        return f"{entry} names no GPU ({known}), so CUDA drops the last {hidden} of {len(entries)}"
    return None


def _repaired(entries: Sequence[str], gpus: Gpus) -> str:
    """The indices that were meant, each once; all GPUs when none was."""
    wanted = dict.fromkeys(index_of(entry, gpus) for entry in entries)
    indices = [index for index in wanted if index is not None] or [g.index for g in gpus.gpus]
    return ",".join(map(str, indices))


@check("gpu-memory-held", severity="warning", category="oom_startup_free_mem", since="0.1")
def memory_held(
    memory: GpuMemory,
    owners: GpuOwners,
    chosen: ChosenGpus | None,
    engine: EngineFact | None,
    launch: Launch | None,
) -> Iterator[Finding]:
    """Another process holds so much GPU memory that the engine will not start.

    ## Why it matters
    vLLM stops with "Free memory on device ... on startup is less than desired GPU memory
    utilization"; its advice, a lower utilisation, hides that a dead engine may hold the memory.

    ## How it decides
    vLLM wants ceil(total x gpu_memory_utilization) bytes free when it starts
    (v1/worker/utils.py:724,761), total being what CUDA reports: NVML's total less what the driver
    reserves. The utilisation is that of the launch, else the default: 0.92 since 0.21, 0.90
    before (config/cache.py). An error for a named launch and when the memory belongs to a dead
    engine: its processes are named like an engine's, and no server or launcher stands above them
    up to PID 1. Otherwise a warning: the engine that runs may be the very one you serve with.
    Only the GPUs that CUDA_VISIBLE_DEVICES leaves and that the ranks of the launch take count.

    ## Fix safety
    Unsafe: ending a process loses what it computes. Its PID is only named when /proc is known to
    speak of the same process.
    """
    name = launch.engine if launch and launch.engine else engine.name if engine else "vllm"
    if name != "vllm":
        raise NotApplicable("TensorRT-LLM takes a share of what is free and refuses nothing")
    share = memory_utilization(launch) if launch else None
    share = share or default_utilisation(engine.version if engine else None)
    for row in memory.rows:
        if left_out(row.index, chosen):
            continue
        wanted = math.ceil(row.usable * share)
        about, most = ("about ", "at most ") if row.bounds else ("", "")
        if row.free >= wanted or row.used <= 0:
            continue
        mine = [owner for owner in owners.owners if owner.gpu == row.index]
        orphans = [owner for owner in mine if owner.orphan]
        yield Finding(
            about=f"GPU {row.index}",
            message=f"GPU {row.index}: {gib(row.used)} of {gib(row.usable)} are held"
            f"{_holders(mine)}; vLLM wants {about}{gib(wanted)} free ({share:g}), "
            f"{most}{gib(row.free)} are",
            severity="error" if launch or orphans else None,
            evidence=(
                Evidence(
                    source=memory.source,
                    excerpt=f"GPU {row.index}: total {row.total}, usable {row.usable}, "
                    f"used {row.used}, free {row.free} bytes",
                ),
                *(_evidence(owner, owners.source) for owner in mine[:4]),
            ),
            fixes=_memory_fixes(row, mine),
        )


def _holders(owners: Sequence[Owner]) -> str:
    if not owners:
        return " by processes that are not visible from here"
    words = []
    for owner in sorted(owners, key=lambda owner: owner.used or 0, reverse=True)[:3]:
        details = [f"PID {owner.pid}"]
        details += [gib(owner.used)] if owner.used and len(owners) > 1 else []
        details += [f"{age(owner.age_s)} old"] if owner.age_s is not None else []
        details += ["no server above it"] if owner.orphan else []
        words.append(f"{owner.name or 'a process'} ({', '.join(details)})")
    more = len(owners) - len(words)
    dead = "a dead engine, " if any(owner.orphan for owner in owners) else ""
    return f" by {dead}{', '.join(words)}{f' and {more} more' if more > 0 else ''}"


def _evidence(owner: Owner, source: str) -> Evidence:
    used = gib(owner.used) if owner.used else "unknown memory"
    return Evidence(source=source, excerpt=f"PID {owner.pid} {owner.name or ''}: {used}")


def _memory_fixes(row: MemoryRow, owners: Sequence[Owner]) -> tuple[Fix, ...]:
    fixes = [
        end_process(owner.pid, owner.started, owner.name or "", orphan=owner.orphan)
        for owner in owners
        if owner.age_s is not None
    ]
    if row.bounds:  # a share out of upper bounds may be one that does not fit
        return tuple(fixes)
    return (*fixes, *lower_utilisation(row.free, row.usable))


@check("gpu-ecc-uncorrected", severity="error", category="gpu_health", since="0.1")
def ecc_uncorrected(ecc: GpuEcc, chosen: ChosenGpus | None) -> Iterator[Finding]:
    """A GPU has uncorrected memory errors since the driver was loaded.

    ## Why it matters
    The process that meets one dies (Xid 48, 63, 94, 95); what was in that memory is wrong.

    ## How it decides
    nvmlDeviceGetTotalEccErrors, uncorrected, volatile (since the driver was loaded or the GPU was
    reset) above 0. NVIDIA's GPU debug guidelines ask for a reset after an uncontained error and
    for a field diagnosis when it comes back
    (https://docs.nvidia.com/deploy/gpu-debug-guidelines/). GPUs without ECC have nothing to judge.
    A warning for a GPU that the engine does not take.

    ## Fix safety
    Manual: a reset ends all work on the GPU.
    """
    if ecc.rows and all(row.uncorrected is None for row in ecc.rows) and not ecc.gaps:
        raise NotApplicable("no GPU here has ECC, or it is switched off")
    for row in ecc.rows:
        if row.uncorrected:
            yield _ecc_finding(row, row.uncorrected, ecc.source, left_out(row.index, chosen))


def _ecc_finding(row: EccRow, count: int, source: str, unused: bool) -> Finding:
    return Finding(
        about=f"GPU {row.index}",
        severity="warning" if unused else None,
        message=f"GPU {row.index}: {plural(count, 'uncorrected memory error')} since the driver "
        "was loaded; the bound is 0",
        evidence=(
            Evidence(source=source, excerpt=f"GPU {row.index}: uncorrected volatile ECC {count}"),
        ),
        fixes=(reset_gpu(row.index),),
    )
