"""Whether CUDA starts: every code with the facts that explain it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.catalog.cuda_errors import CUDA_ERRORS, HMM_FAILED
from infer_doctor.checks.cuda_init import gpus_missing, init_failed
from infer_doctor.facts.container import MountedDriver
from infer_doctor.facts.cuda_init import (
    AddressSpace,
    CudaInit,
    CudaSurroundings,
    DeviceNode,
    DeviceNodes,
    Mps,
    address_space,
    cuda_init,
    device_nodes,
    mps,
)
from infer_doctor.facts.driver import Driver, DriverLibrary, KernelModule
from infer_doctor.facts.gpu import EccRow, Gpu, GpuEcc, Gpus, NvmlFailure, NvmlReading
from infer_doctor.facts.gpu_health import (
    FabricRow,
    GpuComputeModes,
    GpuFabric,
    GpuMig,
    GpuRecovery,
    MigRow,
)
from infer_doctor.facts.kernel_log import KernelLog, LogLine, XidEvents, parse_xids
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host, Unavailable
from infer_doctor.launch.command import read as launch_of
from infer_doctor.model import Evidence, Finding
from infer_doctor.testing import contract, examine

CAPTURE = Path(__file__).parent.parent / "captures" / "h200-x2" / "cuinit.txt"
GIB = 1 << 30
REAL = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04"
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"

Around = CudaSurroundings


def init(code: int, **more: Any) -> CudaInit:
    found = CudaInit(code=code, library=REAL, version=13000, step="the end")
    return replace(found, **more)


def fine(count: int = 2) -> CudaInit:
    return init(0, count=count)


def one(cuda: CudaInit, around: Around | None = None) -> Finding:
    (finding,) = examine(init_failed, cuda, around or Around()).findings
    return finding


def fixes(finding: Finding) -> list[str]:
    return [fix.id for fix in finding.fixes]


def module(version: str | None = "580.159.04") -> KernelModule:
    return KernelModule(version=version, open=True, evidence=Evidence(source="/proc"))


def library(path: str) -> DriverLibrary:
    version = path.partition(".so.")[2]
    return DriverLibrary(path=path, version=version, compat="/compat/" in path)


def driver(version: str) -> Driver:
    return Driver(version=version, cuda=(12, 2), evidence=Evidence(source="NVML"))


def torch(cuda: str) -> TorchBuild:
    return TorchBuild(version=f"2.11.0+cu{cuda.replace('.', '')}", cuda=cuda, source="version.py")


def gpus(count: int) -> Gpus:
    found = (
        Gpu(index=i, name="NVIDIA H200", uuid=f"GPU-{i}", bus_id=f"0000:00:0{6 + i}.0")
        for i in range(count)
    )
    return Gpus(gpus=tuple(found), source="NVML")


def bus(count: int) -> PciBus:
    devices = tuple(
        PciDevice(
            address=f"0000:00:0{6 + i}.0",
            driver="nvidia",
            class_code="0x030200",
            device_id="0x2335",
            link=(None, None, None, None),
        )
        for i in range(count)
    )
    return PciBus(devices=9, nvidia=devices)


def machine(container: str | None = None, devices: tuple[str, ...] = ("nvidia0",)) -> Identity:
    return Identity(
        hostname="node",
        kernel="6.8",
        machine="x86_64",
        uid=0,
        container=container,
        initial_pid_namespace=True,
        devices=devices,
    )


def nodes(*closed: str, uvm: int = 510, now: int | None = 510) -> DeviceNodes:
    majors = {"nvidia": 195} | ({"nvidia-uvm": now} if now is not None else {})
    found = tuple(
        DeviceNode(
            name=name,
            major=uvm if name == "nvidia-uvm" else 195,
            minor=int(name[6:]) if name[6:].isdigit() else 255,
            mode=0o600 if name in closed else 0o666,
            usable=name not in closed,
        )
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
    )
    return DeviceNodes(nodes=found, majors=majors)


def visible(value: str) -> VisibleDevices:
    return VisibleDevices(value=value, entries=tuple(e for e in value.split(",") if e))


def test_init() -> None:
    contract(init_failed, fires=[init(999), Around()], passes=[fine(), Around()])


@pytest.mark.parametrize("code", sorted(CUDA_ERRORS))
def test_every_code_has_its_name_and_words(code: int) -> None:
    finding = one(init(code))
    error = CUDA_ERRORS[code]
    assert finding.severity == "error"
    assert finding.category == error.category
    assert finding.message.startswith(
        f"CUDA does not start: cuInit gives {code} ({error.name}): {error.words}"
    )
    assert finding.evidence[0] == Evidence(source=REAL, excerpt=f"cuInit(0) = {code} {error.name}")


def test_a_code_that_is_not_known_keeps_its_number() -> None:
    finding = one(init(912))
    assert "cuInit gives 912 (CUresult 912): not in the catalogue" in finding.message
    assert fixes(finding) == ["read-kernel-log", "reload-nvidia-uvm"]


class TestVariable:
    """100 and 101 come from CUDA_VISIBLE_DEVICES when they go without it."""

    def test_named_by_the_check_of_the_variable(self) -> None:
        finding = one(init(100, unmasked=0), Around(visible=visible("7"), gpus=gpus(2)))
        assert finding.severity == "warning"
        assert finding.message.endswith(
            "without CUDA_VISIBLE_DEVICES=7 it starts (see gpu-visible-devices-wrong)"
        )
        assert finding.fixes == ()

    def test_the_error_here_when_the_gpus_are_not_known(self) -> None:
        finding = one(init(101, unmasked=0), Around(visible=visible("0,0")))
        assert finding.severity == "error"
        assert fixes(finding) == ["unset-visible-devices"]

    def test_not_the_variable_when_it_fails_without_it(self) -> None:
        finding = one(init(100, unmasked=100), Around(visible=visible("0"), gpus=gpus(2)))
        assert finding.severity == "error"
        assert "CUDA_VISIBLE_DEVICES" not in finding.message


class TestVersions:
    """803: libcuda and the kernel module."""

    def test_named_by_the_check_of_the_driver(self) -> None:
        old = library("/usr/lib64/libcuda.so.550.54.14")
        finding = one(init(803, library=old.path), Around(module=module(), library=old))
        assert finding.severity == "warning"
        assert finding.message.endswith("of another version (see driver-library-mismatch)")

    def test_named_when_only_nvml_says_so(self) -> None:
        failure = NvmlFailure(code=18, message="Driver/library version mismatch")
        around = Around(module=module(), library=library(REAL), failure=failure)
        assert one(init(803), around).severity == "warning"

    def test_a_compat_library_under_a_newer_driver(self) -> None:
        """Seen on a real machine: the image's compat folder in LD_LIBRARY_PATH."""
        around = Around(module=module(), library=library(COMPAT))
        finding = one(init(803, library=COMPAT), around)
        assert finding.severity == "error"
        assert "the compat library 580.95.05 is in use under kernel module 580.159.04" in (
            finding.message
        )
        assert finding.fixes[0].title == (
            "Take /usr/local/cuda-13.0/compat out of LD_LIBRARY_PATH and of the loader's "
            "configuration"
        )

    def test_what_was_loaded_counts_more_than_what_was_found(self) -> None:
        around = Around(module=module(), library=library(REAL))
        finding = one(init(803, library="/opt/old/libcuda.so.550.54.14"), around)
        assert finding.severity == "error"
        assert "libcuda.so.1 is 550.54.14, the kernel module 580.159.04" in finding.message
        assert fixes(finding) == ["reload-driver"]


