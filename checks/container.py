"""What a container was started without: GPUs, the driver's libraries, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

from infer_doctor.catalog.shm import (
    CHUNK,
    DOCKER_DEFAULT,
    GROUP_RING,
    NVIDIA_RECOMMENDS,
    REFUSES_SINCE,
    RESPONSE_RING,
    TENSOR_ARENA,
    broadcast_ring,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.container import CAPABILITIES, MountedDriver, gpu_nodes
from infer_doctor.facts.driver import KernelModule
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.memory import SHM, SharedMemory
from infer_doctor.facts.pci import PciBus
from infer_doctor.fixes.container import enlarge_shm, give_gpus, set_driver_capabilities
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import all_ranks, option
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import GIB, gib, plural
from infer_doctor.versions import series

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"


@check("container-without-gpu", severity="error", category="container", since="0.1")
def without_gpu(
    identity: Identity,
    bus: PciBus,
    module: KernelModule,
    environ: Environ,
    engine: EngineFact | None,
) -> Iterator[Finding]:
    """The host has NVIDIA GPUs and a driver, but the container was started without them.

    ## Why it matters
    The engine says "Failed to infer device type", "No CUDA GPUs are available" or "libcuda.so.1:
    cannot open shared object file", as if the driver were missing.

    ## How it decides
    A container shares the kernel of its host: the PCI bus shows the GPUs bound to the driver
    "nvidia" and /proc/driver/nvidia/version the loaded module. Without GPUs the container has no
    /dev/nvidia0 and so on; nvidiactl and nvidia-uvm alone do not count. NVIDIA_VISIBLE_DEVICES
    tells why: unset, empty or "void" leaves a container as it is, "none" gives libraries but no
    GPU (NVIDIA Container Toolkit, "GPU Enumeration"); "all" with no node means that the NVIDIA
    run-time did not start it: CUDA images bring that value. It does not apply outside containers,
    nor to a CPU build of vLLM.

    ## Fix safety
    Manual: the container has to be started again.
    """
    if identity.container is None:
        raise NotApplicable("not in a container")
    if engine is not None and engine.build not in ("cuda", None):
        raise NotApplicable(f"the installed {engine.name} is a {engine.build} build")
    given = [gpu for gpu in bus.gpus if gpu.driver == "nvidia"]
    if gpu_nodes(identity) or "dxg" in identity.devices or module.version is None or not given:
        return
    value = environ.variables.get(VISIBLE)
    said = f"{VISIBLE} is not set" if value is None else f"{VISIBLE}={value or '(empty)'}"
    others = ", ".join(identity.devices)
    yield Finding(
        about="container",
        message=f"the host has {plural(len(given), 'NVIDIA GPU')} and driver {module.version}, but "
        f"this container ({identity.container}) has no /dev/nvidia0 or other GPU node; {said}",
        evidence=(
            Evidence(source=f"/sys/bus/pci/devices/{given[0].address}", excerpt="driver nvidia"),
            module.evidence,
            Evidence(source="/dev", excerpt=f"only {others}" if others else "no nvidia* node"),
            Evidence(source="environment", excerpt=said),
        ),
        fixes=(give_gpus(identity.container),),
    )


@check("container-driver-capabilities", severity="error", category="container", since="0.1")
def driver_capabilities(
    mounted: MountedDriver, identity: Identity, environ: Environ
) -> Iterator[Finding]:
    """The container has GPUs, but not the driver's libraries for CUDA or NVML.

    ## Why it matters
    Without `utility` there is no libnvidia-ml.so.1, and vLLM does not recognise the GPU; without
    `compute` there is no libcuda.so.1, and nothing that computes can start.

    ## How it decides
    /dev has nodes of GPUs, but a library is neither in LD_LIBRARY_PATH nor in the loader's cache
    nor in the folders where the NVIDIA run-time mounts it. NVIDIA_DRIVER_CAPABILITIES names what
    is mounted: compute brings libcuda.so.1, utility libnvidia-ml.so.1, "all" both; unset or empty
    means compute,utility in today's toolkit (NVIDIA Container Toolkit, "Driver Capabilities").

    ## Fix safety
    Manual: the container has to be started again.
    """
    missing = [name for name, path in mounted.libraries.items() if path is None]
    if not missing:
        return
    value = environ.variables.get(CAPABILITIES_VARIABLE, "")
    have = {word.strip() for word in value.split(",") if word.strip()}
    lacks = [CAPABILITIES[name] for name in missing]
    explained = bool(have) and "all" not in have and not have.intersection(lacks)
    said = f"{CAPABILITIES_VARIABLE}={value}" if value else f"{CAPABILITIES_VARIABLE} is not set"
    none = len(missing) == len(CAPABILITIES) and not explained
    yield Finding(
        about=CAPABILITIES_VARIABLE,
        message=f"{plural(len(gpu_nodes(identity)), 'GPU')} in /dev, but {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} not in the container; {said}, "
        f"{' and '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} needed",
        confidence="certain" if explained else "likely",
        evidence=(
            Evidence(source="/dev", excerpt=", ".join(gpu_nodes(identity))),
            Evidence(source="environment", excerpt=said),
        ),
        fixes=(
            give_gpus(identity.container) if none else set_driver_capabilities(identity.container),
        ),
    )


@check("container-shm-small", severity="warning", category="nccl_shm", since="0.1")
def shm_small(
    shm: SharedMemory,
    environ: Environ,
    identity: Identity,
    launch: Launch | None,
    engine: EngineFact | None,
) -> Iterator[Finding]:
    """Shared memory, /dev/shm, is too small for the ranks of the launch.

    ## Why it matters
    Ranks of one machine exchange data through /dev/shm, of which Docker and Kubernetes give 64 MiB.
    vLLM since 0.27 refuses to start ("Insufficient space in /dev/shm"); older ones are killed by
    SIGBUS under load; NCCL stops with "unhandled system error".

    ## How it decides
    What counts is the free space, as the engine itself asks (shutil.disk_usage). vLLM makes one
    ring of 160 MiB (10 x VLLM_MQ_MAX_CHUNK_BYTES_MB, default 16) and one of 240 MiB for each rank
    (10 x 24), and since 0.27 wants the whole of each free when it is made: an error below the
    larger. --enable-shm-tensor-arena adds 2 GiB. Over several nodes only the first ring is that
    large; with Ray the executor depends on the version, so the finding is only likely. Older
    vLLM: a warning below the first ring, which requests with images fill (pull request 48879).
    TensorRT-LLM: a warning at 64 MiB or less, which NVIDIA's images themselves call insufficient.
    Sizes by version with their source: catalog/shm.py. Without a launch no number of ranks is
    named and nothing is judged; neither with one rank, but for the CPU build, which always has
    worker processes.

    ## Fix safety
    Manual: the container has to be started again. The size in the title holds every ring in full.
    """
    if launch is None:
        raise NotApplicable("no launch is named: give its command after --")
    name = launch.engine or (engine.name if engine else None)
    if name is None:
        raise Unavailable("the command names no engine")
    ranks = all_ranks(launch)
    if ranks is None:
        raise Unavailable("the number of ranks is not a number")
    if ranks == 1 and not (engine and engine.build == "cpu"):
        raise NotApplicable("one rank shares nothing")
    if shm.total is None:
        need, why, sure = 1, f"{plural(ranks, 'rank')} of {name} share memory there", True
    elif name == "vllm":
        need, why, sure = _vllm_needs(ranks, launch, engine, environ)
    elif shm.total <= DOCKER_DEFAULT:
        need, why, sure = NVIDIA_RECOMMENDS, "NVIDIA recommends 1 GiB or the host's", False
    else:
        return
    if shm.total is not None and shm.free >= need:
        return
    room = (
        "does not exist" if shm.total is None else f"has {gib(shm.free)} of {gib(shm.total)} free"
    )
    backend = option(launch, "--distributed-executor-backend")
    yield Finding(
        about=SHM,
        message=f"{SHM} {room}; {why}",
        severity="error" if sure else None,
        confidence="certain" if sure and backend in (None, "mp") else "likely",
        evidence=(
            Evidence(source=f"statvfs {SHM}", excerpt=f"{shm.free} of {shm.total} bytes free"),
            Evidence(
                source="launch", excerpt=f"{plural(ranks, 'rank')}: {' '.join(launch.command)}"
            ),
        ),
        fixes=(enlarge_shm(identity.container, _whole(ranks, launch, environ)),),
    )


def _vllm_needs(
    ranks: int, launch: Launch, engine: EngineFact | None, environ: Environ
) -> tuple[int, str, bool]:
    """Bytes that must be free, the reason in words, and whether vLLM itself refuses below them."""
    version = series(engine.version if engine else None)
    first = broadcast_ring(version, of_engine(launch, environ, CHUNK).get(CHUNK))
    who = plural(ranks, "rank")
    if version is None or version < REFUSES_SINCE:
        return first, f"requests to {who} fill a queue of up to {gib(first)}", False
    rings = [first]
    if (option(launch, "--nnodes", "-n") or "1") == "1":
        rings.append(RESPONSE_RING)
    if option(launch, "--enable-shm-tensor-arena") is not None:
        rings.append(TENSOR_ARENA)
    if option(launch, "--distributed-executor-backend") not in (None, "mp", "ray"):
        rings = [GROUP_RING]
    sizes = " and ".join(gib(ring) for ring in rings)
    shown = engine.version if engine else ""
    return max(rings), f"vLLM {shown} wants rings of {sizes} for {who}", True


def _whole(ranks: int, launch: Launch, environ: Environ) -> int:
    """GiB that hold every ring in full, and at least what NVIDIA recommends for NCCL."""
    first = broadcast_ring(None, of_engine(launch, environ, CHUNK).get(CHUNK))
    arena = TENSOR_ARENA if option(launch, "--enable-shm-tensor-arena") is not None else 0
    total = first + RESPONSE_RING * ranks + GROUP_RING + arena
    return math.ceil(max(total, NVIDIA_RECOMMENDS) / GIB)
