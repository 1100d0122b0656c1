"""Why cuInit gave its code: what the other facts say about it. No checks here.

A cause that another check reports as an error carries that check's id in `named`: one fault, one
error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from infer_doctor.catalog.cuda import MINIMUM_DRIVER, NVML_FAULTS, NVML_MISMATCH
from infer_doctor.catalog.cuda_errors import (
    COMPAT_REFUSED,
    DRIVER_MISMATCH,
    HMM_FAILED,
    INVALID_DEVICE,
    MPS,
    NO_DEVICE,
    OUT_OF_MEMORY,
    STUB,
    SYSTEM_NOT_READY,
    UNKNOWN,
)
from infer_doctor.catalog.health import FABRIC_COMPLETED, PROHIBITED, RECOVERY
from infer_doctor.catalog.xid import xid
from infer_doctor.checks.gpu import visible_problem
from infer_doctor.facts.cuda_init import LIBRARY, UVM, CudaInit, CudaSurroundings, library_version
from infer_doctor.fixes.cuda import (
    disable_hmm,
    give_uvm,
    install_libcuda,
    leave_out_library,
    open_nodes,
    raise_address_space,
    start_mps,
    unset_visible_devices,
)
from infer_doctor.fixes.driver import reload_driver
from infer_doctor.fixes.gpu_health import start_fabric_manager
from infer_doctor.model import Evidence, Fix
from infer_doctor.units import gib
from infer_doctor.versions import release


class Cause(NamedTuple):
    """What explains a code."""

    words: str
    fixes: tuple[Fix, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    named: str | None = None


Explain = Callable[[CudaInit, CudaSurroundings], Cause | None]


def cause_of(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    """The first that explains it; None when nothing here does."""
    if cuda.load_error is not None:
        return _load(cuda, around)
    code = cuda.code if cuda.code is not None else UNKNOWN
    special: dict[int, tuple[Explain, ...]] = {
        OUT_OF_MEMORY: (_address_space,),
        STUB: (_stub,),
        NO_DEVICE: (_variable, _mig, _modes),
        INVALID_DEVICE: (_variable,),
        SYSTEM_NOT_READY: (_fabric,),
        DRIVER_MISMATCH: (_versions,),
        COMPAT_REFUSED: (_compat,),
        **dict.fromkeys(MPS, (_mps,)),
    }
    general: tuple[Explain, ...] = (_nvml, _log, _nodes, _numbers, _recovery, _lost, _xid)
    if code in (SYSTEM_NOT_READY, DRIVER_MISMATCH, COMPAT_REFUSED, STUB, *MPS):
        general = ()
    for explain in (*special.get(code, ()), *general):
        cause = explain(cuda, around)
        if cause is not None:
            return cause
    return None


def _container(around: CudaSurroundings) -> str | None:
    return around.identity.container if around.identity else None


def _load(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    """Of what the loader says only that the file is nowhere has a cause that is known."""
    if f"{LIBRARY}: cannot open shared object file" not in (cuda.load_error or ""):
        return None
    if around.mounted is not None and around.mounted.libraries.get(LIBRARY) is None:
        return Cause("the container was not given it", named="container-driver-capabilities")
    version = around.driver.version if around.driver else None
    return Cause("", fixes=(install_libcuda(version, container=_container(around)),))


def _variable(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    if cuda.unmasked != 0 or around.visible is None:
        return None
    known = around.gpus is not None and visible_problem(around.visible.entries, around.gpus)
    return Cause(
        f"without CUDA_VISIBLE_DEVICES={around.visible.value or '(empty)'} it starts",
        fixes=(unset_visible_devices(),),
        named="gpu-visible-devices-wrong" if known else None,
    )


def _mig(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    rows = around.mig.rows if around.mig else ()
    if not rows or not all(row.on and row.instances == () for row in rows):
        return None
    return Cause("MIG is on and there is no instance", named="gpu-mig-empty")


def _modes(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    modes = around.modes.modes.values() if around.modes else ()
    if not modes or not all(mode == PROHIBITED for mode in modes):
        return None
    return Cause("the compute mode lets no process in", named="gpu-compute-mode")


def _address_space(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    if around.space is None or around.space.limit is None:
        return None
    limit = around.space.limit
    return Cause(
        f"the address space is limited to {gib(limit)} (ulimit -v)",
        fixes=(raise_address_space(),),
        evidence=(Evidence(source="getrlimit", excerpt=f"RLIMIT_AS {limit} bytes"),),
    )


def _stub(cuda: CudaInit, around: CudaSurroundings) -> Cause:
    path = cuda.library or "a stub"
    return Cause(
        f"{path} is for linking only",
        fixes=(leave_out_library(path, "stubs are for linking; the driver brings the real one"),),
    )


def _versions(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    module = around.module.version if around.module else None
    loaded = library_version(cuda.library)
    if cuda.library and "/compat/" in cuda.library:
        return Cause(
            f"the compat library {loaded or cuda.library} is in use under kernel module "
            f"{module or 'of another version'}, which does not need it",
            fixes=(
                leave_out_library(
                    cuda.library, "a compat library runs on older drivers only, not on newer ones"
                ),
            ),
        )
    library, failure = around.library, around.failure
    differs = library is not None and not library.compat and library.version not in (None, module)
    if module and (differs or (failure is not None and failure.code == NVML_MISMATCH)):
        return Cause("the kernel module is of another version", named="driver-library-mismatch")
    if module and loaded and loaded != module:
        return Cause(
            f"libcuda.so.1 is {loaded}, the kernel module {module}",
            fixes=(reload_driver(container=_container(around)),),
        )
    return None


def _compat(cuda: CudaInit, around: CudaSurroundings) -> Cause:
    driver, torch = around.driver, around.torch
    path = cuda.library or "the compat library"
    if driver and torch and torch.cuda:
        least = MINIMUM_DRIVER.get(int(torch.cuda.partition(".")[0]))
        if least and release(driver.version) < release(least):
            return Cause(f"{path} is refused by this GPU", named="driver-too-old")
    runs = f"; driver {driver.version} runs this torch without it" if driver and torch else ""
    return Cause(
        f"{path} is for data-centre and some RTX GPUs{runs}",
        fixes=(leave_out_library(path, "within a CUDA major no forward compatibility is needed"),),
    )


def _fabric(cuda: CudaInit, around: CudaSurroundings) -> Cause:
    rows = around.fabric.rows if around.fabric else ()
    if any(row.state != FABRIC_COMPLETED or row.status != 0 for row in rows):
        return Cause("the NVLink fabric is not ready", named="gpu-fabric-incomplete")
    known = "the GPUs say that it is completed" if rows else "its state is not told by these GPUs"
    return Cause(
        f"CUDA waits for the NVSwitch fabric; {known}",
        fixes=(
            start_fabric_manager(
                around.driver.version if around.driver else None,
                container=_container(around),
                nvlink_five=False,
            ),
        ),
    )


def _mps(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    mps = around.mps
    if mps is None:
        return None
    daemon = "its control pipe is there" if mps.daemon else "no control pipe is there"
    by = "by CUDA_MPS_PIPE_DIRECTORY" if mps.set else "the default"
    return Cause(
        f"MPS is looked for in {mps.directory} ({by}); {daemon}",
        fixes=(start_mps(mps.directory, set=mps.set),),
        evidence=(Evidence(source=mps.directory, excerpt=daemon),),
    )


def _nvml(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    failure, module = around.failure, around.module
    if failure is None or failure.code not in NVML_FAULTS or module is None or not module.version:
        return None
    return Cause("NVML does not start either", named="driver-not-answering")


def _log(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    lines = around.log.lines if around.log else ()
    for line in reversed(lines):
        if HMM_FAILED in line.text:
            return Cause(
                "the kernel leaves nvidia_uvm no room for heterogeneous memory (HMM)",
                fixes=(disable_hmm(),),
                evidence=(
                    Evidence(source=around.log.source if around.log else "", excerpt=line.text),
                ),
            )
    return None


def _nodes(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    """CUDA opens nvidiactl, nvidia-uvm and at least one GPU."""
    closed = around.nodes.closed if around.nodes else ()
    if not closed:
        return None
    names = ", ".join(f"/dev/{node.name}" for node in closed)
    return Cause(
        f"this user may not open {names}",
        fixes=(open_nodes(names),),
        evidence=tuple(
            Evidence(source=f"/dev/{node.name}", excerpt=f"mode {node.mode:04o}")
            for node in closed[:3]
        ),
    )


def _numbers(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    """The node of nvidia-uvm was made for another number than the kernel gave it since."""
    if around.nodes is None:
        return None
    number = around.nodes.majors.get(UVM)
    node = next((node for node in around.nodes.nodes if node.name == UVM), None)
    if node is None or number == node.major:
        return None
    if number is None:
        words = "nvidia_uvm is not loaded"
    else:
        words = f"/dev/{UVM} has the device number {node.major}, nvidia_uvm is {number}"
    return Cause(
        words,
        fixes=(give_uvm(_container(around)),),
        evidence=(
            Evidence(source=f"/dev/{UVM}", excerpt=f"major {node.major}"),
            Evidence(source="/proc/devices", excerpt=f"{number or 'no'} {UVM}"),
        ),
    )


def _recovery(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    actions = around.recovery.actions.items() if around.recovery else ()
    due = [index for index, action in actions if action in RECOVERY and RECOVERY[action].now]
    if not due:
        return None
    counted = {row.index for row in around.ecc.rows if row.uncorrected} if around.ecc else set()
    named = "gpu-ecc-uncorrected" if counted.intersection(due) else "gpu-reset-needed"
    return Cause(f"GPU {due[0]} needs a reset", named=named)


def _lost(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    lost = lost_gpus(around)
    if not lost:
        return None
    return Cause(f"the GPU at {lost[0]} does not answer", named="gpu-fewer-than-bus")


def _xid(cuda: CudaInit, around: CudaSurroundings) -> Cause | None:
    """Only where the driver does not tell by itself what is to be done: else that decides."""
    if around.xids is None or (around.recovery is not None and around.recovery.actions):
        return None
    for event in reversed(around.xids.events):
        known = xid(event.code, event.text)
        if known.severity == "error" and not event.before_load:
            return Cause(f"Xid {event.code} was logged: {known.words}", named="gpu-xid-logged")
    return None


def lost_gpus(around: CudaSurroundings) -> list[str]:
    """Addresses on the bus that the driver does not offer: what gpu-fewer-than-bus reports."""
    if around.gpus is None or around.bus is None:
        return []
    if around.identity is None or around.identity.container is not None:
        return []
    listed = {gpu.bus_id for gpu in around.gpus.gpus}
    return [
        device.address
        for device in around.bus.gpus
        if device.driver == "nvidia" and device.address not in listed and None not in listed
    ]
