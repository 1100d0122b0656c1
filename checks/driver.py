"""The driver and the CUDA that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.driver import KernelModule
from infer_doctor.facts.pci import PciBus
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check


@check("driver-missing", severity="error", category="driver_cuda", since="0.1")
def driver_missing(bus: PciBus, module: KernelModule) -> Iterator[Finding]:
    """An NVIDIA GPU is on the PCI bus, but no driver is loaded.

    ## Why it matters
    Without the kernel module neither CUDA nor NVML starts: the engine reports that no GPU or no
    device type was found, which hides that there is one.

    ## How it decides
    /sys/bus/pci/devices lists a display or 3D controller of vendor 0x10de, and
    /proc/driver/nvidia/version does not exist. Both are also true in a container: it shares the
    kernel of its host.

    ## Fix safety
    Manual: a driver is installed on the host, never from inside a container.
    """
    if module.version is not None or not bus.gpus:
        return
    others = sorted({gpu.driver for gpu in bus.gpus if gpu.driver})
    taken = f" (bound to {', '.join(others)})" if others else ""
    yield Finding(
        about="driver",
        message=f"{len(bus.gpus)} NVIDIA GPU(s) on the PCI bus{taken}, but no NVIDIA driver is loaded",
        evidence=(
            *(Evidence(source=f"/sys/bus/pci/devices/{gpu.address}") for gpu in bus.gpus[:2]),
            module.evidence,
        ),
    )
