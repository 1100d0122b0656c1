"""The checks of how GPUs are connected."""

from __future__ import annotations

import pytest

from infer_doctor.checks.gpu_links import (
    fabric_incomplete,
    fabric_unhealthy,
    nvlink_down,
    pcie_narrow,
)
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, Gpus
from infer_doctor.facts.gpu_health import FabricRow, GpuFabric, GpuNvlinks, GpuPcie, PcieRow
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine


def gpus(*names: str) -> Gpus:
    found = tuple(
        Gpu(index=index, name=name, uuid=None, bus_id=f"0000:00:0{6 + index}.0")
        for index, name in enumerate(names)
    )
    return Gpus(gpus=found, source="NVML")


def row(
    index: int,
    width: int,
    generation: int = 5,
    *,
    widest: int = 16,
    state: int | None = 8,
    used: int | None = 0,
) -> PcieRow:
    return PcieRow(
        index=index,
        generation=generation,
        width=width,
        max_generation=5,
        max_width=widest,
        state=state,
        utilisation=used,
    )


def pcie(*rows: PcieRow) -> GpuPcie:
    return GpuPcie(rows=rows, source="NVML")


def bus(width: str, index: int = 0, speed: str = "32.0 GT/s PCIe") -> PciBus:
    device = PciDevice(
        address=f"0000:00:0{6 + index}.0",
        driver="nvidia",
        class_code="0x030200",
        device_id="0x2335",
        link=(speed, width, "32.0 GT/s PCIe", "16"),
    )
    return PciBus(devices=9, nvidia=(device,))


def test_pcie() -> None:
    contract(pcie_narrow, fires=[pcie(row(0, 4))], passes=[pcie(row(0, 16))])


@pytest.mark.parametrize(
    ("state", "used", "fires"),
    [
        (0, 90, True),
        (2, 1, True),
        (0, 0, False),
        (8, 90, False),
        (None, 90, False),
        (0, None, False),
    ],
)
def test_the_speed_counts_only_when_the_gpu_works(
    state: int | None, used: int | None, fires: bool
) -> None:
    result = examine(pcie_narrow, pcie(row(0, 16, 1, state=state, used=used)))
    assert (result.outcome == "failed") == fires
    if fires:
        assert result.findings[0].message == (
            f"GPU 0: PCIe 1.0 x16; it and its slot can 5.0 x16 (measured in P{state}, {used} % used)"
        )


@pytest.mark.parametrize(
    ("widths", "names", "severities"),
    [
        ((8,), ("A",), ["info"]),  # two slots that share sixteen lanes
        ((8, 8), ("A", "A"), ["info", "info"]),
        ((8, 16), ("A", "A"), ["warning"]),  # its twin has all lanes
        ((8, 16), ("A", "B"), ["info"]),
        ((4,), ("A",), ["warning"]),
        ((1, 1), ("A", "A"), ["warning", "warning"]),
        ((16, 16), ("A", "A"), []),
    ],
)
def test_half_of_the_lanes_on_all_is_how_a_board_is_wired(
    widths: tuple[int, ...], names: tuple[str, ...], severities: list[str]
) -> None:
    rows = pcie(*(row(index, width) for index, width in enumerate(widths)))
    found = examine(pcie_narrow, rows, gpus(*names)).findings
    assert [finding.severity for finding in found] == severities


def test_sysfs_has_to_agree() -> None:
    facts = pcie(row(0, 8)), gpus("A")
    agreed = examine(pcie_narrow, *facts, bus("8"))
    assert agreed.findings[0].evidence[1].excerpt == (
        "current link 32.0 GT/s PCIe x8, maximum of the GPU 32.0 GT/s PCIe x16"
    )
    assert "lspci -vv -s 0000:00:06.0" in agreed.findings[0].fixes[0].actions[0].text
    result = examine(pcie_narrow, *facts, bus("16"))
    assert (result.outcome, result.reason) == ("blocked", "GPU 0: NVML says x8, sysfs x16")
    assert examine(pcie_narrow, *facts, bus("N/A")).outcome == "failed"


@pytest.mark.parametrize(
    ("speed", "outcome"),
    [("8.0 GT/s PCIe", "failed"), ("32.0 GT/s PCIe", "blocked"), ("Unknown", "failed")],
)
def test_sysfs_has_to_agree_about_the_speed(speed: str, outcome: str) -> None:
    facts = pcie(row(0, 16, 3, state=0, used=97)), gpus("A"), bus("16", speed=speed)
    assert examine(pcie_narrow, *facts).outcome == outcome


def test_a_link_above_its_maximum_is_nonsense_of_a_virtual_machine() -> None:
    assert examine(pcie_narrow, pcie(row(0, 16, widest=1))).outcome == "passed"


def test_without_a_link_there_is_nothing_to_judge() -> None:
    assert examine(pcie_narrow, pcie()).outcome == "not_applicable"


