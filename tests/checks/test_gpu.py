"""The checks of the GPUs."""

from __future__ import annotations

import dataclasses

import pytest

from infer_doctor.checks.gpu import (
    ecc_uncorrected,
    gpu_fewer_than_bus,
    gpu_none,
    memory_held,
    visible_devices_wrong,
)
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.cuda_init import DeviceNode, DeviceNodes
from infer_doctor.facts.engine import EngineFact, EngineSearch
from infer_doctor.facts.gpu import EccRow, Gpu, GpuEcc, GpuMemory, Gpus, MemoryRow
from infer_doctor.facts.kernel_log import LogLine, XidEvents, parse_xids
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.owners import GpuOwners, Owner
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.facts.visible import DeviceIdRules, VisibleDevices, device_id_rules
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.command import read as launch_of
from infer_doctor.testing import contract, examine

GIB = 1 << 30
H200_TOTAL, H200_RESERVED = 150_754_820_096, 644_939_776
"""Bytes, as NVML gave them on a real H200."""


def machine(container: str | None = None, devices: tuple[str, ...] = ()) -> Identity:
    return Identity(
        hostname="node",
        kernel="6.8",
        machine="x86_64",
        uid=0,
        container=container,
        initial_pid_namespace=container is None,
        devices=devices,
    )


def bus(*drivers: str) -> PciBus:
    devices = tuple(
        PciDevice(
            address=f"0000:00:0{6 + number}.0",
            driver=driver,
            class_code="0x030200",
            device_id="0x2335",
            link=(None, None, None, None),
        )
        for number, driver in enumerate(drivers)
    )
    return PciBus(devices=5 + len(devices), nvidia=devices)


def gpus(count: int) -> Gpus:
    return Gpus(
        gpus=tuple(
            Gpu(
                index=index,
                name="NVIDIA H200",
                uuid=f"GPU-0000000{index + 1}-0000-0000-0000-000000000000",
                bus_id=f"0000:00:0{6 + index}.0",
            )
            for index in range(count)
        ),
        source="NVML",
    )


def engine(build: str = "cuda", name: str = "vllm", version: str = "0.26.0") -> EngineFact:
    return EngineFact(
        name=name, version=version, distribution=name, package=f"/site/{name}", build=build
    )


def memory(used: int) -> GpuMemory:
    usable = H200_TOTAL - H200_RESERVED
    row = MemoryRow(index=0, total=H200_TOTAL, usable=usable, used=used, free=usable - used)
    return GpuMemory(rows=(row,), source="NVML")


def owners(*found: Owner) -> GpuOwners:
    return GpuOwners(owners=found, source="NVML")


ORPHAN = Owner(
    gpu=0, pid=4704, used=141_218_021_376, name="VLLM::EngineCore", age_s=242.0, orphan=True
)


def visible(value: str) -> VisibleDevices:
    return VisibleDevices(value=value, entries=tuple(e.strip() for e in value.split(",") if e))


def test_none() -> None:
    contract(gpu_none, fires=[bus(), machine()], passes=[bus("nvidia"), machine()])


def test_none_is_an_error_for_a_cuda_build_only() -> None:
    (finding,) = examine(gpu_none, bus(), machine(), engine("cuda")).findings
    assert finding.severity == "error"
    assert examine(gpu_none, bus(), machine(), engine("cpu")).outcome == "not_applicable"


def test_wsl_is_not_without_gpu() -> None:
    assert examine(gpu_none, bus(), machine(devices=("dxg",))).outcome == "passed"


def test_fewer_than_bus() -> None:
    contract(
        gpu_fewer_than_bus,
        fires=[bus("nvidia", "nvidia"), gpus(1), machine()],
        passes=[bus("nvidia", "vfio-pci"), gpus(1), machine()],
    )