class TestCompat:
    """804: https://github.com/vllm-project/vllm issues 4940 and 5283, driver 535 and an RTX 4090."""

    OLD = "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15"

    def test_within_a_major_it_is_not_needed(self) -> None:
        around = Around(driver=driver("535.171.04"), torch=torch("12.4"))
        finding = one(init(804, library=self.OLD), around)
        assert finding.severity == "error"
        assert "driver 535.171.04 runs this torch without it" in finding.message
        assert fixes(finding) == ["leave-out-libcuda"]

    def test_named_where_the_driver_is_too_old(self) -> None:
        around = Around(driver=driver("535.171.04"), torch=torch("13.0"))
        finding = one(init(804, library=self.OLD), around)
        assert finding.severity == "warning"
        assert finding.message.endswith("(see driver-too-old)")


def fabric(state: int) -> GpuFabric:
    return GpuFabric(rows=(FabricRow(index=0, state=state, status=0, health=0),), source="NVML")


class TestFabric:
    """802: https://github.com/aws-samples/aws-deep-learning-ami-ubuntu-dcv-desktop/issues/33,
    https://github.com/huggingface/huggingface_hub/issues/4128."""

    def test_named_by_the_check_of_the_fabric(self) -> None:
        finding = one(init(802), Around(fabric=fabric(2)))
        assert finding.severity == "warning"
        assert finding.message.endswith(
            "the NVLink fabric is not ready (see gpu-fabric-incomplete)"
        )

    @pytest.mark.parametrize(
        ("around", "words"),
        [
            (Around(), "its state is not told by these GPUs"),
            (Around(fabric=GpuFabric(rows=(), source="NVML")), "its state is not told"),
            (Around(fabric=fabric(3)), "the GPUs say that it is completed"),
        ],
    )
    def test_the_error_here_where_gpus_do_not_tell(self, around: Around, words: str) -> None:
        finding = one(init(802), replace(around, driver=driver("550.90.07")))
        assert (finding.severity, finding.category) == ("error", "fabric_manager")
        assert words in finding.message
        assert finding.fixes[0].title == "Start Fabric Manager 550.90.07"


