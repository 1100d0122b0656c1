"""The NVIDIA driver: the module in the kernel and the libraries of user space."""

from __future__ import annotations

import re

from infer_doctor.facts.gpu import NvmlReading
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.pci import PciBus, proof_of_absence
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.model import Evidence
from infer_doctor.registry import probe

VERSION_FILE = "/proc/driver/nvidia/version"

LIBRARY_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
"""Where drivers and container run-times put libcuda.so.1, after LD_LIBRARY_PATH: the container
toolkit's default paths, WSL2's, and those of Debian, Ubuntu, RHEL and SUSE packages."""


@frozen
class KernelModule:
    """The loaded kernel module. `version` None is the proof that none is loaded."""

    version: str | None
    open: bool
    evidence: Evidence


@frozen
class DriverLibrary:
    """The libcuda.so.1 that a process would find first, and its version by its file name."""

    path: str
    version: str | None
    compat: bool
    """Whether it is a forward-compatibility library (folder `compat`), newer than the driver by design."""


@frozen
class Driver:
    """The driver that answers: its version and the newest CUDA it speaks (major, minor)."""

    version: str
    cuda: tuple[int, int] | None
    evidence: Evidence


@probe
def kernel_module(host: Host, bus: PciBus | None, identity: Identity) -> KernelModule:
    """Parse the first line of /proc/driver/nvidia/version."""
    if proof := proof_of_absence(bus, identity):
        raise Absent(proof)
    try:
        return parse_version_file(host.read(VERSION_FILE))
    except Unavailable as error:
        if error.code != "ENOENT":
            raise
    if "dxg" in identity.devices:
        raise Unavailable("WSL2: the driver runs in Windows")
    evidence = Evidence(source=VERSION_FILE, excerpt="no such file")
    return KernelModule(version=None, open=False, evidence=evidence)


def parse_version_file(text: str) -> KernelModule:
    """Raises Unavailable when the line holds no version."""
    first = text.strip().partition("\n")[0]
    found = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", f"{first} ")
    if found is None:
        raise Unavailable(f"{VERSION_FILE} names no version: {first[:80]!r}")
    evidence = Evidence(source=VERSION_FILE, line=1, excerpt=first)
    return KernelModule(version=found[1], open="Open Kernel Module" in first, evidence=evidence)


@probe
def driver_library(
    host: Host, environ: Environ, bus: PciBus | None, identity: Identity
) -> DriverLibrary:
    """Look where the loader would look; raises Unavailable when libcuda.so.1 is in none of them."""
    if proof := proof_of_absence(bus, identity):
        raise Absent(proof)
    folders = [*environ.variables.get("LD_LIBRARY_PATH", "").split(":"), *LIBRARY_FOLDERS]
    for folder in dict.fromkeys(folder.rstrip("/") for folder in folders if folder):
        target = host.real(f"{folder}/libcuda.so.1")
        if target is None:
            continue
        found = re.search(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", target)
        return DriverLibrary(
            path=target, version=found[1] if found else None, compat="/compat/" in target
        )
    raise Unavailable("libcuda.so.1 is in none of the usual folders")


@probe
def driver(
    nvml: NvmlReading | None,
    module: KernelModule | None,
    bus: PciBus | None,
    identity: Identity | None,
) -> Driver:
    """NVML's word; without NVML the kernel module's, which does not say which CUDA it speaks."""
    if nvml is not None and nvml.driver and re.match(r"\d{3,}\.\d", nvml.driver):
        number = nvml.cuda_driver
        return Driver(
            version=nvml.driver,
            cuda=(number // 1000, number % 1000 // 10) if number else None,
            evidence=Evidence(
                source="NVML", excerpt=f"driver {nvml.driver}, CUDA {number or 'unknown'}"
            ),
        )
    if module is not None and module.version is not None:
        return Driver(version=module.version, cuda=None, evidence=module.evidence)
    if module is not None:
        raise Unavailable("no NVIDIA driver is loaded")
    if proof := proof_of_absence(bus, identity):
        raise Absent(proof)
    raise Unavailable("neither NVML nor /proc/driver/nvidia/version could be read")
