"""Machines that must be alike: GPUs, RDMA, limits, clocks; and whether they are enough together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from infer_doctor.cluster.compare import (
    Quantity,
    Reading,
    Value,
    advise,
    fact,
    judge,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuMemory, Gpus
from infer_doctor.facts.gpu_health import GpuMig
from infer_doctor.facts.limits import LockRight, ProcessLimits, Rdma
from infer_doctor.facts.network import ClockState, GpuDirect
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import evidence, whole
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding, Missing
from infer_doctor.registry import check
from infer_doctor.units import GIB, plural
from infer_doctor.units import names as words

RANK_FACTORS = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")


@check("cluster-gpu-differs", severity="warning", category="cluster_difference", since="0.3")
def gpu_differs(nodes: Nodes) -> Iterator[Finding]:
    """The nodes have other GPUs, or another number of them.

    ## Why it matters
    Ranks wait for the slowest, the smallest memory decides how many KV blocks all of them have,
    and a node with a GPU less leaves a rank without one.

    ## How it decides
    Model, number, total memory and MIG mode of the GPUs that NVML lists on each node. A node that provably has
    none (on the PCI bus and in /dev) is taken for a head node and left out: whether the others are
    enough tells cluster-gpus-few, whether Ray counts on it cluster-ray-gpus-differ. One where NVML
    runs and lists none counts with "none".

    ## Fix safety
    Manual: hardware, a container's devices or a partition of MIG.
    """
    yield from judge(nodes, [Quantity(name="the set of GPUs", read=_gpus)])


def _gpus(node: Node) -> Reading:
    found = node.get(Gpus)
    if isinstance(found, Missing):
        return found
    if found.gaps:
        return Missing(fact="Gpus", reason=found.gaps[0], kind="unavailable")
    memory = node.fact(GpuMemory)
    sizes = {row.index: row.total for row in memory.rows} if memory else {}
    modes = node.fact(GpuMig)
    parted = {row.index for row in modes.rows if row.on} if modes else set()
    names = Counter(
        f"{gpu.name}{f' {sizes[gpu.index] / GIB:.0f} GiB' if gpu.index in sizes else ''}"
        f"{' in MIG mode' if gpu.index in parted else ''}"
        for gpu in found.gpus
    )
    text = ", ".join(f"{count} x {name}" for name, count in sorted(names.items()))
    return Value(text=text or "none", source=found.source)


@check("cluster-gpus-few", severity="error", category="gpu_count_ray", since="0.3")
def gpus_few(nodes: Nodes, launch: Launch) -> Iterator[Finding]:
    """All nodes together have fewer GPUs than the launch has ranks.

    ## Why it matters
    Ray waits for a placement group that never comes, and an engine started by hand waits for ranks
    that nobody starts.

    ## How it decides
    Tensor x pipeline (x prefill context) x data parallel size, against the GPUs that NVML lists on
    all nodes together. A node whose GPUs are not known leaves it undecided, unless the others are
    enough; so do nodes of --nnodes that were not seen.

    ## Fix safety
    Manual: another size or more nodes.
    """
    options = next((o for o in (n.fact(EngineOptions) for n in nodes.nodes) if o is not None), None)
    if options is None:
        raise Unavailable("the options of the launch are not known")
    factors = [whole(options, name, 1) for name in (*RANK_FACTORS, "data_parallel_size")]
    ranks = 1
    for factor in factors:
        ranks *= factor
    if ranks <= 1:
        raise NotApplicable("one rank")
    counts: dict[str, int] = {}
    unknown: list[str] = []
    for node in nodes.nodes:
        found = node.get(Gpus)
        if isinstance(found, Missing) and found.kind != "absent":
            unknown.append(f"the GPUs of {node.name} are not known: {found.reason}")
        counts[node.name] = 0 if isinstance(found, Missing) else len(found.gpus)
    total = sum(counts.values())
    if total >= ranks:
        return
    if unknown:
        raise Unavailable(unknown[0])
    wanted = whole(options, "nnodes", 1)
    if wanted > len(counts):
        raise Unavailable(f"{len(counts)} of the {wanted} nodes of the launch were seen")
    size = " x ".join(str(factor) for factor in factors if factor > 1)
    yield Finding(
        about="GPUs of all nodes",
        message=f"the launch has {ranks} ranks ({size}); {len(counts)} nodes have "
        f"{plural(total, 'GPU')} together",
        evidence=(
            *evidence(options, *RANK_FACTORS, "data_parallel_size"),
            Evidence(
                source="NVML", excerpt=", ".join(f"{k} {v}" for k, v in list(counts.items())[:20])
            ),
        ),
        fixes=(
            advise(
                "fewer-ranks",
                f"Start with sizes whose product is at most {total}, or add nodes",
            ),
        ),
    )


@check("cluster-rdma-differs", severity="warning", category="cluster_difference", since="0.3")
def rdma_differs(nodes: Nodes) -> Iterator[Finding]:
    """Some nodes have RDMA devices, or GPUDirect, that others lack.

    ## Why it matters
    NCCL uses what all ranks have: one node without an InfiniBand or RoCE device makes all traffic
    go over TCP, at a tenth of the speed, and without nvidia_peermem each byte goes through the
    memory of the host.

    ## How it decides
    The devices in /sys/class/infiniband that a process can open (/dev/infiniband), by number; and
    where there are some, whether the module nvidia_peermem is loaded. Newer kernels and drivers can
    share memory without it (dma-buf), so a difference in it is only likely to matter. Nodes that
    provably have no GPU are left out: no rank of NCCL is there.

    ## Fix safety
    Manual: devices of the container or a module of the kernel.
    """
    yield from judge(
        nodes,
        [
            Quantity(name="the number of RDMA devices", read=_rdma),
            Quantity(
                name="the GPUDirect module",
                read=fact(
                    GpuDirect, lambda row: row.module or "not loaded", lambda _: "/sys/module"
                ),
                confidence="likely",
                cure=lambda odd, most: advise(
                    "load-peermem", f"Load {most} on {odd}", f"modprobe {most}"
                ),
            ),
        ],
    )


def _rdma(node: Node) -> Reading:
    gpus = node.get(Gpus)
    if isinstance(gpus, Missing) and gpus.kind == "absent":
        return gpus
    found = node.get(Rdma)
    if isinstance(found, Missing):
        return Value(text="0", source="/sys/class/infiniband") if found.kind == "absent" else found
    return Value(
        text=str(len(found.devices)), source=f"/sys/class/infiniband {' '.join(found.devices[:8])}"
    )


@check("cluster-limits-differ", severity="warning", category="cluster_difference", since="0.3")
def limits_differ(nodes: Nodes) -> Iterator[Finding]:
    """The limits for locked memory or open files are not the same on all nodes.

    ## Why it matters
    Limits are inherited from what starts the engine: a Ray that was started by hand on one node and
    by systemd on the others gives its workers other limits, and only that node fails.

    ## How it decides
    getrlimit of the doctor's own process on each node: the soft limit for locked memory (unlimited
    where the process may lock more anyway) and the hard limit for open files, to which vLLM raises
    itself.

    ## Fix safety
    Manual: the limit is set where the engine is started.
    """
    yield from judge(
        nodes,
        [
            Quantity(name="the limit for locked memory", read=_memlock),
            Quantity(
                name="the limit for open files",
                read=fact(
                    ProcessLimits,
                    lambda row: _limit(row.nofile.hard),
                    lambda _: "getrlimit(RLIMIT_NOFILE)",
                ),
            ),
        ],
    )


def _memlock(node: Node) -> Reading:
    found = node.get(ProcessLimits)
    if isinstance(found, Missing):
        return found
    right = node.fact(LockRight)
    free = right is not None and right.unlimited
    return Value(
        text="unlimited" if free else _limit(found.memlock.soft, "bytes"),
        source="CAP_IPC_LOCK" if free else "getrlimit(RLIMIT_MEMLOCK)",
    )


def _limit(value: int | None, unit: str = "") -> str:
    return "unlimited" if value is None else f"{value:,} {unit}".strip()


@check("cluster-clock-unset", severity="warning", category="cluster_difference", since="0.3")
def clock_unset(nodes: Nodes) -> Iterator[Finding]:
    """Some nodes keep their clocks right, others do not.

    ## Why it matters
    Logs of several nodes cannot be put in order, certificates and tokens seem to be of the future,
    and time-outs that compare two clocks fire at once.

    ## How it decides
    The kernel's own state (adjtimex(2), STA_UNSYNC): whether a time daemon has set the clock. Only
    a difference is told; where no node has a daemon, as in many virtual machines, the host may keep
    the time.

    ## Fix safety
    Manual: a service of the machine.
    """
    states = {node.name: node.get(ClockState) for node in nodes.nodes}
    known = {k: v for k, v in states.items() if not isinstance(v, Missing)}
    free = [name for name, state in known.items() if not state.synchronised]
    if free and len(free) < len(known):
        yield Finding(
            about=f"clock of {' '.join(free)}",
            message=f"nothing keeps the clock right on {words(free)}; it is synchronised on "
            f"{plural(len(known) - len(free), 'other node')}",
            confidence="likely",
            evidence=(
                Evidence(source="adjtimex", excerpt=f"STA_UNSYNC on {', '.join(free[:20])}"),
            ),
            fixes=(
                advise(
                    "set-clock",
                    f"Start a time service (chrony or systemd-timesyncd) on {words(free)}",
                    "timedatectl set-ntp true",
                    restarts=False,
                ),
            ),
        )
        return
    lost = [(name, state.reason) for name, state in states.items() if isinstance(state, Missing)]
    if lost:
        raise Unavailable(f"the clock of {lost[0][0]} is not known: {lost[0][1]}")
