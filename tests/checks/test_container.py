"""What a container was started without."""

from __future__ import annotations

import pytest

from infer_doctor.checks.container import driver_capabilities, shm_small, without_gpu
from infer_doctor.facts.container import MountedDriver, mounted_driver
from infer_doctor.facts.driver import LIBRARY_FOLDERS, KernelModule
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.memory import SharedMemory
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Absent, Capture, Host, Unavailable
from infer_doctor.launch.command import read as launch_of
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

MIB, GIB = 1 << 20, 1 << 30
LOADED = KernelModule(version="580.95.05", open=True, evidence=Evidence(source="/proc/..."))
NOT_LOADED = KernelModule(version=None, open=False, evidence=Evidence(source="/proc/..."))
GIVEN = ("nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl")


def machine(container: str | None = "docker", devices: tuple[str, ...] = ()) -> Identity:
    return Identity(
        hostname="node",
        kernel="6.8",
        machine="x86_64",
        uid=0,
        container=container,
        initial_pid_namespace=container is None,
        devices=devices,
    )


def bus(driver: str | None = "nvidia", class_code: str = "0x030200") -> PciBus:
    device = PciDevice(
        address="0000:00:06.0",
        driver=driver,
        class_code=class_code,
        device_id="0x2335",
        link=(None, None, None, None),
    )
    return PciBus(devices=8, nvidia=(device,))


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)


def vllm(version: str | None = "0.32.0", build: str = "cuda") -> EngineFact:
    return EngineFact(
        name="vllm", version=version, distribution="vllm", package="/site/vllm", build=build
    )


def test_without_gpu_contract() -> None:
    contract(
        without_gpu,
        fires=[machine(), bus(), LOADED, environ()],
        passes=[machine(devices=GIVEN), bus(), LOADED, environ()],
    )


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ([machine(None), bus(), LOADED], "not_applicable"),
        ([machine(), bus(), NOT_LOADED], "passed"),  # driver-missing says it
        ([machine(), bus("vfio-pci"), LOADED], "passed"),  # given to a virtual machine
        ([machine(), bus("snd_hda_intel", "0x040300"), LOADED], "passed"),
        ([machine(devices=("dxg",)), bus(), LOADED], "passed"),
        ([machine(devices=("nvidia-uvm", "nvidiactl")), bus(), LOADED], "failed"),
        ([machine(devices=("nvidia3",)), bus(), LOADED], "passed"),
        ([machine(), bus(), LOADED, vllm(build="cpu")], "not_applicable"),
    ],
)
def test_without_gpu(facts: list[object], outcome: str) -> None:
    assert examine(without_gpu, *facts, environ()).outcome == outcome


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "NVIDIA_VISIBLE_DEVICES is not set"),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, "NVIDIA_VISIBLE_DEVICES=(empty)"),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "NVIDIA_VISIBLE_DEVICES=void"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "NVIDIA_VISIBLE_DEVICES=all"),
    ],
)
def test_the_variable_is_evidence(variables: dict[str, str], said: str) -> None:
    (finding,) = examine(without_gpu, machine(), bus(), LOADED, environ(**variables)).findings
    assert finding.message == (
        "the host has 1 NVIDIA GPU and driver 580.95.05, but this container (docker) has no "
        f"/dev/nvidia0 or other GPU node; {said}"
    )
    assert Evidence(source="environment", excerpt=said) in finding.evidence


@pytest.mark.parametrize(
    ("kind", "title", "action"),
    [
        ("docker", "Start the container with --gpus all", "docker run --gpus all ..."),
        (
            "podman",
            "Start the container with --device nvidia.com/gpu=all",
            "podman run --device nvidia.com/gpu=all ...",
        ),
        (
            "kubernetes",
            "Ask for GPUs in the pod: resources.limits nvidia.com/gpu",
            "in the container's resources: limits: {nvidia.com/gpu: 1}",
        ),
        ("containerd", "Start the container with --gpus all", "nerdctl run --gpus all ..."),
    ],
)
def test_the_fix_speaks_of_what_started_the_container(kind: str, title: str, action: str) -> None:
    (finding,) = examine(without_gpu, machine(kind), bus(), LOADED, environ()).findings
    assert finding.fixes[0].title == title
    assert action in [step.text for step in finding.fixes[0].actions]


def mounted(cuda: bool, nvml: bool) -> MountedDriver:
    return MountedDriver(
        libraries={
            "libcuda.so.1": "/usr/lib64/libcuda.so.580.95.05" if cuda else None,
            "libnvidia-ml.so.1": "/usr/lib64/libnvidia-ml.so.580.95.05" if nvml else None,
        }
    )


