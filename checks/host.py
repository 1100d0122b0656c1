"""Limits and memory of the host, as far as they matter before a model is named."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.limits import LockRight, ProcessLimits, Rdma
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.memory import HostMemory, MemoryGroup, MemoryGroups
from infer_doctor.fixes.host import free_memory, more_memory, raise_limit
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import option
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import GIB, MIB, gib

NCCL_CONNECTION = 9_637_888
"""Bytes that NCCL holds for one connection: 0.5 MiB for LL, 4.7 MiB for LL128, 4 MiB for Simple and a
page (src/init.cc DEFAULT_*_BUFFSIZE; the "size 9637888" of its messages; NCCL_BUFFSIZE's default of
4194304 in the user guide)."""

VLLM_RAISES_TO = 65_535
"""utils/system_utils.py:241 set_ulimit: called before the server starts, in every vLLM seen, 0.8.5 to
0.32; it fails, and changes nothing, when the hard limit is lower."""

REQUESTS_AND_OWN = 1024 + 32
"""1,024 requests at a time are vLLM's default on GPUs of 70 GiB and more (engine/arg_utils.py:2939),
each with a connection; the idle API server of 0.32 has 32 files open (counted in /proc, 2026-11)."""

LEAST_MEMORY = 6_000_000_000
"""What vLLM's own manifest requests for a 7B model on one GPU, "memory: 6G", with a limit of 20G
(docs/deployment/k8s.md)."""


@check("host-memlock-low", severity="info", category="nccl_network", since="0.1")
def memlock_low(
    limits: ProcessLimits, rdma: Rdma, right: LockRight, identity: Identity, launch: Launch | None
) -> Iterator[Finding]:
    """The limit for locked memory is too low for RDMA between nodes.

    ## Why it matters
    NCCL, UCX and NIXL register memory with the network card, which locks it. Above the limit
    ibv_reg_mr fails with "Cannot allocate memory" and no rank gets further than its first
    collective (NVIDIA/nccl-tests issue 206: 8192 KiB, the kernel's default).

    ## How it decides
    Only where a process can use RDMA at all: /sys/class/infiniband has a device and
    /dev/infiniband a uverbs node. The soft limit (getrlimit) is below 9,637,888 bytes, which NCCL
    holds for one connection (LL 524,288 + LL128 4,915,200 + Simple 4,194,304 + 4,096), and the
    process may not lock more anyway (CAP_IPC_LOCK in the first user name space). An error for a
    launch that spans nodes or hands KV cache to another engine, a note without a launch; with a
    launch on one node nothing is registered. CUDA's own pinned memory is not counted by this
    limit, so that a machine without RDMA has nothing to judge.

    ## Fix safety
    Manual: the limit is set where the engine is started.
    """
    if launch is not None and not _uses_network(launch):
        raise NotApplicable("the launch stays on one node: no memory is registered for RDMA")
    soft = limits.memlock.soft
    if soft is None or right.unlimited or soft >= NCCL_CONNECTION:
        return
    yield Finding(
        about="memlock",
        message=f"{_kib(soft)} of memory may be locked; one NCCL connection over "
        f"{', '.join(rdma.devices[:3])} takes {_kib(NCCL_CONNECTION)}",
        severity="error" if launch is not None else None,
        confidence="likely",
        evidence=(
            Evidence(source="getrlimit(RLIMIT_MEMLOCK)", excerpt=f"soft limit {soft} bytes"),
            Evidence(source="/sys/class/infiniband", excerpt=", ".join(rdma.devices[:8])),
        ),
        fixes=(raise_limit(identity.container, "memlock", "-1", "LimitMEMLOCK=infinity"),),
    )


def _uses_network(launch: Launch) -> bool:
    nodes = option(launch, "--nnodes", "-n") or "1"
    ray = option(launch, "--distributed-executor-backend") == "ray"
    return nodes != "1" or ray or option(launch, "--kv-transfer-config") is not None


def _kib(size: int) -> str:
    """Limits of locked memory are small: 64 KiB, 8.0 MiB, 9.2 MiB."""
    return f"{size / 1024:.0f} KiB" if size < MIB else f"{size / MIB:.1f} MiB"


@check("host-nofile-low", severity="warning", category="environment", since="0.1")
def nofile_low(limits: ProcessLimits, identity: Identity) -> Iterator[Finding]:
    """A process may open too few files for the requests that an engine takes at once.

    ## Why it matters
    Each client is an open file. Above the limit the server answers nobody new and writes
    "OSError: [Errno 24] Too many open files".

    ## How it decides
    vLLM raises its soft limit to 65,535 when it starts (utils/system_utils.py), so only a hard
    limit below that leaves the soft one as it is. The finding comes when that is also below 1,056:
    1,024 requests run at a time by default on large GPUs (engine/arg_utils.py), and an idle API
    server of vLLM 0.32 has 32 files open. A soft limit of 1,024 with a high hard limit, the
    default of most systems, is no finding.

    ## Fix safety
    Manual: the limit is set where the engine is started.
    """
    soft, hard = limits.nofile.soft, limits.nofile.hard
    if soft is None or hard is None or hard >= VLLM_RAISES_TO or soft >= REQUESTS_AND_OWN:
        return
    yield Finding(
        about="nofile",
        message=f"{soft:,} files may be open, and the hard limit of {hard:,} keeps vLLM from raising "
        f"that to {VLLM_RAISES_TO:,}; 1,024 requests and the server itself take {REQUESTS_AND_OWN:,}",
        evidence=(
            Evidence(source="getrlimit(RLIMIT_NOFILE)", excerpt=f"soft {soft}, hard {hard}"),
        ),
        fixes=(
            raise_limit(
                identity.container, "nofile", str(VLLM_RAISES_TO), f"LimitNOFILE={VLLM_RAISES_TO}"
            ),
        ),
    )


@check("host-memory-low", severity="warning", category="host_ram", since="0.1")
def memory_low(
    memory: HostMemory, groups: MemoryGroups, identity: Identity, launch: Launch | None
) -> Iterator[Finding]:
    """The host's memory, or the limit of the container's, is too low for any engine.

    ## Why it matters
    The kernel kills the engine while it imports or loads: "Killed", exit status 137, a worker that
    "died unexpectedly". Nothing in the log says memory.

    ## How it decides
    Below 6 GB (5.6 GiB), what vLLM's own Kubernetes manifest requests for a 7B model on one GPU,
    before any model is named here: the lowest limit of the control groups that this process is in
    (version 1: memory.limit_in_bytes, version 2: memory.max and memory.high, as far up as can be
    seen), else MemTotal of /proc/meminfo. The file cache is no need: the kernel drops it, so
    weights that are mapped do not count. With a launch also what is free now. Never more than a
    warning, and a total only possible: a virtual machine may start small and grow (what a balloon
    holds is counted as memory where the kernel tells).

    ## Fix safety
    Manual: limits belong to who starts the container.
    """
    limit = groups.tightest
    if limit is not None and limit.limit is not None and limit.limit < LEAST_MEMORY:
        yield _memory(
            "limit",
            f"{gib(limit.limit)} of memory is the limit for this process",
            Evidence(source=limit.folder, excerpt=f"limit {limit.limit} bytes"),
            more_memory(identity.container, math.ceil(LEAST_MEMORY / GIB)),
            likely=True,
        )
    elif memory.total < LEAST_MEMORY:
        yield _memory(
            "total",
            f"the host has {gib(memory.total)} of memory",
            Evidence(source="/proc/meminfo", excerpt=f"MemTotal {memory.total} bytes"),
            more_memory(None, math.ceil(LEAST_MEMORY / GIB)),
        )
    elif launch is not None and (free := _free(memory, limit)) is not None and free < LEAST_MEMORY:
        yield _memory(
            "free",
            f"{gib(free)} of memory are free for this process",
            Evidence(
                source="/proc/meminfo",
                excerpt=f"MemAvailable {memory.available} bytes"
                + (f"; limit {limit.limit}, used {limit.used} bytes" if limit else ""),
            ),
            free_memory(),
        )


def _free(memory: HostMemory, limit: MemoryGroup | None) -> int | None:
    rooms = [memory.available, limit.free if limit else None]
    return min((room for room in rooms if room is not None), default=None)


def _memory(
    about: str, fact: str, evidence: Evidence, fix: Fix, *, likely: bool = False
) -> Finding:
    return Finding(
        about=about,
        message=f"{fact}; vLLM's own manifest requests {gib(LEAST_MEMORY)} (6 GB) for a 7B model",
        confidence="likely" if likely else "possible",
        evidence=(evidence,),
        fixes=(fix,),
    )
