"""The checks of GPUs that are ill or held back, and the facts behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.checks.gpu_health import (
    pages_pending,
    reset_needed,
    rows_failed,
    rows_pending,
    throttled,
)
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.gpu import EccRow, GpuEcc, NvmlReading
from infer_doctor.facts.gpu_health import (
    ClockRow,
    GpuClocks,
    GpuRecovery,
    GpuRemaps,
    GpuRetiredPages,
    RemapRow,
    gpu_clocks,
    gpu_compute_modes,
    gpu_fabric,
    gpu_mig,
    gpu_nvlinks,
    gpu_pcie,
    gpu_recovery,
    gpu_remaps,
    gpu_retired_pages,
)
from infer_doctor.testing import contract, examine

CAPTURES = Path(__file__).parent.parent / "captures"


def reading(machine: str, **changes: Any) -> NvmlReading:
    """A captured machine with some answers of its first GPU changed."""
    found = json.loads((CAPTURES / machine / "nvml.json").read_text())
    found["gpus"][0] |= changes
    return NvmlReading(driver=found["driver"], cuda_driver=13000, gpus=tuple(found["gpus"]))


def remaps(
    corrected: int = 0, uncorrected: int = 0, *, pending: bool = False, failed: bool = False
) -> GpuRemaps:
    row = RemapRow(
        index=0, corrected=corrected, uncorrected=uncorrected, pending=pending, failed=failed
    )
    return GpuRemaps(rows=(row,), source="NVML")


def clocks(reasons: int, temperature: int | None = None, bound: int | None = None) -> GpuClocks:
    row = ClockRow(index=0, reasons=reasons, temperature=temperature, slowdown_at=bound)
    return GpuClocks(rows=(row,), source="NVML")


def recovery(action: int) -> GpuRecovery:
    return GpuRecovery(actions={0: action}, source="NVML")


def test_rows() -> None:
    contract(rows_pending, fires=[remaps(pending=True)], passes=[remaps(3, 1)])
    contract(rows_failed, fires=[remaps(failed=True)], passes=[remaps(3, 1, pending=True)])


def test_pending_rows_leave_the_gpu_usable() -> None:
    (finding,) = examine(rows_pending, remaps(0, 1, pending=True)).findings
    assert finding.severity == "warning"
    assert finding.message == (
        "GPU 0: a faulty memory row waits for the next reset to be replaced; 1 row replaced after "
        "uncorrectable and 0 after correctable errors so far"
    )
    assert finding.fixes[0].actions[0].text == "nvidia-smi --gpu-reset -i 0"


def test_a_failed_row_is_no_matter_of_software() -> None:
    (finding,) = examine(rows_failed, remaps(2, 512, failed=True)).findings
    assert finding.severity == "error"
    assert [fix.id for fix in finding.fixes] == ["diagnose-gpu-0"]


@pytest.mark.parametrize("check", [rows_pending, rows_failed])
def test_gpus_without_remapping_have_nothing_to_judge(check: Any) -> None:
    assert examine(check, GpuRemaps(rows=(), source="NVML")).outcome == "not_applicable"
    lost = GpuRemaps(rows=(), source="NVML", gaps=("GPU 0: lost",))
    assert examine(check, lost).outcome == "blocked"


def test_pages() -> None:
    contract(
        pages_pending,
        fires=[GpuRetiredPages(pending={0: False, 1: True}, source="NVML")],
        passes=[GpuRetiredPages(pending={0: False}, source="NVML")],
    )
    assert examine(pages_pending, GpuRetiredPages(pending={}, source="NVML")).outcome == (
        "not_applicable"
    )


def test_reset() -> None:
    contract(reset_needed, fires=[recovery(1)], passes=[recovery(0)])


@pytest.mark.parametrize(
    ("action", "severity", "fix", "words"),
    [
        (1, "error", "reset-gpu-0", "GPU reset required"),
        (2, "error", "reboot-host", "node reboot required"),
        (3, "warning", "drain-gpu-0", "drain peer-to-peer traffic"),
        (4, "warning", "drain-gpu-0", "drain and reset: it runs at reduced capacity"),
        (7, "error", "reboot-host", "system reboot required"),
        (99, "warning", "drain-gpu-0", "recovery action 99"),
    ],
)
def test_what_the_driver_asks_for(action: int, severity: str, fix: str, words: str) -> None:
    (finding,) = examine(reset_needed, recovery(action)).findings
    assert finding.severity == severity
    assert [found.id for found in finding.fixes] == [fix]
    assert finding.message == f"GPU 0: the driver says: {words}"


def test_a_memory_error_that_is_counted_is_one_error() -> None:
    ecc = GpuEcc(rows=(EccRow(index=0, uncorrected=1),), source="NVML")
    (finding,) = examine(reset_needed, recovery(1), ecc).findings
    assert finding.severity == "warning"


def test_a_gpu_that_the_engine_does_not_take_stops_nothing() -> None:
    other = ChosenGpus(indices=(1,))
    assert examine(reset_needed, recovery(1), other).findings[0].severity == "warning"
    assert examine(rows_failed, remaps(failed=True), other).findings[0].severity == "warning"


def test_old_drivers_do_not_tell() -> None:
    result = examine(reset_needed, GpuRecovery(actions={}, source="NVML"))
    assert (result.outcome, result.reason) == (
        "not_applicable",
        "this driver does not tell it (before 565)",
    )


IDLE, CAP, APPLICATION = 0x1, 0x4, 0x2


def test_throttled() -> None:
    contract(
        throttled,
        fires=[clocks(0x48, 91, 89)],
        passes=[clocks(IDLE | CAP | APPLICATION | 0x10 | 0x100)],
    )


@pytest.mark.parametrize(
    ("reasons", "words", "confidence", "fixes"),
    [
        # a card under full load in a hot rack, as nvidia-smi -q shows it (HW and thermal together)
        (0x48, "hardware thermal slowdown; 91 C, slowdown from 89 C", "certain", ["cool-gpu-0"]),
        (0x20, "software thermal slowdown; 91 C, slowdown from 89 C", "certain", ["cool-gpu-0"]),
        (0x88, "hardware power brake; 91 C", "certain", ["check-power-gpu-0"]),
        (0x08, "hardware slowdown; 91 C", "possible", ["cool-gpu-0", "check-power-gpu-0"]),
        (
            0xE8 | CAP,
            "hardware thermal slowdown, software thermal slowdown, hardware power brake; 91 C",
            "certain",
            ["cool-gpu-0", "check-power-gpu-0"],
        ),
    ],
)
def test_what_slows_it_down(reasons: int, words: str, confidence: str, fixes: list[str]) -> None:
    (finding,) = examine(throttled, clocks(reasons, 91, 89)).findings
    assert finding.message.startswith(f"GPU 0 is slowed down: {words}")
    assert finding.confidence == confidence
    assert finding.evidence[0].excerpt == f"GPU 0: clocks event reasons 0x{reasons:x}"
    assert [fix.id for fix in finding.fixes] == fixes


def test_without_a_temperature_none_is_told() -> None:
    (finding,) = examine(throttled, clocks(0x40)).findings
    assert finding.message == "GPU 0 is slowed down: hardware thermal slowdown"


class TestFacts:
    """Made out of readings of real machines, whole and broken."""

    @pytest.mark.parametrize("machine", ["h200", "h200-x2"])
    def test_of_healthy_machines(self, machine: str) -> None:
        found = reading(machine)
        every = range(len(found.gpus))
        assert [row.index for row in gpu_remaps(found).rows] == list(every)
        assert not any(row.pending or row.failed for row in gpu_remaps(found).rows)
        assert gpu_retired_pages(found).pending == {}
        assert {row.reasons for row in gpu_clocks(found).rows} == {IDLE}
        links = gpu_pcie(found).rows
        assert {(row.generation, row.width, row.max_width) for row in links} == {(5, 16, 16)}
        assert {(row.state, row.utilisation) for row in links} == {(0, 0)}
        assert set(gpu_compute_modes(found).modes.values()) == {0}
        assert not any(row.on for row in gpu_mig(found).rows)
        for make in (gpu_remaps, gpu_clocks, gpu_pcie, gpu_nvlinks, gpu_fabric, gpu_mig):
            assert make(found).gaps == ()  # type: ignore[operator]

    def test_nvlink_and_fabric_of_one_and_of_two(self) -> None:
        assert gpu_nvlinks(reading("h200")).links == {}
        assert gpu_fabric(reading("h200")).rows == ()
        assert gpu_nvlinks(reading("h200-x2")).links == {0: (True,) * 18, 1: (True,) * 18}
        rows = gpu_fabric(reading("h200-x2")).rows
        assert [(row.state, row.status, row.health) for row in rows] == [(3, 0, 0), (3, 0, 0)]

    def test_what_older_snapshots_do_not_hold_is_a_gap(self) -> None:
        assert gpu_recovery(reading("h200")).gaps == ("GPU 0: recovery_action: not read",)

    @pytest.mark.parametrize("words", ["NotSupported: Not Supported", "InvalidArgument: Invalid"])
    def test_old_drivers_do_not_know_the_recovery_action(self, words: str) -> None:
        found = gpu_recovery(reading("h200", recovery_action={"error": f"NVMLError_{words}"}))
        assert (found.actions, found.gaps) == ({}, ())

    @pytest.mark.parametrize(
        ("make", "name"),
        [
            (gpu_remaps, "RemappedRows"),
            (gpu_retired_pages, "RetiredPagesPendingStatus"),
            (gpu_recovery, "recovery_action"),
            (gpu_clocks, "CurrentClocksThrottleReasons"),
            (gpu_pcie, "MaxPcieLinkWidth"),
            (gpu_nvlinks, "nvlink"),
            (gpu_fabric, "fabric"),
            (gpu_compute_modes, "ComputeMode"),
            (gpu_mig, "MigMode"),
        ],
    )
    def test_an_error_is_a_gap_and_no_value(self, make: Any, name: str) -> None:
        error = {"error": "NVMLError_Unknown: Unknown Error"}
        found = make(reading("h200", **{name: error}))
        assert found.gaps == (f"GPU 0: {name}: NVMLError_Unknown: Unknown Error",)
        values = [value for key, value in vars(found).items() if key not in ("gaps", "source")]
        assert not any(values)

    def test_a_lost_gpu_is_a_gap(self) -> None:
        lost = NvmlReading(
            driver=None, cuda_driver=None, gpus=({"error": "NVMLError_GpuIsLost: GPU is lost"},)
        )
        assert gpu_remaps(lost).gaps == ("GPU 0: NVMLError_GpuIsLost: GPU is lost",)

    def test_a_link_that_fails_is_a_gap_and_the_others_count(self) -> None:
        error = {"error": "NVMLError_GpuIsLost: GPU is lost"}
        found = gpu_nvlinks(reading("h200-x2", nvlink=[1, 0, error, error]))
        assert found.links[0] == (True, False)
        assert found.gaps == ("GPU 0: NvLinkState: NVMLError_GpuIsLost: GPU is lost",)

    @pytest.mark.parametrize("name", ["CurrPcieLinkWidth", "MaxPcieLinkGeneration"])
    def test_a_link_of_zero_is_unknown(self, name: str) -> None:
        found = gpu_pcie(reading("h200", **{name: 0}))
        assert (found.rows, found.gaps) == ((), ())

    def test_instances(self) -> None:
        memory = {"total": 18_790_481_920, "free": 1, "used": 1}
        instance = {"Name": "NVIDIA H200 MIG 1g.18gb", "UUID": "MIG-1", "MemoryInfo": memory}
        broken = {"Name": {"error": "x"}, "UUID": {"error": "x"}, "MemoryInfo": {"error": "x"}}
        (row,) = gpu_mig(reading("h200", MigMode=[1, 1], mig=[instance, broken])).rows
        assert row.on and row.next_on and row.instances is not None
        assert [(i.name, i.uuid, i.total) for i in row.instances] == [
            ("NVIDIA H200 MIG 1g.18gb", "MIG-1", 18_790_481_920),
            ("MIG device", None, None),
        ]
        unread = gpu_mig(reading("h200", MigMode=[1, 1]))
        assert unread.rows[0].instances is None
        assert unread.gaps == ("GPU 0: mig: not read",)
