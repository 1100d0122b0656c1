"""The health of GPUs out of `nvidia-smi -q`: the same as NVML said on that machine, and faults."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.facts import gpu_health
from infer_doctor.facts.gpu import NvmlReading
from infer_doctor.facts.gpu_health import (
    GpuClocks,
    GpuComputeModes,
    GpuFabric,
    GpuMig,
    GpuPcie,
    GpuRecovery,
    GpuRemaps,
    GpuRetiredPages,
)
from infer_doctor.targets import facts_in

CAPTURES = Path(__file__).parent.parent / "captures"
IDLE = 0x1

KINDS: dict[type, Any] = {
    GpuRemaps: gpu_health.gpu_remaps,
    GpuRetiredPages: gpu_health.gpu_retired_pages,
    GpuPcie: gpu_health.gpu_pcie,
    GpuFabric: gpu_health.gpu_fabric,
    GpuComputeModes: gpu_health.gpu_compute_modes,
    GpuMig: gpu_health.gpu_mig,
}


def facts(text: str) -> dict[type, Any]:
    return dict(facts_in(text, "file"))


def whole(form: str, machine: str = "h200-x2") -> str:
    return (CAPTURES / machine / f"nvidia-smi-q.{form}").read_text()


@pytest.mark.parametrize("form", ["txt", "xml"])
@pytest.mark.parametrize("machine", ["h200", "h200-x2"])
def test_it_is_what_nvml_said(machine: str, form: str) -> None:
    raw = json.loads((CAPTURES / machine / "nvml.json").read_text())
    reading = NvmlReading(driver=None, cuda_driver=None, gpus=tuple(raw["gpus"]))
    found = facts(whole(form, machine))
    for kind, make in KINDS.items():
        assert found[kind] == replace(make(reading), source="file")
    assert found[GpuRecovery].actions == dict.fromkeys(range(len(raw["gpus"])), 0)
    by_nvml = gpu_health.gpu_clocks(reading)
    assert [(row.index, row.reasons) for row in found[GpuClocks].rows] == [
        (row.index, row.reasons & ~IDLE) for row in by_nvml.rows
    ]


FAULTS: list[tuple[type, str, str, str, Any]] = [
    # text, XML: what is replaced, with what; then how the fact of GPU 0 looks
    (
        GpuRemaps,
        "Remapping Failure Occurred                     : No|Yes",
        "<remapped_row_failure>No|Yes",
        "rows",
        lambda row: row.failed and not row.pending,
    ),
    (
        GpuRecovery,
        "GPU Recovery Action                                : None|Drain and Reset",
        "<gpu_recovery_action>None|Drain and Reset",
        "actions",
        lambda action: action == 4,
    ),
    (
        GpuClocks,
        "HW Thermal Slowdown                        : Not Active|Active",
        "<clocks_event_reason_hw_thermal_slowdown>Not Active|Active",
        "rows",
        lambda row: row.reasons == 0x40 and row.temperature == 35,
    ),
    (
        GpuPcie,
        "Current                                : 16x|4x",
        "<current_link_width>16x|4x",
        "rows",
        lambda row: (row.width, row.max_width) == (4, 16),
    ),
    (
        GpuFabric,
        "State                                          : Completed|In Progress",
        "<state>Completed|In Progress",
        "rows",
        lambda row: (row.state, row.status) == (2, 0),
    ),
    (
        GpuFabric,
        "Status                                         : Success|Insufficient Resources",
        "<status>Success|Insufficient Resources",
        "rows",
        lambda row: (row.state, row.status) == (3, 999),
    ),
    (
        GpuComputeModes,
        "Compute Mode                                       : Default|Exclusive_Process",
        "<compute_mode>Default|Exclusive_Process",
        "modes",
        lambda mode: mode == 3,
    ),
    (
        GpuMig,
        "Pending                                        : Disabled|Enabled",
        "<pending_mig>Disabled|Enabled",
        "rows",
        lambda row: not row.on and row.next_on,
    ),
]


@pytest.mark.parametrize("form", ["txt", "xml"])
@pytest.mark.parametrize(("kind", "text", "xml", "name", "holds"), FAULTS)
def test_a_fault(kind: type, text: str, xml: str, name: str, holds: Any, form: str) -> None:
    old, _, value = (text if form == "txt" else xml).partition("|")
    new = old[: old.rindex(":" if form == "txt" else ">") + 1] + (" " if form == "txt" else "")
    before = whole(form)
    assert old in before
    found = getattr(facts(before.replace(old, new + value, 1))[kind], name)
    assert holds(found[0])
    assert not holds(found[1])


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (
            "Compute Mode                                       : Default",
            "Compute Mode : Odd",
            GpuComputeModes,
        ),
        ("Current                                : 16x", "Current : [Unknown Error]", GpuPcie),
        (
            "HW Slowdown                                    : Not Active",
            "HW Slowdown : ERR!",
            GpuClocks,
        ),
        (
            "Remapping Failure Occurred                     : No",
            "Remapping Failure Occurred : ?",
            GpuRemaps,
        ),
    ],
)
def test_a_word_that_is_no_value_is_a_gap(old: str, new: str, kind: type) -> None:
    found = facts(whole("txt").replace(old, new, 1))[kind]
    (gap,) = found.gaps
    assert gap.startswith("GPU 0: ")


def test_older_drivers_say_throttle() -> None:
    for form, old, new in (
        ("txt", "Clocks Event Reasons  ", "Clocks Throttle Reasons  "),
        ("xml", "clocks_event_reason", "clocks_throttle_reason"),
    ):
        text = whole(form).replace("Clocks Event Reasons\n", "Clocks Throttle Reasons\n")
        text = text.replace(old, new).replace("Not Active", "Active")
        assert [row.reasons for row in facts(text)[GpuClocks].rows] == [0xE8, 0xE8]


def test_not_supported_is_nothing_to_judge() -> None:
    text = whole("txt", "h200")
    start = text.index("    Remapped Rows\n")
    end = text.index("    Temperature\n")
    old_gpu = (
        f"{text[:start]}    Remapped Rows                                      : N/A\n{text[end:]}"
    )
    found = facts(old_gpu)[GpuRemaps]
    assert (found.rows, found.gaps) == ((), ())


def test_what_no_gpu_has_in_the_file_gives_no_fact() -> None:
    found = facts((CAPTURES / "foreign/q-535-4090-processes.txt").read_text())
    assert GpuRemaps not in found
    assert found[GpuMig].rows == ()


@pytest.mark.parametrize("name", ["q-510-a100-mig.xml", "q-580-vgpu-host-mig.txt"])
def test_mig_devices_are_seen(name: str) -> None:
    row = facts((CAPTURES / "foreign" / name).read_text())[GpuMig].rows[0]
    assert row.on
    (instance,) = row.instances
    assert instance.total in (19968 << 20, 23680 << 20)


def test_no_mig_device_in_text_is_no_proof() -> None:
    text = whole("txt", "h200").replace(
        "Current                                        : Disabled", "Current : Enabled", 1
    )
    found = facts(text)[GpuMig]
    assert found.rows[0].instances is None
    assert found.gaps == ("GPU 0: mig: not read",)
    xml = whole("xml", "h200").replace("<current_mig>Disabled", "<current_mig>Enabled")
    assert facts(xml)[GpuMig].rows[0].instances == ()