def nodes(*closed: str) -> DeviceNodes:
    found = tuple(
        DeviceNode(
            name=f"nvidia{n}", major=195, minor=n, mode=0o666, usable=f"nvidia{n}" not in closed
        )
        for n in range(2)
    )
    return DeviceNodes(nodes=found, majors={})


def test_a_gpu_that_may_not_be_opened_is_not_lost() -> None:
    facts = bus("nvidia", "nvidia"), gpus(1), machine()
    assert examine(gpu_fewer_than_bus, *facts, nodes("nvidia1")).outcome == "passed"
    assert examine(gpu_fewer_than_bus, *facts, nodes()).outcome == "failed"
    nothing_listed = bus("nvidia", "nvidia"), gpus(0), machine()
    found = examine(gpu_fewer_than_bus, *nothing_listed, nodes("nvidia1")).findings
    assert len(found) == 2


def test_the_kernel_log_is_added_to_a_lost_gpu() -> None:
    lines = [
        LogLine(seconds=9.0, text="NVRM: Xid (PCI:0000:00:06): 31, pid=1"),
        LogLine(seconds=9.0, text="NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus."),
        LogLine(seconds=9.0, text="NVRM: Xid (PCI:0000:00:07): 154, GPU recovery action changed"),
    ]
    xids = XidEvents(events=tuple(parse_xids(lines, 10.0)), source="/dev/kmsg")
    facts = bus("nvidia", "nvidia"), gpus(1), machine(), xids
    (finding,) = examine(gpu_fewer_than_bus, *facts).findings
    assert [evidence.excerpt for evidence in finding.evidence if "Xid" in evidence.excerpt] == [
        "NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus."
    ]


def test_a_container_may_have_fewer() -> None:
    result = examine(gpu_fewer_than_bus, bus("nvidia", "nvidia"), gpus(1), machine("docker"))
    assert result.outcome == "not_applicable"


def test_visible_devices() -> None:
    contract(
        visible_devices_wrong, fires=[visible("0,7"), gpus(2)], passes=[visible("1,0"), gpus(2)]
    )


@pytest.mark.parametrize(
    ("value", "words", "repaired"),
    [
        ("", "hides all 2 GPUs", "0,1"),
        ("-1", "hides all 2 GPUs", "0,1"),
        ("0,0", "stands twice", "0"),
        ("0,5,1", "5 names no GPU (there are GPUs 0 to 1), so CUDA drops the last 2 of 3", "0,1"),
        ("GPU-0000000", "names no GPU", "0,1"),
        ("all", "names no GPU", "0,1"),
    ],
)
def test_what_cuda_drops(value: str, words: str, repaired: str) -> None:
    (finding,) = examine(visible_devices_wrong, visible(value), gpus(2)).findings
    assert words in finding.message
    assert finding.fixes[0].actions[0].text == f"export CUDA_VISIBLE_DEVICES={repaired}"


def test_a_uuid_is_undecided_where_the_engine_is_not_known() -> None:
    assert examine(visible_devices_wrong, visible("GPU-00000001"), gpus(2)).outcome == "blocked"
    assert examine(visible_devices_wrong, visible("0"), gpus(2)).outcome == "passed"


def test_without_a_vllm_only_cuda_reads_the_entries() -> None:
    host, none = Host(()), EngineSearch(engines=())
    assert device_id_rules(host, none, None).takes_uuid
    other = EngineFact(
        name="tensorrt-llm", version="1.0", distribution=None, package="/t", build=None
    )
    assert device_id_rules(host, EngineSearch(engines=(other,)), other).takes_uuid
    with pytest.raises(Unavailable, match="could not be read"):
        device_id_rules(host, EngineSearch(engines=(), gaps=("it could not be read",)), None)