@pytest.mark.parametrize("code", [805, 807, 808])
def test_mps(code: int) -> None:
    around = Around(mps=Mps(directory="/tmp/mps", set=True, daemon=False))
    finding = one(init(code), around)
    assert finding.message.endswith(
        "MPS is looked for in /tmp/mps (by CUDA_MPS_PIPE_DIRECTORY); no control pipe is there"
    )
    assert "unset CUDA_MPS_PIPE_DIRECTORY" in finding.fixes[0].title


def test_the_address_space() -> None:
    around = Around(space=AddressSpace(limit=4_096_000_000))
    finding = one(init(2), around)
    assert "the address space is limited to 3.8 GiB (ulimit -v)" in finding.message
    assert fixes(finding) == ["raise-address-space"]
    assert "limited" not in one(init(2), Around(space=AddressSpace(limit=None))).message


def test_a_stub() -> None:
    path = "/usr/local/cuda/lib64/stubs/libcuda.so"
    finding = one(init(34, library=path, version=None))
    assert f"{path} is for linking only" in finding.message
    assert finding.fixes[0].title.startswith("Take /usr/local/cuda/lib64/stubs out")


class TestNodes:
    """What was measured with nodes that may not be opened (tests/captures/h200-x2/cuinit.txt)."""

    @pytest.mark.parametrize(
        ("code", "closed", "words"),
        [
            (999, ["nvidia-uvm"], "this user may not open /dev/nvidia-uvm"),
            (100, ["nvidiactl"], "this user may not open /dev/nvidiactl"),
            (100, ["nvidia0", "nvidia1"], "this user may not open /dev/nvidia0, /dev/nvidia1"),
        ],
    )
    def test_rights(self, code: int, closed: list[str], words: str) -> None:
        finding = one(init(code), Around(nodes=nodes(*closed)))
        assert words in finding.message
        assert finding.evidence[1].excerpt == "mode 0600"
        assert fixes(finding) == ["open-device-nodes"]

    def test_one_gpu_of_two_explains_no_failure(self) -> None:
        assert "may not open" not in one(init(999), Around(nodes=nodes("nvidia1"))).message

    def test_a_node_of_another_number(self) -> None:
        around = Around(nodes=nodes(uvm=510, now=234), identity=machine("docker"))
        finding = one(init(999), around)
        assert "/dev/nvidia-uvm has the device number 510, nvidia_uvm is 234" in finding.message
        assert fixes(finding) == ["give-nvidia-uvm"]

    def test_a_module_that_is_not_loaded(self) -> None:
        finding = one(init(999), Around(nodes=nodes(now=None)))
        assert "nvidia_uvm is not loaded" in finding.message
        assert fixes(finding) == ["reload-nvidia-uvm"]


