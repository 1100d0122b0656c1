"""Whether CUDA starts: cuInit in a process of its own, and what explains its code."""

from __future__ import annotations

import re
from dataclasses import field

from infer_doctor.catalog.cuda_errors import INVALID_DEVICE, NO_DEVICE
from infer_doctor.facts.container import MountedDriver
from infer_doctor.facts.driver import Driver, DriverLibrary, KernelModule
from infer_doctor.facts.gpu import GpuEcc, Gpus, NvmlFailure
from infer_doctor.facts.gpu_health import GpuComputeModes, GpuFabric, GpuMig, GpuRecovery
from infer_doctor.facts.kernel_log import KernelLog, XidEvents
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.pci import PciBus, proof_of_absence
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.facts.visible import NAME, VisibleDevices
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

LIBRARY = "libcuda.so.1"
UVM = "nvidia-uvm"

MPS_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
MPS_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108
"""https://docs.nvidia.com/deploy/mps/: where clients look for the daemon's pipe, `control`."""


@frozen
class CudaInit:
    """What cuInit(0) said to a process with the environment of the doctor.

    `missing`: device nodes without which it was not called. Otherwise exactly one of `code`,
    `load_error` and `end` (how the process died, and in which `step`) tells how it went.
    """

    missing: tuple[str, ...] = ()
    code: int | None = None
    load_error: str | None = None
    end: str | None = None
    step: str = ""
    library: str | None = None
    """The file that the loader chose."""
    version: int | None = None
    """cuDriverGetVersion: 13000 is CUDA 13.0."""
    count: int | None = None
    """cuDeviceGetCount."""
    unmasked: int | None = None
    """The code without CUDA_VISIBLE_DEVICES, asked when that may be the cause."""


@frozen
class DeviceNode:
    """A character device in /dev: its number, and whether this user may open it."""

    name: str
    major: int
    minor: int
    mode: int
    usable: bool


@frozen
class DeviceNodes:
    """The nodes of NVIDIA's driver, and the number of each driver in the kernel by name."""

    nodes: tuple[DeviceNode, ...]
    majors: dict[str, int]

    @property
    def gpus(self) -> tuple[DeviceNode, ...]:
        """nvidia0, nvidia1 and so on."""
        return tuple(node for node in self.nodes if node.name[6:].isdigit())

    @property
    def closed(self) -> tuple[DeviceNode, ...]:
        """Those without which CUDA does not start, when this user may not open them."""
        control = [n for n in self.nodes if n.name in ("nvidiactl", UVM) and not n.usable]
        if not control and not any(node.usable for node in self.gpus):
            return self.gpus
        return tuple(control)


@frozen
class Mps:
    """The Multi-Process Service as a CUDA process of this environment would look for it."""

    directory: str
    set: bool
    """By CUDA_MPS_PIPE_DIRECTORY, else the default."""
    daemon: bool
    """The pipe of a control daemon is there."""


@frozen
class AddressSpace:
    """RLIMIT_AS, bytes; None is unlimited. CUDA reserves far more than it uses."""

    limit: int | None


HIDDEN = {"report": False}
"""The report lists these facts by themselves."""


@frozen
class CudaSurroundings:
    """The other facts that explain a code of cuInit, as far as they are known."""

    module: KernelModule | None = field(default=None, metadata=HIDDEN)
    library: DriverLibrary | None = field(default=None, metadata=HIDDEN)
    driver: Driver | None = field(default=None, metadata=HIDDEN)
    failure: NvmlFailure | None = field(default=None, metadata=HIDDEN)
    gpus: Gpus | None = field(default=None, metadata=HIDDEN)
    bus: PciBus | None = field(default=None, metadata=HIDDEN)
    ecc: GpuEcc | None = field(default=None, metadata=HIDDEN)
    recovery: GpuRecovery | None = field(default=None, metadata=HIDDEN)
    fabric: GpuFabric | None = field(default=None, metadata=HIDDEN)
    modes: GpuComputeModes | None = field(default=None, metadata=HIDDEN)
    mig: GpuMig | None = field(default=None, metadata=HIDDEN)
    nodes: DeviceNodes | None = field(default=None, metadata=HIDDEN)
    mps: Mps | None = field(default=None, metadata=HIDDEN)
    space: AddressSpace | None = field(default=None, metadata=HIDDEN)
    log: KernelLog | None = field(default=None, metadata=HIDDEN)
    xids: XidEvents | None = field(default=None, metadata=HIDDEN)
    visible: VisibleDevices | None = field(default=None, metadata=HIDDEN)
    torch: TorchBuild | None = field(default=None, metadata=HIDDEN)
    identity: Identity | None = field(default=None, metadata=HIDDEN)
    mounted: MountedDriver | None = field(default=None, metadata=HIDDEN)