def test_a_uuid_is_wrong_only_for_a_vllm_that_wants_integers() -> None:
    by_uuid = visible("GPU-00000001")
    old = DeviceIdRules(takes_uuid=False, source="platforms/cuda.py")
    new = DeviceIdRules(takes_uuid=True, source="platforms/cuda.py")
    assert examine(visible_devices_wrong, by_uuid, gpus(2), new).outcome == "passed"
    (finding,) = examine(visible_devices_wrong, by_uuid, gpus(2), old).findings
    assert "turns every entry into an integer" in finding.message
    assert finding.fixes[0].actions[0].text == "export CUDA_VISIBLE_DEVICES=0"


def test_memory_held() -> None:
    contract(
        memory_held,
        fires=[memory(141_218_021_376), owners(ORPHAN)],
        passes=[memory(0), owners()],
    )


def test_memory_of_a_dead_engine() -> None:
    (finding,) = examine(memory_held, memory(141_218_021_376), owners(ORPHAN), engine()).findings
    assert finding.severity == "error"
    assert finding.message == (
        "GPU 0: 131.5 GiB of 139.8 GiB are held by a dead engine, VLLM::EngineCore (PID 4704, "
        "4 min old, no server above it); vLLM wants 128.6 GiB free (0.92), 8.3 GiB are"
    )
    assert [fix.title for fix in finding.fixes] == ["End PID 4704 (VLLM::EngineCore)"]


def test_only_the_gpus_of_the_engine_count() -> None:
    held, nobody = memory(141_218_021_376), owners()
    assert examine(memory_held, held, nobody, ChosenGpus(indices=(0,))).outcome == "failed"
    assert examine(memory_held, held, nobody, ChosenGpus(indices=(1,))).outcome == "passed"


def test_a_launch_makes_it_an_error_and_its_share_counts() -> None:
    held = memory(60 * GIB)
    small = launch_of(["vllm", "serve", "m", "--gpu-memory-utilization=0.5"])
    assert examine(memory_held, held, owners(), small).outcome == "passed"
    default = launch_of(["vllm", "serve", "m"])
    (finding,) = examine(memory_held, held, owners(), default).findings
    assert finding.severity == "error"
    assert "--gpu-memory-utilization 0.57 at most" in finding.fixes[-1].title


def test_tensorrt_llm_refuses_nothing() -> None:
    result = examine(memory_held, memory(60 * GIB), owners(), engine(name="tensorrt-llm"))
    assert result.outcome == "not_applicable"


def test_ecc() -> None:
    bad = GpuEcc(rows=(EccRow(index=0, uncorrected=2),), source="NVML")
    good = GpuEcc(rows=(EccRow(index=0, uncorrected=0),), source="NVML")
    contract(ecc_uncorrected, fires=[bad], passes=[good])


def test_a_faulty_gpu_that_the_engine_does_not_take_is_a_warning() -> None:
    bad = GpuEcc(rows=(EccRow(index=1, uncorrected=2),), source="NVML")
    (finding,) = examine(ecc_uncorrected, bad, ChosenGpus(indices=(0,))).findings
    assert finding.severity == "warning"
    (finding,) = examine(ecc_uncorrected, bad, ChosenGpus(indices=(0, 1))).findings
    assert finding.severity == "error"


def test_without_ecc_there_is_nothing_to_judge() -> None:
    none = GpuEcc(rows=(EccRow(index=0, uncorrected=None),), source="NVML")
    assert examine(ecc_uncorrected, none).outcome == "not_applicable"
    partly = GpuEcc(rows=(EccRow(index=0, uncorrected=None),), source="NVML", gaps=("GPU 0: lost",))
    assert examine(ecc_uncorrected, partly).outcome == "blocked"


def test_an_index_is_undecided_while_a_gpu_does_not_answer() -> None:
    lost = dataclasses.replace(gpus(2), gaps=("GPU 1: NVMLError_GpuIsLost: GPU is lost",))
    assert examine(visible_devices_wrong, visible("0,2"), lost).outcome == "blocked"
    assert examine(visible_devices_wrong, visible("0,0"), lost).outcome == "failed"