def test_no_room_for_heterogeneous_memory() -> None:
    line = f"nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] {HMM_FAILED}"
    log = KernelLog(lines=(LogLine(seconds=64_689.1, text=line),), now=64_700.0, source="/dev/kmsg")
    finding = one(init(999), Around(log=log))
    assert "no room for heterogeneous memory" in finding.message
    assert finding.evidence[1].excerpt == line
    assert fixes(finding) == ["disable-uvm-hmm"]


def xids(*texts: str) -> XidEvents:
    lines = [LogLine(seconds=9.0, text=f"NVRM: Xid (PCI:0000:00:06): {text}") for text in texts]
    return XidEvents(events=tuple(parse_xids(lines, 10.0)), source="/dev/kmsg")


@pytest.mark.parametrize(
    ("code", "around", "named"),
    [
        (999, Around(recovery=GpuRecovery(actions={0: 1}, source="NVML")), "gpu-reset-needed"),
        (
            999,
            Around(
                recovery=GpuRecovery(actions={0: 1}, source="NVML"),
                ecc=GpuEcc(rows=(EccRow(index=0, uncorrected=1),), source="NVML"),
            ),
            "gpu-ecc-uncorrected",
        ),
        (999, Around(gpus=gpus(1), bus=bus(2), identity=machine()), "gpu-fewer-than-bus"),
        (999, Around(xids=xids("62, 0 0 0")), "gpu-xid-logged"),
        (
            100,
            Around(failure=NvmlFailure(code=999, message="Unknown Error"), module=module()),
            "driver-not-answering",
        ),
        (
            100,
            Around(
                mig=GpuMig(
                    rows=(MigRow(index=0, on=True, next_on=True, instances=()),), source="NVML"
                )
            ),
            "gpu-mig-empty",
        ),
        (100, Around(modes=GpuComputeModes(modes={0: 2}, source="NVML")), "gpu-compute-mode"),
    ],
)
def test_one_fault_is_one_error(code: int, around: Around, named: str) -> None:
    finding = one(init(code), around)
    assert finding.severity == "warning"
    assert finding.message.endswith(f"(see {named})")
    assert finding.fixes == ()


@pytest.mark.parametrize(
    "around",
    [
        Around(recovery=GpuRecovery(actions={0: 0}, source="NVML"), xids=xids("62, 0 0 0")),
        Around(recovery=GpuRecovery(actions={0: 4}, source="NVML")),
        Around(xids=xids("31, pid=9")),
        Around(gpus=gpus(1), bus=bus(2), identity=machine("docker")),
        Around(failure=NvmlFailure(code=12, message="not found"), module=module()),
        Around(modes=GpuComputeModes(modes={0: 2, 1: 0}, source="NVML")),
    ],
)
def test_what_explains_nothing_leaves_the_error_here(around: Around) -> None:
    assert one(init(999), around).severity == "error"
    assert one(init(100), around).severity == "error"


def test_a_library_that_dies() -> None:
    finding = one(CudaInit(end="signal 11", step="cuInit", library=REAL))
    assert finding.message == "CUDA does not start: the process dies in cuInit (signal 11)"
    late = CudaInit(code=0, end="signal 11", step="cuDeviceGetCount", library=REAL)
    assert "dies in cuDeviceGetCount" in one(late).message


