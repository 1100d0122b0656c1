"""The driver and the CUDA that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.cuda import (
    MINIMUM_DRIVER,
    NVML_FAULTS,
    NVML_MISMATCH,
    NVML_NO_PERMISSION,
    TOOLKIT_DRIVER,
)
from infer_doctor.catalog.cuda_errors import COMPAT_REFUSED, DRIVER_MISMATCH
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.cuda_init import CudaInit, DeviceNodes
from infer_doctor.facts.driver import Driver, DriverLibrary, KernelModule
from infer_doctor.facts.gpu import NvmlFailure
from infer_doctor.facts.machine import Identity, OperatingSystem
from infer_doctor.facts.pci import PciBus
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.cuda import open_nodes
from infer_doctor.fixes.driver import (
    install_driver,
    look_at_kernel_log,
    older_torch,
    reload_driver,
)
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural
from infer_doctor.versions import release


@check("driver-missing", severity="error", category="driver_cuda", since="0.1")
def driver_missing(
    bus: PciBus,
    module: KernelModule,
    identity: Identity | None,
    system: OperatingSystem | None,
    torch: TorchBuild | None,
) -> Iterator[Finding]:
    """An NVIDIA GPU is on the PCI bus, but no driver is loaded.

    ## Why it matters
    Without the kernel module neither CUDA nor NVML starts: the engine reports that no GPU or no
    device type was found, which hides that there is one.

    ## How it decides
    /sys/bus/pci/devices lists a display or 3D controller of vendor 0x10de, and
    /proc/driver/nvidia/version does not exist. Both are also true in a container: it shares the
    kernel of its host. GPUs that are bound to vfio-pci were given to a virtual machine on purpose.

    ## Fix safety
    Manual: a driver is installed on the host, never from inside a container.
    """
    if module.version is not None:
        return
    left = [gpu for gpu in bus.gpus if gpu.driver != "vfio-pci"]
    if not left:
        return
    others = sorted({gpu.driver for gpu in left if gpu.driver})
    taken = f" (bound to {', '.join(others)})" if others else ""
    major = _cuda(torch)[0] if torch and torch.cuda else max(MINIMUM_DRIVER)
    least = MINIMUM_DRIVER.get(major, MINIMUM_DRIVER[max(MINIMUM_DRIVER)])
    yield Finding(
        about="driver",
        message=f"{plural(len(left), 'NVIDIA GPU')} on the PCI bus{taken}, "
        "but no NVIDIA driver is loaded",
        evidence=(
            *(
                Evidence(
                    source=f"/sys/bus/pci/devices/{gpu.address}",
                    excerpt=f"vendor 0x10de, device {gpu.device_id}, class {gpu.class_code}, "
                    f"driver {gpu.driver or 'none'}",
                )
                for gpu in left[:2]
            ),
            module.evidence,
        ),
        fixes=(
            install_driver(
                least, container=identity.container if identity else None, system=system
            ),
        ),
    )


@check("driver-library-mismatch", severity="error", category="driver_cuda", since="0.1")
def library_mismatch(
    module: KernelModule,
    library: DriverLibrary | None,
    failure: NvmlFailure | None,
    identity: Identity | None,
    cuda: CudaInit | None,
) -> Iterator[Finding]:
    """The kernel module and the driver's libraries are of different versions.

    ## Why it matters
    NVML and CUDA refuse to start ("Driver/library version mismatch", cuInit 803) although
    everything is installed. It comes from an update without a reboot, or from driver libraries
    inside a container image.

    ## How it decides
    The version in /proc/driver/nvidia/version against the one in the file name that libcuda.so.1
    leads to, looked up where the loader looks; or NVML's own answer, code 18. Libraries in a
    folder `compat` are newer than the driver by design and are left out. Where cuInit succeeds,
    what it loaded fits; where it gives 803, that is certain.

    ## Fix safety
    Manual: reloading the module ends all work on the GPUs.
    """
    if module.version is None:
        raise NotApplicable("no kernel module is loaded")
    by_nvml = failure is not None and failure.code == NVML_MISMATCH
    loaded = library.version if library and not library.compat else None
    differs = loaded is not None and loaded != module.version
    if cuda is not None and cuda.code == 0:
        differs = False
    if not differs and not by_nvml:
        return
    evidence = [module.evidence]
    if library and differs:
        evidence.append(Evidence(source=library.path, excerpt=f"version {library.version}"))
    if failure and by_nvml:
        evidence.append(Evidence(source="NVML", excerpt=failure.message))
    refused = differs and cuda is not None and cuda.code == DRIVER_MISMATCH
    if refused:
        evidence.append(Evidence(source="cuInit", excerpt=f"{DRIVER_MISMATCH}, driver mismatch"))
    found = f"libcuda.so.1 is {loaded}" if differs else "NVML's library is of another version"
    yield Finding(
        about="driver",
        message=f"the loaded kernel module is {module.version}, {found}",
        confidence="certain" if by_nvml or refused else "likely",
        evidence=tuple(evidence),
        fixes=(reload_driver(container=identity.container if identity else None),),
    )


@check("driver-not-answering", severity="error", category="driver_cuda", since="0.1")
def not_answering(
    module: KernelModule, failure: NvmlFailure | None, nodes: DeviceNodes | None
) -> Iterator[Finding]:
    """The kernel module is loaded, but NVML does not start.

    ## Why it matters
    What stops NVML mostly stops CUDA too, with a vaguer message.

    ## How it decides
    nvmlInit returned a code that speaks of the driver or the GPU (catalogue of nvmlReturn_t codes;
    https://docs.nvidia.com/deploy/nvml-api/). Not counted: the library is not there (a container
    without the `utility` capability), and 18, which driver-library-mismatch explains. Code 4 is a
    matter of rights where this user may not open /dev/nvidiactl or the GPUs (measured).

    ## Fix safety
    Manual: a reload of the driver ends all work on the GPUs.
    """
    if module.version is None:
        raise NotApplicable("no kernel module is loaded")
    if failure is None or failure.code not in NVML_FAULTS:
        return
    closed = nodes.closed if nodes is not None and failure.code == NVML_NO_PERMISSION else ()
    names = ", ".join(f"/dev/{node.name}" for node in closed)
    yield Finding(
        about="driver",
        message=f"driver {module.version} is loaded, but NVML does not start: "
        f"{NVML_FAULTS[failure.code]} (code {failure.code})"
        f"{f'; this user may not open {names}' if names else ''}",
        evidence=(
            module.evidence,
            Evidence(source="NVML", excerpt=failure.message),
            *(Evidence(source=f"/dev/{n.name}", excerpt=f"mode {n.mode:04o}") for n in closed[:2]),
        ),
        fixes=(open_nodes(names) if names else look_at_kernel_log(),),
    )


@check("driver-too-old", severity="error", category="driver_cuda", since="0.1")
def too_old(
    driver: Driver,
    torch: TorchBuild,
    library: DriverLibrary | None,
    identity: Identity | None,
    system: OperatingSystem | None,
    cuda: CudaInit | None,
) -> Iterator[Finding]:
    """The driver is too old for the CUDA that torch was built for.

    ## Why it matters
    torch reports "The NVIDIA driver on your system is too old (found version ...)" or CUDA error
    804 or 35, and no engine starts.

    ## How it decides
    Within one CUDA major every toolkit runs on the driver of the first one (minor-version
    compatibility): CUDA 11 from 450.80.02, 12 from 525.60.13, 13 from 580.65.06. So a driver 535
    with a torch for CUDA 12.8 is no error; driver-older-than-toolkit says what it costs. Newer
    drivers run all older CUDA. With a forward-compatibility library in use (folder `compat`) cuInit
    decides: where it succeeds and speaks that CUDA, there is no finding; where it gives 804 the GPU
    is no data-centre one. Only possible where it was not asked.
    Source: CUDA release notes and the CUDA compatibility guide (catalog/cuda.py).

    ## Fix safety
    Manual: the driver belongs to the host.
    """
    if torch.cuda is None:
        raise NotApplicable(f"torch {torch.version} is not built for CUDA")
    major, _ = _cuda(torch)
    least = MINIMUM_DRIVER.get(major)
    if least is None:
        if driver.cuda is None or major <= driver.cuda[0]:
            return
        least = f"for CUDA {major}"
    elif release(driver.version) >= release(least):
        return
    speaks = f" (CUDA {driver.cuda[0]}.{driver.cuda[1]})" if driver.cuda else ""
    compat = library is not None and library.compat
    if compat and cuda is not None and cuda.code == 0 and (cuda.version or 0) // 1000 >= major:
        return
    sure = not compat or (cuda is not None and cuda.code == COMPAT_REFUSED)
    container = identity.container if identity else None
    yield Finding(
        about="driver",
        message=f"driver {driver.version}{speaks} is too old for torch {torch.version}, built for "
        f"CUDA {torch.cuda}: any CUDA {major} needs driver {least} or newer",
        confidence="certain" if sure else "possible",
        evidence=(
            driver.evidence,
            Evidence(source=torch.source, excerpt=f"cuda = {torch.cuda!r}"),
            *((Evidence(source=library.path, excerpt="in use"),) if library and compat else ()),
        ),
        fixes=(
            install_driver(least, container=container, system=system),
            older_torch(driver.cuda[0] if driver.cuda else major - 1),
        ),
    )


@check("driver-older-than-toolkit", severity="info", category="driver_cuda", since="0.1")
def older_than_toolkit(driver: Driver, torch: TorchBuild) -> Iterator[Finding]:
    """The driver is older than torch's CUDA, within the same major: allowed, with limits.

    ## Why it matters
    Engines start, which many tools deny. Two things do not work: kernels that come as PTX only
    (error 222, "unsupported toolchain"; also what NVRTC or Triton compile for a GPU newer than the
    driver knows), and features that the newer driver brought.

    ## How it decides
    The driver is at least that of the first toolkit of this major, but older than the one that
    came with the toolkit torch was built with (CUDA release notes, catalog/cuda.py).

    ## Fix safety
    Manual, and not needed as long as nothing reports error 222.
    """
    if torch.cuda is None:
        raise NotApplicable(f"torch {torch.version} is not built for CUDA")
    major, minor = _cuda(torch)
    least, full = MINIMUM_DRIVER.get(major), TOOLKIT_DRIVER.get((major, minor))
    if least is None or full is None:
        return
    if not release(least) <= release(driver.version) < release(full):
        return
    yield Finding(
        about="driver",
        message=f"driver {driver.version} is older than CUDA {torch.cuda} (its own driver is "
        f"{full}), yet runs it: within CUDA {major} driver {least} is enough. "
        "Kernels that come as PTX only fail with error 222",
        evidence=(driver.evidence, Evidence(source=torch.source, excerpt=f"cuda = {torch.cuda!r}")),
    )


def _cuda(torch: TorchBuild) -> tuple[int, int]:
    """ "12.8" -> (12, 8)."""
    major, _, minor = (torch.cuda or "0.0").partition(".")
    return int(major), int(minor.partition(".")[0] or 0)
