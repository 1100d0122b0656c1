"""What the outputs of nvidia-smi hold: real captures and small ones made after public reports."""

from pathlib import Path
from typing import Any

import pytest

from infer_doctor.catalog.gpus import capability_of
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuCapabilities, GpuEcc, GpuMemory, GpuProcesses, Gpus
from infer_doctor.facts.gpu_health import GpuComputeModes
from infer_doctor.model import Missing
from infer_doctor.targets import facts_of

CAPTURES = Path(__file__).parent.parent / "captures"
MIB = 1 << 20
MIG = "is partitioned (MIG): its instances were not read"


def facts(name: str) -> dict[type, Any]:
    return dict(facts_of(str(CAPTURES / name)))


def memory(name: str) -> list[tuple[int, int, int, int, int]]:
    """Index, total, usable, used, free in MiB."""
    rows = facts(name)[GpuMemory].rows
    return [(r.index, r.total // MIB, r.usable // MIB, r.used // MIB, r.free // MIB) for r in rows]


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("h200/nvidia-smi-q.txt", "580.159.04", (13, 0)),
        ("h200/nvidia-smi-q.xml", "580.159.04", (13, 0)),
        ("h200/nvidia-smi.txt", "580.159.04", (13, 0)),
        ("foreign/q-375-unknown-error.txt", "375.26", None),
        ("foreign/q-510-wsl2.txt", "510.06", (11, 6)),
        ("foreign/q-515-t4.xml", "515.105.01", (11, 7)),
        ("foreign/q-580-vgpu-host-mig.txt", "580.105.06", None),
        ("foreign/q-610-temperature.txt", "610.57.04", (13, 3)),
        ("foreign/table-418-t4-err.txt", "418.67", (10, 1)),
        ("foreign/table-610-b200.txt", "610.43.02", (13, 3)),
    ],
)
def test_driver(name: str, version: str, cuda: tuple[int, int] | None) -> None:
    found = facts(name)[Driver]
    assert (found.version, found.cuda) == (version, cuda)
    assert version in (CAPTURES / name).read_text().splitlines()[found.evidence.line - 1]


@pytest.mark.parametrize("form", ["nvidia-smi-q.txt", "nvidia-smi-q.xml"])
def test_two_h200(form: str) -> None:
    found = facts(f"h200-x2/{form}")
    first, second = found[Gpus].gpus
    assert (first.index, first.name, first.bus_id) == (0, "NVIDIA H200", "0000:00:06.0")
    assert second.index == 1
    assert second.uuid == "GPU-00000002-0000-0000-0000-000000000002"
    assert found[GpuCapabilities].capabilities == {0: (9, 0), 1: (9, 0)}
    assert "developer.nvidia.com/cuda-gpus" in found[GpuCapabilities].source
    assert memory(f"h200-x2/{form}") == [
        (0, 143771, 143155, 0, 143155),
        (1, 143771, 143155, 0, 143155),
    ]
    assert [row.uncorrected for row in found[GpuEcc].rows] == [0, 0]
    assert found[GpuProcesses].processes == ()
    assert all(found[kind].gaps == () for kind in found if kind is not Driver)


