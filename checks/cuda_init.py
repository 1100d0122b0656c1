"""Whether the CUDA driver starts, and with all GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.cuda_errors import CudaError, cuda_error
from infer_doctor.checks.cuda_causes import Cause, cause_of, lost_gpus
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.cuda_init import UVM, CudaInit, CudaSurroundings, DeviceNode
from infer_doctor.facts.gpu import NvmlReading
from infer_doctor.facts.visible import NAME
from infer_doctor.fixes.cuda import give_uvm, open_nodes
from infer_doctor.fixes.driver import look_at_kernel_log
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import ranks
from infer_doctor.model import Evidence, Finding, Fix, Severity
from infer_doctor.registry import check
from infer_doctor.units import plural


@check("cuda-init-failed", severity="error", category="cuda_error", since="0.1")
def init_failed(cuda: CudaInit, around: CudaSurroundings) -> Iterator[Finding]:
    """The CUDA driver does not start: cuInit fails.

    ## Why it matters
    Every CUDA program begins with it, and torch hides its code: "No CUDA GPUs are available",
    "Failed to infer device type", "CUDA unknown error".

    ## How it decides
    cuInit(0) is called in a process of its own, with this environment, at most 3 s, only when
    /dev/nvidiactl, /dev/nvidia-uvm and a GPU's node exist: libcuda could load modules otherwise. No
    context is made. Every code but 0 is an error; its meaning is NVIDIA's (catalog/cuda_errors.py),
    its cause comes from the other facts: the variable (asked again without it), versions, fabric,
    MPS, rights and numbers of the device nodes, limits, the kernel log. Where another check names
    the same fault as an error, this is a warning without a fix. A call that does not return is
    undecided. In a container without /dev/nvidia-uvm it is not called: that gives 999 (measured).

    ## Fix safety
    By cause: variables of the next start are safe, limits and what belongs to the host are manual.
    """
    if cuda.missing:
        yield from _not_called(cuda, around)
        return
    if cuda.code == 0 and cuda.end is None:
        return
    error = cuda_error(cuda.code) if cuda.code is not None else None
    cause = cause_of(cuda, around) or Cause("")
    named = f" (see {cause.named})" if cause.named else ""
    words = f"; {cause.words}" if cause.words else ""
    yield Finding(
        about="cuInit",
        message=f"{_what(cuda, error)}{words}{named}",
        severity="warning" if cause.named else None,
        category=error.category if error else "missing_lib" if cuda.load_error else None,
        evidence=(
            Evidence(source=cuda.library or "libcuda.so.1", excerpt=_excerpt(cuda, error)),
            *cause.evidence,
        ),
        fixes=() if cause.named else cause.fixes or _unexplained(cuda, around),
    )


def _not_called(cuda: CudaInit, around: CudaSurroundings) -> Iterator[Finding]:
    """Only one missing node is a fault by itself: a container cannot make it."""
    container = around.identity.container if around.identity else None
    if container is None or cuda.missing != (f"/dev/{UVM}",):
        raise Unavailable(f"cuInit was not called: {', '.join(cuda.missing)} not there")
    yield Finding(
        about="cuInit",
        message=f"this container ({container}) has GPUs, but no /dev/{UVM}: cuInit gives 999 then",
        confidence="likely",
        category="container",
        evidence=(Evidence(source="/dev", excerpt=f"no {UVM}"),),
        fixes=(give_uvm(container),),
    )


def _what(cuda: CudaInit, error: CudaError | None) -> str:
    if error is not None and cuda.code:
        return f"CUDA does not start: cuInit gives {cuda.code} ({error.name}): {error.words}"
    if cuda.load_error:
        return f"CUDA does not start: libcuda.so.1 cannot be loaded: {cuda.load_error}"
    return f"CUDA does not start: the process dies in {cuda.step} ({cuda.end})"


def _excerpt(cuda: CudaInit, error: CudaError | None) -> str:
    if error is not None and cuda.code:
        return f"cuInit(0) = {cuda.code} {error.name}"
    return cuda.load_error or f"{cuda.step}: {cuda.end}"


def _unexplained(cuda: CudaInit, around: CudaSurroundings) -> tuple[Fix, ...]:
    if cuda.code is None:
        return ()
    container = around.identity.container if around.identity else None
    return (look_at_kernel_log(), give_uvm(container))


@check("cuda-gpus-missing", severity="error", category="device_ids", since="0.1")
def gpus_missing(
    cuda: CudaInit, reading: NvmlReading, around: CudaSurroundings, launch: Launch | None
) -> Iterator[Finding]:
    """CUDA offers fewer GPUs than there are.

    ## Why it matters
    CUDA leaves a GPU out without a word when it cannot open or start it. The engine then says
    "invalid device ordinal" or that the world size is larger than the number of GPUs.

    ## How it decides
    cuDeviceGetCount against the GPUs that NVML counts and those whose node in /dev this user may
    not open, which NVML leaves out too (measured). Only a warning for closed nodes, which may be
    meant, unless the launch has more ranks than CUDA GPUs; and where gpu-fewer-than-bus names the
    lost GPU. It does not apply where the difference is meant: CUDA_VISIBLE_DEVICES is set
    (gpu-visible-devices-wrong judges it), or a GPU is partitioned (MIG), of which a process sees
    one instance.

    ## Fix safety
    Manual.
    """
    if cuda.count is None:
        raise Unavailable("CUDA did not start, so it counted nothing")
    if around.visible is not None:
        raise NotApplicable(f"{NAME} is set")
    if around.mig is not None and any(row.on for row in around.mig.rows):
        raise NotApplicable("a GPU is partitioned (MIG)")
    closed = _closed(reading, around)
    total = max(len(reading.gpus), cuda.count) + len(closed)
    if cuda.count >= total:
        return
    lost = lost_gpus(around)
    short = launch is not None and (ranks(launch) or 1) > cuda.count
    because = ""
    severity: Severity | None = None
    fixes: tuple[Fix, ...] = (look_at_kernel_log(),)
    if closed:
        names = ", ".join(f"/dev/{node.name}" for node in closed)
        because = f"; this user may not open {names}"
        severity = None if short else "warning"
        fixes = (open_nodes(f"/dev/{closed[0].name}"),)
    elif lost:
        because = f"; the GPU at {lost[0]} does not answer (see gpu-fewer-than-bus)"
        severity, fixes = "warning", ()
    yield Finding(
        about="cuDeviceGetCount",
        message=f"CUDA offers {cuda.count} of {plural(total, 'GPU')}{because}",
        severity=severity,
        evidence=(
            Evidence(source=cuda.library or "libcuda.so.1", excerpt=f"count {cuda.count}"),
            Evidence(source="NVML", excerpt=f"count {len(reading.gpus)}"),
            *(Evidence(source=f"/dev/{n.name}", excerpt=f"mode {n.mode:04o}") for n in closed[:2]),
        ),
        fixes=fixes,
    )


def _closed(reading: NvmlReading, around: CudaSurroundings) -> list[DeviceNode]:
    """Nodes of GPUs that this user may not open and that NVML does not list."""
    listed = {raw.get("MinorNumber") for raw in reading.gpus}
    nodes = around.nodes.gpus if around.nodes else ()
    return [node for node in nodes if not node.usable and node.minor not in listed]
