"""The checks of the driver."""

from __future__ import annotations

import pytest

from infer_doctor.checks.driver import (
    driver_missing,
    library_mismatch,
    not_answering,
    older_than_toolkit,
    too_old,
)
from infer_doctor.facts.cuda_init import CudaInit, DeviceNode, DeviceNodes
from infer_doctor.facts.driver import Driver, DriverLibrary, KernelModule
from infer_doctor.facts.gpu import NvmlFailure
from infer_doctor.facts.machine import OperatingSystem
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

FILE = "/proc/driver/nvidia/version"
UBUNTU = OperatingSystem(id="ubuntu", like=("debian",), name="Ubuntu 24.04.3 LTS")


def bus(driver: str | None) -> PciBus:
    h200 = PciDevice(
        address="0000:00:06.0",
        driver=driver,
        class_code="0x030200",
        device_id="0x2335",
        link=(None, None, None, None),
    )
    return PciBus(devices=8, nvidia=(h200,))


def module(version: str | None) -> KernelModule:
    return KernelModule(version=version, open=True, evidence=Evidence(source=FILE))


def library(version: str, folder: str = "/usr/lib64") -> DriverLibrary:
    compat = folder.endswith("compat")
    return DriverLibrary(path=f"{folder}/libcuda.so.{version}", version=version, compat=compat)


def driver(version: str, cuda: tuple[int, int] | None) -> Driver:
    return Driver(version=version, cuda=cuda, evidence=Evidence(source="NVML"))


def torch(version: str, cuda: str | None) -> TorchBuild:
    return TorchBuild(version=version, cuda=cuda, source="/site/torch/version.py")


def test_missing() -> None:
    contract(
        driver_missing,
        fires=[bus(None), module(None)],
        passes=[bus("nvidia"), module("580.159.04")],
    )


def test_a_gpu_given_to_a_virtual_machine_misses_nothing() -> None:
    assert examine(driver_missing, bus("vfio-pci"), module(None)).outcome == "passed"


def test_missing_names_the_driver_that_torch_needs_and_how_to_install_it() -> None:
    facts = bus("nouveau"), module(None), UBUNTU, torch("2.8.0+cu128", "12.8")
    (finding,) = examine(driver_missing, *facts).findings
    assert "bound to nouveau" in finding.message
    (fix,) = finding.fixes
    assert fix.title == "Install NVIDIA driver 525.60.13 or newer on the host"
    assert "apt-get install nvidia-driver-580-server" in [action.text for action in fix.actions]


def test_library_mismatch() -> None:
    contract(
        library_mismatch,
        fires=[module("580.159.04"), library("580.95.05")],
        passes=[module("580.159.04"), library("580.159.04")],
    )


def test_a_compat_library_is_newer_by_design() -> None:
    facts = module("535.183.01"), library("570.26", "/usr/local/cuda/compat")
    assert examine(library_mismatch, *facts).outcome == "passed"


def test_nvml_itself_says_mismatch() -> None:
    failure = NvmlFailure(code=18, message="Driver/library version mismatch")
    (finding,) = examine(library_mismatch, module("580.159.04"), failure).findings
    assert finding.confidence == "certain"


def test_not_answering() -> None:
    lost = NvmlFailure(code=15, message="GPU is lost")
    missing = NvmlFailure(code=12, message="NVML Shared Library Not Found")
    contract(
        not_answering,
        fires=[module("580.159.04"), lost],
        passes=[module("580.159.04"), missing],
    )


def test_too_old() -> None:
    contract(
        too_old,
        fires=[driver("550.54.14", (12, 4)), torch("2.11.0+cu130", "13.0")],
        passes=[driver("580.159.04", (13, 0)), torch("2.11.0+cu130", "13.0")],
    )