def test_table_with_a_dead_engine() -> None:
    found = facts("h200/nvidia-smi-orphan-process.txt")
    (row,) = found[GpuMemory].rows
    assert (row.used // MIB, row.total // MIB, row.bounds) == (134685, 143771, True)
    assert "`-q` does" in found[GpuMemory].gaps[0]
    (process,) = found[GpuProcesses].processes
    assert (process.pid, process.name) == (4704, "VLLM::EngineCore")
    assert process.used is None, "the table cuts the size: 13467..."


def test_processes_of_two_gpus() -> None:
    found = facts("foreign/q-535-4090-processes.txt")[GpuProcesses]
    assert [(p.gpu, p.pid, p.used and p.used // MIB, p.name) for p in found.processes] == [
        (0, 1607, 245, "/usr/lib/xorg/Xorg"),
        (0, 5347, 20220, "VLLM::EngineCore"),
        (1, 1607, 4, "/usr/lib/xorg/Xorg"),
    ]
    assert found.gaps == ()


def test_sizes_that_windows_does_not_tell() -> None:
    found = facts("foreign/q-510-wsl2.txt")[GpuProcesses].processes
    assert [(p.pid, p.used) for p in found] == [(924, None), (2964, None)]
    assert found[1].name == r"C:\Program Files\Terminal : x64\Terminal.exe"


def test_memory_that_is_not_reported() -> None:
    for name, word in (("q-580-gb10.txt", "N/A"), ("table-580-gb10.txt", "Not Supported")):
        found = facts(f"foreign/{name}")
        assert found[GpuMemory].rows == ()
        assert found[GpuMemory].gaps == (f"GPU 0: memory: {word}",)
        assert found[GpuCapabilities].capabilities == {0: (12, 1)}
    assert facts("foreign/q-580-gb10.txt")[GpuProcesses].gaps == ()


def test_instances_are_not_the_gpu() -> None:
    found = facts("foreign/q-580-vgpu-host-mig.txt")
    assert [gpu.index for gpu in found[Gpus].gpus] == [0, 1]
    assert memory("foreign/q-580-vgpu-host-mig.txt") == [(1, 97887, 95599, 5952, 89648)]
    assert found[GpuMemory].gaps == (f"GPU 0 {MIG}",)
    assert [row.uncorrected for row in found[GpuEcc].rows] == [0, 7]


def test_instances_in_xml() -> None:
    found = facts("foreign/q-510-a100-mig.xml")
    assert found[GpuMemory].rows == ()
    assert found[GpuEcc].rows == ()
    assert found[GpuEcc].gaps == ("GPU 0: ECC is on, but its counters are N/A",)
    assert [(p.pid, p.used // MIB, p.name) for p in found[GpuProcesses].processes] == [
        (1001, 11, "python & co"),
        (1001, 8, "python & co"),
    ]


def test_instances_in_the_table() -> None:
    found = facts("foreign/table-510-a100-mig.txt")
    assert [gpu.name for gpu in found[Gpus].gpus] == ["NVIDIA A100-SXM..."] * 2
    assert GpuCapabilities not in found, "a cut name is no name"
    assert memory("foreign/table-510-a100-mig.txt") == [(0, 81920, 81920, 23100, 58820)]
    assert found[GpuMemory].gaps[0] == f"GPU 1 {MIG}"
    assert found[GpuEcc].gaps == ("GPU 1: ECC: On",)
    assert [(p.gpu, p.pid, p.used // MIB) for p in found[GpuProcesses].processes] == [
        (0, 23824, 10725),
        (0, 33724, 12247),
        (1, 34965, 14195),
        (1, 46505, 9807),
    ]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("foreign/q-396-k80-double-bit.txt", [2]),
        ("foreign/q-515-t4.xml", [3]),
        ("foreign/q-510-wsl2.txt", [None]),
        ("foreign/q-535-4090-processes.txt", [None, None]),
        ("foreign/table-418-t4-err.txt", [0]),
        ("foreign/table-610-b200.txt", [0, 12]),
        ("foreign/table-610-lost-gpu.txt", [None, None, None]),
    ],
)
def test_uncorrected_errors(name: str, counts: list[int | None]) -> None:
    assert [row.uncorrected for row in facts(name)[GpuEcc].rows] == counts


def test_error_words_are_gaps() -> None:
    found = facts("foreign/q-375-unknown-error.txt")
    assert found[Gpus].gpus[0].name == "unknown GPU"
    assert found[Gpus].gaps == ("GPU 0: Name: Unknown Error",)
    assert found[GpuMemory].rows == ()
    assert found[GpuMemory].gaps == ("GPU 0: memory: Unknown Error",)


def test_a_gpu_that_does_not_answer() -> None:
    found = facts("foreign/table-610-lost-gpu.txt")
    assert isinstance(found[Gpus], Missing)
    assert "0000:34:00.0: Unknown Error" in found[Gpus].reason
    assert [row.index for row in found[GpuMemory].rows] == [0, 2, 3]
    assert [(p.gpu, p.name) for p in found[GpuProcesses].processes] == [
        (0, "VLLM::Worker_TP1"),
        (2, "VLLM::Worker_TP0"),
    ]


def test_only_what_was_asked_for() -> None:
    assert set(facts("foreign/q-610-temperature.txt")) == {Driver}
    assert set(facts("foreign/q-580-memory-head.txt")) == {
        Driver,
        GpuMemory,
        GpuComputeModes,
    }
    assert memory("foreign/q-580-memory-head.txt") == [(0, 40960, 40440, 0, 40440)]


def test_sixteen_gpus(tmp_path: Path) -> None:
    text = (CAPTURES / "h200/nvidia-smi-q.txt").read_text()
    head, _, body = text.partition("GPU 00000000:00:06.0")
    blocks = [f"GPU 00000000:{n:02X}:00.0{body}" for n in range(16)]
    path = tmp_path / "many.txt"
    path.write_text(head.replace(": 1\n", ": 16\n") + "".join(blocks))
    found = dict(facts_of(str(path)))
    assert found[Gpus].gpus[15].bus_id == "0000:0f:00.0"  # type: ignore[attr-defined]
    assert len(found[GpuMemory].rows) == 16  # type: ignore[attr-defined]
    path.write_text(text.replace(": 1\n", ": 16\n", 1))
    missing = dict(facts_of(str(path)))[GpuMemory]
    assert isinstance(missing, Missing)
    assert missing.reason.startswith("the file holds 1 of 16 attached GPUs")


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0)),
        ("NVIDIA GH200 480GB", (9, 0)),
        ("NVIDIA B200", (10, 0)),
        ("NVIDIA B300 SXM6 AC", (10, 3)),
        ("NVIDIA A100-SXM4-80GB", (8, 0)),
        ("A100-PCIE-40GB", (8, 0)),
        ("NVIDIA A10G", (8, 6)),
        ("Tesla V100S-PCIE-32GB", (7, 0)),
        ("NVIDIA L40S", (8, 9)),
        ("NVIDIA GeForce RTX 5090", (12, 0)),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9)),
        ("Quadro RTX 6000", (7, 5)),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", (12, 0)),
        ("NVIDIA GeForce RTX 2050 Laptop GPU", None),  # of the next generation: GA107
        ("NVIDIA RTX 6000", None),  # three generations are called so
        ("NVIDIA A100-SXM...", None),
        ("GRID A100-10C", None),
        ("NVIDIA A1000", None),
        ("", None),
    ],
)
def test_capability_by_name(name: str, capability: tuple[int, int] | None) -> None:
    assert capability_of(name) == capability