def test_capabilities_contract() -> None:
    utility = environ(NVIDIA_DRIVER_CAPABILITIES="utility")
    contract(
        driver_capabilities,
        fires=[mounted(False, True), machine(devices=GIVEN), utility],
        passes=[mounted(True, True), machine(devices=GIVEN), utility],
    )


@pytest.mark.parametrize(
    ("value", "libraries", "confidence", "fix"),
    [
        ("utility", (False, True), "certain", "set-driver-capabilities"),
        ("compute", (True, False), "certain", "set-driver-capabilities"),
        ("graphics,video", (False, False), "certain", "set-driver-capabilities"),
        ("compute,utility", (False, True), "likely", "set-driver-capabilities"),
        ("all", (False, False), "likely", "start-container-with-gpus"),
        ("", (False, False), "likely", "start-container-with-gpus"),  # docker run --device
    ],
)
def test_capabilities(value: str, libraries: tuple[bool, bool], confidence: str, fix: str) -> None:
    variables = environ(NVIDIA_DRIVER_CAPABILITIES=value) if value else environ()
    facts = (mounted(*libraries), machine(devices=GIVEN), variables)
    (finding,) = examine(driver_capabilities, *facts).findings
    assert finding.confidence == confidence
    assert [f.id for f in finding.fixes] == [fix]


def test_capabilities_message() -> None:
    facts = (mounted(False, True), machine(devices=GIVEN))
    (finding,) = examine(
        driver_capabilities, *facts, environ(NVIDIA_DRIVER_CAPABILITIES="utility")
    ).findings
    assert finding.message == (
        "2 GPUs in /dev, but libcuda.so.1 is not in the container; "
        "NVIDIA_DRIVER_CAPABILITIES=utility, compute is needed"
    )


def libraries_of(
    found: dict[str, str], cache: tuple[str, ...] = (), devices: tuple[str, ...] = GIVEN
) -> MountedDriver:
    """The fact on a host where these paths lead somewhere and the loader's cache has those."""
    captures = []
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        for path in [f"{folder}/{name}" for folder in LIBRARY_FOLDERS] + list(cache):
            target = found.get(path)
            captures.append(
                Capture(
                    operation="real",
                    arguments={"path": path},
                    version=VERSIONS["real"],
                    value={"path": target} if target else None,
                    error=None if target else {"code": "ENOENT", "message": "not there"},
                )
            )
        pattern = f"/[!-~]+/{name.replace('.', chr(92) + '.').replace('-', chr(92) + '-')}(?![!-~])"
        captures.append(
            Capture(
                operation="find",
                arguments={"path": "/etc/ld.so.cache", "pattern": pattern, "limit": 4},
                version=VERSIONS["find"],
                value={"matches": [path for path in cache if path.endswith(name)]},
            )
        )
    return mounted_driver(Host(captures), machine(devices=devices), environ())


def test_libraries_are_found_in_the_usual_folders_and_in_the_loaders_cache() -> None:
    usual = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    odd = "/run/opengl-driver/lib/libcuda.so.1"
    found = libraries_of({usual: "/x/libnvidia-ml.so.580", odd: "/y/libcuda.so.580"}, (odd,))
    assert found.libraries == {
        "libcuda.so.1": "/y/libcuda.so.580",
        "libnvidia-ml.so.1": "/x/libnvidia-ml.so.580",
    }


def test_a_library_that_is_nowhere() -> None:
    assert libraries_of({}).libraries == {"libcuda.so.1": None, "libnvidia-ml.so.1": None}


def test_without_a_gpu_node_there_is_nothing_to_mount() -> None:
    with pytest.raises(Absent, match="no GPU node"):
        libraries_of({}, devices=("nvidiactl",))


def test_a_loaders_cache_that_cannot_be_read_proves_nothing() -> None:
    with pytest.raises(Unavailable):
        mounted_driver(Host([]), machine(devices=GIVEN), environ())


def shm(free: float, total: float | None = None) -> SharedMemory:
    return SharedMemory(total=int((free if total is None else total) * MIB), free=int(free * MIB))


def launch(command: str) -> Launch:
    return launch_of(command.split())


TWO_RANKS = launch("vllm serve m --tensor-parallel-size 2")


def test_shm_contract() -> None:
    contract(
        shm_small,
        fires=[shm(64), environ(), machine(), TWO_RANKS, vllm()],
        passes=[shm(1024), environ(), machine(), TWO_RANKS, vllm()],
    )


