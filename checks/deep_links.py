"""Checks of an all-reduce over all GPUs; all need `--deep`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infer_doctor.catalog.links import LEAST_SHARE, NVLINK_BYTES
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.deep_links import LinkRank, LinkRun
from infer_doctor.facts.gpu_health import GpuNvlinks
from infer_doctor.facts.machine import Identity
from infer_doctor.fixes.container import enlarge_shm
from infer_doctor.fixes.variables import unset
from infer_doctor.host import Unavailable
from infer_doctor.model import Category, Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import GIB, plural

SHM_WORDS = re.compile(r"/dev/shm|shared memory segment|No space left on device", re.I)  # noqa: S108
"""What NCCL says when /dev/shm is full (src/misc/shmutils.cc)."""

SHM_RECOMMENDED_GIB = 1
"""--shm-size=1g: NCCL user guide, troubleshooting, "Shared memory"."""

DIRECT = ("P2P", "NVLS", "CUMEM")
"""How the names of NCCL's transports over peer-to-peer access begin (src/transport/p2p.cc)."""

UNFINISHED = "the all-reduce did not come to its end: nccl-allreduce-failed says why"


@check("nccl-allreduce-failed", severity="error", category="nccl_network", since="0.1")
def allreduce_failed(run: LinkRun, identity: Identity | None) -> Iterator[Finding]:
    """An all-reduce over the GPUs fails or hangs.

    ## Why it matters
    Tensor parallelism starts with exactly this; the engine then hangs in its start or says
    "unhandled system error" without the cause.

    ## How it decides
    One process for each visible GPU, forked from the engine's interpreter, sums buffers with the
    libnccl that the engine would load. NCCL's own words or the step that never came back are the
    finding. The first rank with an error is named; that others then wait is no finding of its own.
    A rank counts as hanging after 45 s. Needs `--deep`.

    ## Fix safety
    A larger /dev/shm where NCCL names it: manual. Else none of its own.
    """
    failed = next((row for row in run.ranks if row.error), None)
    hung = [row for row in run.ranks if row.step != "the end" and not row.error]
    if failed is None and not hung:
        return
    row = failed or hung[0]
    shm = any(SHM_WORDS.search(text) for text in (*row.warnings, row.error or ""))
    kind = identity.container if identity else None
    yield Finding(
        about="all-reduce",
        message=f"an all-reduce over {plural(len(run.ranks), 'GPU')} "
        + (f"failed on rank {row.rank}: {row.error}" if failed else _hanging(hung)),
        category=_category(row, shm),
        evidence=(
            Evidence(source=run.source, excerpt=f"rank {row.rank} in {row.step}"),
            *(Evidence(source="NCCL", excerpt=text) for text in row.warnings[:3]),
        ),
        fixes=(enlarge_shm(kind, SHM_RECOMMENDED_GIB),) if shm else (),
    )


def _hanging(ranks: list[LinkRank]) -> str:
    names = ", ".join(str(row.rank) for row in ranks)
    return f"did not come back from {ranks[0].step} on rank {names}"


def _category(row: LinkRank, shm: bool) -> Category:
    if shm:
        return "nccl_shm"
    return "cuda_error" if "cuda" in (row.error or "").partition(":")[0] else "p2p_allreduce"


@check("nccl-sum-wrong", severity="error", category="p2p_allreduce", since="0.1")
def sum_wrong(run: LinkRun) -> Iterator[Finding]:
    """An all-reduce gives wrong sums.

    ## Why it matters
    The engine starts, and its answers are nonsense ("!!!!"). Seen where PCIe access control
    services or an IOMMU redirect peer-to-peer writes.

    ## How it decides
    1,024 numbers of known sum; floats of small whole numbers are added exactly, so each must be
    equal. Needs `--deep`.

    ## Fix safety
    No fix of its own: with NCCL_P2P_DISABLE=1 the data goes over the host; the cause is in the
    BIOS or the kernel's IOMMU settings (NCCL user guide, troubleshooting, "PCI Access Control").
    """
    if any(row.wrong is None for row in run.ranks):
        raise Unavailable(UNFINISHED)
    for row in run.ranks:
        if row.wrong:
            yield Finding(
                about=f"rank {row.rank}",
                message=f"{row.wrong} of 1,024 sums are wrong on rank {row.rank}",
                evidence=(Evidence(source=run.source, excerpt=f"via {', '.join(row.via)}"),),
            )