@probe(slow=True)
def cuda_init(host: Host, bus: PciBus | None, identity: Identity | None) -> CudaInit:
    """Absent without a GPU; a call that does not return is not known, and says so.

    It waits for NVML: at the same time both take three times as long (measured), and a cuInit that
    hangs in the driver may hold NVML up, whose answers would tell why.
    """
    if proof := proof_of_absence(bus, identity):
        raise Absent(proof)
    try:
        host.ask("nvml")
    except Unavailable as error:
        if error.code == "timeout":
            raise Unavailable("cuInit was not called: NVML does not answer", error.code) from None
    first = _ask(host, [])
    if first.code in (NO_DEVICE, INVALID_DEVICE) and NAME in host.variables():
        from dataclasses import replace

        try:
            return replace(first, unmasked=_ask(host, [NAME]).code)
        except Unavailable:
            return first
    return first


def _ask(host: Host, without: list[str]) -> CudaInit:
    try:
        found = host.ask("cuda", without=without)
    except Unavailable as error:
        raise Unavailable(f"cuInit: {error.reason}", error.code) from None
    return CudaInit(
        missing=tuple(found["missing"]),
        code=found.get("code"),
        load_error=found.get("load_error"),
        end=found.get("end"),
        step=found.get("step", ""),
        library=found.get("library"),
        version=found.get("version"),
        count=found.get("count"),
    )


@probe
def device_nodes(host: Host) -> DeviceNodes:
    """/dev and /proc/devices."""
    found = host.ask("device_nodes")
    nodes = tuple(
        DeviceNode(
            name=row["name"],
            major=row["major"],
            minor=row["minor"],
            mode=row["mode"],
            usable=row["usable"] is True,
        )
        for row in found["nodes"]
    )
    return DeviceNodes(nodes=nodes, majors=found["majors"])


@probe
def mps(host: Host, environ: Environ) -> Mps:
    """Whether the daemon's pipe is where this environment looks for it."""
    value = environ.variables.get(MPS_VARIABLE)
    directory = value or MPS_DEFAULT
    return Mps(
        directory=directory, set=bool(value), daemon=host.exists(f"{directory.rstrip('/')}/control")
    )


@probe
def address_space(host: Host) -> AddressSpace:
    """getrlimit(RLIMIT_AS), soft."""
    soft = host.ask("limits")["as"][0]
    return AddressSpace(limit=None if soft == -1 else int(soft))


@probe
def cuda_surroundings(
    module: KernelModule | None,
    library: DriverLibrary | None,
    driver: Driver | None,
    failure: NvmlFailure | None,
    gpus: Gpus | None,
    bus: PciBus | None,
    ecc: GpuEcc | None,
    recovery: GpuRecovery | None,
    fabric: GpuFabric | None,
    modes: GpuComputeModes | None,
    mig: GpuMig | None,
    nodes: DeviceNodes | None,
    mps: Mps | None,
    space: AddressSpace | None,
    log: KernelLog | None,
    xids: XidEvents | None,
    visible: VisibleDevices | None,
    torch: TorchBuild | None,
    identity: Identity | None,
    mounted: MountedDriver | None,
) -> CudaSurroundings:
    """All of them together: each alone decides nothing about cuInit, so its gaps are none here."""
    return CudaSurroundings(**locals())


def library_version(path: str | None) -> str | None:
    """580.95.05 for .../libcuda.so.580.95.05."""
    found = re.search(r"\.so\.(\d{3,}\.\d+(?:\.\d+)?)$", path or "")
    return found[1] if found else None