@pytest.mark.parametrize(
    ("version", "free", "severity"),
    [
        ("0.32.0", 64, "error"),  # seen: "160 MiB required, 64 MiB free"
        ("0.32.0", 200, "error"),  # seen: "240 MiB required, 200 MiB free"
        ("0.27.0", 239, "error"),
        ("0.27.0", 240, None),
        ("0.26.0", 64, "warning"),
        ("0.26.0", 160, None),
        ("0.8.5", 100, None),
        ("0.8.5", 99, "warning"),
        ("0.1.dev17235+g1234567", 64, "warning"),
        (None, 64, "warning"),
    ],
)
def test_shm_by_version(version: str | None, free: int, severity: str | None) -> None:
    findings = examine(
        shm_small, shm(free), environ(), machine(), TWO_RANKS, vllm(version)
    ).findings
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_shm_message_and_size() -> None:
    four = launch("vllm serve m -tp 4")
    (finding,) = examine(shm_small, shm(60, 64), environ(), machine(), four, vllm()).findings
    assert finding.message == (
        "/dev/shm has 60 MiB of 64 MiB free; vLLM 0.32.0 wants rings of 160 MiB and 240 MiB for "
        "4 ranks"
    )
    assert finding.fixes[0].title == "Start the container with --shm-size=2g (or --ipc=host)"


def test_what_counts_is_what_is_free() -> None:
    facts = (environ(), machine(), TWO_RANKS, vllm())
    assert examine(shm_small, shm(100, 8192), *facts).outcome == "failed"


@pytest.mark.parametrize(
    ("command", "free", "outcome"),
    [
        ("vllm serve m", 64, "not_applicable"),
        ("vllm serve m --data-parallel-size 2", 64, "failed"),
        ("vllm serve m -pp 2", 64, "failed"),
        ("vllm serve m -tp lots", 64, "blocked"),
        ("python serve.py -tp 2", 64, "failed"),  # vLLM is what is installed
        ("vllm serve m -tp 16 --nnodes 2", 200, "passed"),
        ("vllm serve m -tp 16 --nnodes=2", 100, "failed"),
        ("vllm serve m -tp 2 --enable-shm-tensor-arena", 2000, "failed"),
        ("vllm serve m -tp 2 --distributed-executor-backend external_launcher", 64, "passed"),
        ("trtllm-serve m --tp_size 2", 64, "failed"),
        ("trtllm-serve m --tp_size 2", 128, "passed"),
    ],
)
def test_shm_by_launch(command: str, free: int, outcome: str) -> None:
    facts = (shm(free), environ(), machine(), launch(command), vllm())
    assert examine(shm_small, *facts).outcome == outcome


def test_with_ray_the_executor_depends_on_the_version() -> None:
    ray = launch("vllm serve m -tp 2 --distributed-executor-backend ray")
    (finding,) = examine(shm_small, shm(64), environ(), machine(), ray, vllm()).findings
    assert (finding.severity, finding.confidence) == ("error", "likely")


def test_the_variable_moves_the_first_ring_only() -> None:
    small = environ(VLLM_MQ_MAX_CHUNK_BYTES_MB="4")
    old = examine(shm_small, shm(64), small, machine(), TWO_RANKS, vllm("0.26.0"))
    assert old.outcome == "passed"
    new = examine(shm_small, shm(64), small, machine(), TWO_RANKS, vllm("0.32.0"))
    assert new.findings[0].message.endswith("wants rings of 40 MiB and 240 MiB for 2 ranks")


def test_the_cpu_build_has_workers_for_one_rank_too() -> None:
    one = launch("vllm serve m")
    result = examine(shm_small, shm(64), environ(), machine(), one, vllm(build="cpu"))
    assert result.outcome == "failed"


def test_no_launch_names_no_ranks() -> None:
    result = examine(shm_small, shm(64), environ(), machine(), vllm())
    assert result.outcome == "not_applicable"


def test_no_shared_memory_at_all() -> None:
    gone = SharedMemory(total=None, free=0)
    (finding,) = examine(shm_small, gone, environ(), machine(), TWO_RANKS, vllm()).findings
    assert finding.message == "/dev/shm does not exist; 2 ranks of vllm share memory there"


def test_outside_a_container_it_is_mounted_anew() -> None:
    (finding,) = examine(shm_small, shm(64), environ(), machine(None), TWO_RANKS, vllm()).findings
    assert finding.fixes[0].actions[0].text == "mount -o remount,size=1g /dev/shm"