@check("nccl-not-direct", severity="warning", category="p2p_allreduce", since="0.1")
def not_direct(run: LinkRun, links: GpuNvlinks) -> Iterator[Finding]:
    """GPUs that have NVLink between them exchange data over the host.

    ## Why it matters
    Each layer of a tensor-parallel model sums twice; over the host that is about ten times slower.

    ## How it decides
    NVML shows links up on every GPU, and either CUDA denies peer access
    (cudaDeviceCanAccessPeer), or NCCL's own log names no transport of the kind P2P, or the bus
    bandwidth of 256 MiB (2 (n - 1) / n x size / time, as nccl-tests count) is below a quarter of
    25 GB/s for each link that is up. Variables that NCCL says were set are the cause where they
    disable it; a low bandwidth alone is only likely to be one: some boards join GPUs in pairs.
    Without NVLink nothing is judged: PCIe boards differ too much. Needs `--deep`.

    ## Fix safety
    Taking a variable away is unsafe only in that the engine has to start anew; it may have been set
    as a way round a fault: nccl-sum-wrong and nccl-allreduce-failed show whether it still is one.
    """
    up = min((sum(states) for states in links.links.values()), default=0)
    if not up:
        raise NotApplicable("not every GPU has an NVLink that is up")
    speed = run.bus_bytes_per_s
    if speed is None:
        raise Unavailable(UNFINISHED)
    least = LEAST_SHARE["NVLink"] * NVLINK_BYTES * up
    denied = [
        f"{row.rank} -> {other}"
        for row in run.ranks
        for other, able in enumerate(row.peers)
        if not able and other != row.rank
    ]
    via = sorted({name for row in run.ranks for name in row.via})
    indirect = bool(via) and not any(name.startswith(DIRECT) for name in via)
    if not denied and not indirect and speed >= least:
        return
    settings = sorted({text for row in run.ranks for text in row.settings if _disables(text)})
    said = [f"CUDA denies peer access {', '.join(denied)}"] if denied else []
    said += [f"NCCL chose {', '.join(via)}"] if indirect else []
    said += [f"because {', '.join(settings)} is set"] if settings else []
    yield Finding(
        about="NVLink",
        message=f"GPUs with {plural(up, 'NVLink')} each sum at {speed / 1e9:.0f} GB/s (over the links more "
        f"than {least / 1e9:.0f})" + "".join(f"; {text}" for text in said),
        confidence="certain" if said else "likely",
        evidence=(
            Evidence(source=run.source, excerpt=_measured(run, via)),
            *(Evidence(source="NCCL", excerpt=f"{text} (environment)") for text in settings),
        ),
        fixes=tuple(unset(text.partition("=")[0]) for text in settings),
    )


def _measured(run: LinkRun, via: Sequence[str]) -> str:
    words = f", transport {', '.join(via)}" if via else ""
    return f"{run.large_bytes / GIB:.2f} GiB in {max(row.large_s or 0 for row in run.ranks):.4f} s{words}"


def _disables(setting: str) -> bool:
    """NCCL_P2P_DISABLE=1, NCCL_P2P_LEVEL=LOC: what takes peer-to-peer access away."""
    name, _, value = setting.partition("=")
    return (name == "NCCL_P2P_DISABLE" and value not in ("0", "")) or (
        name == "NCCL_P2P_LEVEL" and value in ("LOC", "0")
    )