@pytest.mark.parametrize(
    ("version", "cuda", "outcome"),
    [
        ("535.183.01", "12.8", "passed"),  # minor-version compatibility
        ("525.60.13", "12.9", "passed"),
        ("525.60.12", "12.1", "failed"),
        ("470.256.02", "12.1", "failed"),
        ("470.256.02", "11.8", "passed"),
        ("580.65.06", "13.2", "passed"),
        ("575.57.08", "13.0", "failed"),
        ("615.10", "12.4", "passed"),  # newer drivers run older CUDA
        ("580.65.06", "14.0", "failed"),  # newer than the catalogue: NVML's own CUDA decides
    ],
)
def test_the_real_rules(version: str, cuda: str, outcome: str) -> None:
    speaks = {"5": (12, 2), "4": (11, 4), "6": (14, 0)}[version[0]]
    facts = driver(version, (13, 0) if version.startswith("58") else speaks), torch("2", cuda)
    assert examine(too_old, *facts).outcome == outcome


def test_forward_compatibility_makes_it_possible_only() -> None:
    facts = driver("535.183.01", (12, 2)), torch("2.11.0", "13.0")
    (finding,) = examine(too_old, *facts, library("580.65.06", "/cuda/compat")).findings
    assert finding.confidence == "possible"


def test_a_torch_without_cuda_has_nothing_to_judge() -> None:
    facts = driver("535.183.01", (12, 2)), torch("2.13.0+cpu", None)
    assert examine(too_old, *facts).outcome == "not_applicable"
    assert examine(older_than_toolkit, *facts).outcome == "not_applicable"


def test_older_than_toolkit() -> None:
    contract(
        older_than_toolkit,
        fires=[driver("535.183.01", (12, 2)), torch("2.8.0+cu128", "12.8")],
        passes=[driver("570.26", (12, 8)), torch("2.8.0+cu128", "12.8")],
    )


OLD_LIBRARY = library("580.95.05")
COMPAT = library("580.95.05", "/usr/local/cuda-13.0/compat")


def test_cuda_that_starts_fits() -> None:
    facts = module("580.159.04"), OLD_LIBRARY
    assert examine(library_mismatch, *facts, CudaInit(code=0, count=1)).outcome == "passed"
    failure = NvmlFailure(code=18, message="Driver/library version mismatch")
    only_nvml = examine(library_mismatch, *facts, CudaInit(code=0, count=1), failure)
    assert only_nvml.findings[0].message.endswith("NVML's library is of another version")


def test_cuda_that_refuses_makes_it_certain() -> None:
    facts = module("580.159.04"), OLD_LIBRARY
    (finding,) = examine(library_mismatch, *facts, CudaInit(code=803)).findings
    assert finding.confidence == "certain"
    assert finding.evidence[-1].excerpt == "803, driver mismatch"
    assert examine(library_mismatch, *facts, CudaInit(code=999)).findings[0].confidence == "likely"


@pytest.mark.parametrize(
    ("cuda", "outcome", "confidence"),
    [
        (CudaInit(code=0, version=13000), "passed", None),
        (CudaInit(code=0, version=12080), "failed", "possible"),
        (CudaInit(code=804), "failed", "certain"),
        (CudaInit(code=999), "failed", "possible"),
    ],
)
def test_cuda_itself_decides_about_a_compat_library(
    cuda: CudaInit, outcome: str, confidence: str | None
) -> None:
    facts = driver("535.183.01", (12, 2)), torch("2.11.0+cu130", "13.0"), COMPAT, cuda
    result = examine(too_old, *facts)
    assert result.outcome == outcome
    assert [finding.confidence for finding in result.findings] == [confidence] * bool(confidence)


def test_rights_are_no_matter_of_the_driver() -> None:
    """Measured on a real machine with a closed /dev/nvidiactl."""
    node = DeviceNode(name="nvidiactl", major=195, minor=255, mode=0o600, usable=False)
    nodes = DeviceNodes(nodes=(node,), majors={})
    failure = NvmlFailure(code=4, message="NVMLError_NoPermission: Insufficient Permissions")
    (finding,) = examine(not_answering, module("580.159.04"), failure, nodes).findings
    assert finding.message.endswith("(code 4); this user may not open /dev/nvidiactl")
    assert [fix.id for fix in finding.fixes] == ["open-device-nodes"]
    unknown = NvmlFailure(code=999, message="Unknown Error")
    (finding,) = examine(not_answering, module("580.159.04"), unknown, nodes).findings
    assert [fix.id for fix in finding.fixes] == ["read-kernel-log"]