def test_a_library_that_cannot_be_loaded() -> None:
    finding = one(CudaInit(load_error="libcuda.so.1: file too short", step="loading"))
    assert finding.message.endswith("libcuda.so.1 cannot be loaded: libcuda.so.1: file too short")
    assert finding.category == "missing_lib"


NOWHERE = "libcuda.so.1: cannot open shared object file: No such file or directory"


def test_a_library_that_is_nowhere() -> None:
    cuda = CudaInit(load_error=NOWHERE, step="loading libcuda.so.1")
    finding = one(cuda, Around(driver=driver("580.159.04")))
    assert finding.fixes[0].title == (
        "Install the driver's CUDA library, libcuda.so.1, of 580.159.04"
    )
    assert "libnvidia-compute-580-server" in finding.fixes[0].actions[0].text
    inside = Around(identity=machine("docker"))
    assert fixes(one(cuda, inside)) == ["give-libcuda"]
    mounted = MountedDriver(libraries={"libcuda.so.1": None, "libnvidia-ml.so.1": "/usr/lib/x"})
    named = one(cuda, replace(inside, mounted=mounted))
    assert named.severity == "warning"
    assert named.message.endswith("(see container-driver-capabilities)")


def test_without_nodes_it_was_not_called() -> None:
    result = examine(init_failed, CudaInit(missing=("/dev/nvidiactl", "/dev/nvidia0")), Around())
    assert (result.outcome, result.reason) == (
        "blocked",
        "cuInit was not called: /dev/nvidiactl, /dev/nvidia0 not there",
    )
    host = examine(init_failed, CudaInit(missing=("/dev/nvidia-uvm",)), Around(identity=machine()))
    assert host.outcome == "blocked"  # the first CUDA program makes it


def test_a_container_cannot_make_the_node() -> None:
    """https://github.com/pytorch/pytorch/issues/49081, podman."""
    cuda = CudaInit(missing=("/dev/nvidia-uvm",))
    finding = one(cuda, Around(identity=machine("podman")))
    assert (finding.severity, finding.category) == ("error", "container")
    assert fixes(finding) == ["give-nvidia-uvm"]


def reading(count: int) -> NvmlReading:
    rows = tuple({"MinorNumber": minor} for minor in range(count))
    return NvmlReading(driver="580.159.04", cuda_driver=13000, gpus=rows)


def test_missing() -> None:
    contract(
        gpus_missing,
        fires=[fine(1), reading(2), Around()],
        passes=[fine(2), reading(2), Around()],
    )


def test_a_gpu_that_may_not_be_opened() -> None:
    """Measured: NVML lists only the other one then."""
    facts = fine(1), reading(1), Around(nodes=nodes("nvidia1"))
    (finding,) = examine(gpus_missing, *facts).findings
    assert finding.severity == "warning"
    assert finding.message == "CUDA offers 1 of 2 GPUs; this user may not open /dev/nvidia1"
    assert fixes(finding) == ["open-device-nodes"]
    one = launch_of(["vllm", "serve", "m"])
    two = launch_of(["vllm", "serve", "m", "-tp", "2"])
    assert examine(gpus_missing, *facts, one).findings[0].severity == "warning"
    assert examine(gpus_missing, *facts, two).findings[0].severity == "error"


def test_a_lost_gpu_is_named_elsewhere() -> None:
    facts = fine(1), reading(2), Around(gpus=gpus(1), bus=bus(2), identity=machine())
    (finding,) = examine(gpus_missing, *facts).findings
    assert finding.severity == "warning"
    assert finding.message.endswith("(see gpu-fewer-than-bus)")


@pytest.mark.parametrize(
    ("cuda", "around", "outcome"),
    [
        (init(999), Around(), "blocked"),
        (fine(1), Around(visible=visible("0")), "not_applicable"),
        (
            fine(1),
            Around(
                mig=GpuMig(
                    rows=(MigRow(index=0, on=True, next_on=True, instances=None),), source="NVML"
                )
            ),
            "not_applicable",
        ),
        (fine(2), Around(mig=GpuMig(rows=(), source="NVML")), "passed"),
    ],
)
def test_where_fewer_are_meant(cuda: CudaInit, around: Around, outcome: str) -> None:
    assert examine(gpus_missing, cuda, reading(2), around).outcome == outcome