def nvlinks(*up: int, of: int = 18) -> GpuNvlinks:
    links = {index: (True,) * count + (False,) * (of - count) for index, count in enumerate(up)}
    return GpuNvlinks(links=links, source="NVML")


def fabric(*rows: tuple[int, int], health: int = 0) -> GpuFabric:
    found = tuple(
        FabricRow(index=index, state=state, status=status, health=health)
        for index, (state, status) in enumerate(rows)
    )
    return GpuFabric(rows=found, source="NVML")


DONE = (3, 0)


def test_nvlink() -> None:
    contract(nvlink_down, fires=[nvlinks(18, 17)], passes=[nvlinks(18, 18)])


def test_a_link_that_another_has_is_down() -> None:
    (finding,) = examine(nvlink_down, nvlinks(18, 15), gpus("H", "H"), fabric(DONE, DONE)).findings
    assert finding.message == "GPU 1: 15 of 18 NVLinks up; others of its model have 18"
    assert (finding.severity, finding.confidence) == ("warning", "certain")
    assert finding.evidence[0].excerpt == "GPU 1: links down: 15, 16, 17"


def test_a_card_without_bridge_beside_a_pair_is_only_likely() -> None:
    (finding,) = examine(nvlink_down, nvlinks(4, 4, 0, of=4), gpus("A", "A", "A")).findings
    assert (finding.about, finding.confidence) == ("GPU 2", "likely")


def test_other_models_have_other_links() -> None:
    assert examine(nvlink_down, nvlinks(4, 0, of=4), gpus("A", "B")).outcome == "passed"


def test_the_same_part_on_all_is_a_note() -> None:
    (finding,) = examine(nvlink_down, nvlinks(4, 4, of=12), gpus("A", "A")).findings
    assert (finding.severity, finding.about) == ("info", "NVLink")
    assert finding.message.startswith("4 of 12 NVLinks up on GPU 0, 1")


@pytest.mark.parametrize("links", [nvlinks(0, 0), nvlinks(4, of=12), nvlinks(18)])
def test_nothing_connected_or_nobody_to_connect(links: GpuNvlinks) -> None:
    assert examine(nvlink_down, links).outcome == "passed"


def test_without_nvlink() -> None:
    assert examine(nvlink_down, GpuNvlinks(links={}, source="NVML")).outcome == "not_applicable"


def test_fabric() -> None:
    contract(fabric_incomplete, fires=[fabric((2, 0))], passes=[fabric(DONE, DONE)])
    contract(fabric_unhealthy, fires=[fabric(DONE, health=1)], passes=[fabric(DONE, health=2)])


def driver(version: str) -> Driver:
    return Driver(version=version, cuda=(13, 0), evidence=Evidence(source="NVML"))


def test_all_gpus_that_wait_are_one_finding() -> None:
    facts = fabric((2, 0), (2, 0), (1, 0), (3, 999)), driver("580.126.20")
    (finding,) = examine(fabric_incomplete, *facts).findings
    assert finding.message == (
        "GPU 0, 1, 2, 3: registration with the NVLink fabric is in progress, not started, completed "
        "with error 999; CUDA starts only when it is completed"
    )
    (fix,) = finding.fixes
    assert fix.title == "Start Fabric Manager 580.126.20"
    assert "apt-get install nvidia-fabricmanager-580=580.126.20-1" in [
        action.text for action in fix.actions
    ]


def test_blackwell_needs_the_subnet_manager_too() -> None:
    capabilities = GpuCapabilities(capabilities={0: (10, 0)}, source="NVML")
    (finding,) = examine(fabric_incomplete, fabric((1, 0)), capabilities).findings
    assert "and its subnet manager (nvlsm)" in finding.fixes[0].title


def test_without_a_fabric_there_is_nothing_to_judge() -> None:
    for check in (fabric_incomplete, fabric_unhealthy):
        assert examine(check, fabric()).outcome == "not_applicable"
        lost = GpuFabric(rows=(), source="NVML", gaps=("GPU 0: lost",))
        assert examine(check, lost).outcome == "blocked"


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0x1, "bandwidth is degraded"),
        (0x2, None),
        (0x10, "a route is unhealthy"),
        (0x11, "bandwidth is degraded, a route is unhealthy"),
        (0x500, "wrong configuration: too few NVLinks"),
        (0x8000, "the fabric manager is not connected"),
        (0x100, None),  # configuration: none wrong
        (0x51AA, None),  # every field says that all is well
    ],
)
def test_health_of_the_fabric(mask: int, words: str | None) -> None:
    result = examine(fabric_unhealthy, fabric(DONE, health=mask))
    found = [finding.message for finding in result.findings]
    assert found == ([f"GPU 0: the NVLink fabric reports: {words}"] if words else [])