def measured() -> dict[str, int]:
    rows = [line.split("\t") for line in CAPTURE.read_text().splitlines() if "\t" in line]
    return {row[0]: int(row[1]) for row in rows}


def test_what_was_measured_is_in_the_catalogue() -> None:
    codes = measured()
    assert len(codes) > 30
    assert {code for code in codes.values() if code} <= set(CUDA_ERRORS)
    assert codes["stub"] == 34
    assert codes["compat"] == 803
    assert codes["/dev/nvidia-uvm mode 0600 as nobody"] == 999


def answers(*captures: tuple[str, dict[str, Any], dict[str, Any]]) -> Host:
    return Host(
        [
            Capture(operation=name, arguments=arguments, version=VERSIONS[name], value=value)
            for name, arguments, value in captures
        ]
    )


FAILED = {"missing": [], "library": REAL, "code": 100, "version": 13000, "step": "the end"}
STARTED = {**FAILED, "code": 0, "count": 2}


class TestFacts:
    def test_asked_again_without_the_variable(self) -> None:
        environ = ("environ", {}, {"variables": {"CUDA_VISIBLE_DEVICES": "7"}})
        host = answers(
            environ,
            ("cuda", {"without": []}, FAILED),
            ("cuda", {"without": ["CUDA_VISIBLE_DEVICES"]}, STARTED),
        )
        found = cuda_init(host, None, None)
        assert (found.code, found.unmasked) == (100, 0)
        once = answers(environ, ("cuda", {"without": []}, FAILED))
        assert cuda_init(once, None, None).unmasked is None

    def test_not_asked_again_without_reason(self) -> None:
        host = answers(("environ", {}, {"variables": {}}), ("cuda", {"without": []}, FAILED))
        assert cuda_init(host, None, None).unmasked is None
        assert cuda_init(answers(("cuda", {"without": []}, STARTED)), None, None).count == 2

    def test_a_hang_is_not_known(self) -> None:
        error = {"code": "timeout", "message": "no return from cuInit"}
        capture = Capture(
            operation="cuda", arguments={"without": []}, version=VERSIONS["cuda"], error=error
        )
        with pytest.raises(Unavailable, match=r"^cuInit: no return from cuInit$"):
            cuda_init(Host([capture]), None, None)

    def test_not_called_when_nvml_hangs(self) -> None:
        error = {"code": "timeout", "message": "no return from nvmlInit"}
        hung = Capture(operation="nvml", arguments={}, version=VERSIONS["nvml"], error=error)
        with pytest.raises(Unavailable, match="not called: NVML does not answer"):
            cuda_init(Host([hung]), None, None)

    def test_mps(self) -> None:
        path = {"path": "/pipes/control"}
        there = answers(("stat", path, {"kind": "other"}))
        environ = Environ(variables={"CUDA_MPS_PIPE_DIRECTORY": "/pipes/"})
        assert mps(there, environ) == Mps(directory="/pipes/", set=True, daemon=True)

    def test_address_space(self) -> None:
        assert address_space(answers(("limits", {}, {"as": [-1, -1]}))).limit is None
        assert address_space(answers(("limits", {}, {"as": [4096, -1]}))).limit == 4096

    def test_device_nodes(self) -> None:
        node = {"name": "nvidia0", "major": 195, "minor": 0, "mode": 438, "usable": True}
        host = answers(("device_nodes", {}, {"nodes": [node], "majors": {"nvidia-uvm": 238}}))
        found = device_nodes(host)
        assert found.nodes == (
            DeviceNode(name="nvidia0", major=195, minor=0, mode=0o666, usable=True),
        )
        assert found.majors == {"nvidia-uvm": 238}
