"""A real machine with two H200 that is broken: what was captured in, the errors of all checks of
driver, GPUs and CUDA out. One fault has to be one error, whatever else shows it too.

Eleven set-ups are real ones, broken or restricted.

They were made with mount name spaces, limits and variables around the real driver
580.159.04; only the older library is the real one with its version string changed. Captures that do
not differ from the healthy machine stand once, in `base`. It is seen as a bare machine: the mark of
the container was left out.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.checks import (
    cuda_init,
    driver,
    gpu,
    gpu_health,
    gpu_links,
    gpu_modes,
    kernel_log,
)
from infer_doctor.engine import Subject, run
from infer_doctor.facts.environment import Question
from infer_doctor.host import Capture, Host
from infer_doctor.launch.command import read as launch_of
from infer_doctor.model import CheckResult
from infer_doctor.registry import Registry

CAPTURED: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "captures" / "h200-x2" / "cuda-machines.json").read_text()
)
MODULES = (cuda_init, driver, gpu, gpu_health, gpu_links, gpu_modes, kernel_log)


Changes = dict[str, Any]


def results(rows: list[dict[str, Any]], *given: object) -> list[CheckResult]:
    known = Registry()
    known.add_package("infer_doctor.facts")
    for module in MODULES:
        known.add_module(module)
    captures = [Capture(**row) for row in rows]
    host = Host(captures)
    subject = Subject("host", known, host=host, given=[Question(python=None), *given])
    return run(known.checks.values(), subject)


def machine(name: str) -> list[dict[str, Any]]:
    return [*CAPTURED["base"], *CAPTURED["machines"].get(name, ())]


def found(rows: list[CheckResult], severity: str) -> dict[str, str]:
    assert [row for row in rows if row.outcome == "crashed"] == []
    findings = (finding for row in rows for finding in row.findings)
    return {f.check: f.message for f in findings if f.severity == severity}


def test_the_healthy_machine_has_no_finding_and_nothing_crashes() -> None:
    rows = results(machine("healthy"))
    assert [row for row in rows if row.findings or row.outcome == "crashed"] == []
    blocked = {row.check for row in rows if row.outcome == "blocked"}
    assert blocked <= {"gpu-memory-held", "driver-too-old", "driver-older-than-toolkit"}


@pytest.mark.parametrize(
    ("name", "check", "words"),
    [
        ("address-space", "cuda-init-failed", "the address space is limited to 7.6 GiB"),
        ("compat", "cuda-init-failed", "the compat library 580.95.05 is in use"),
        ("control-closed", "driver-not-answering", "this user may not open /dev/nvidiactl"),
        ("library-older", "driver-library-mismatch", "libcuda.so.1 is 580.105.08"),
        ("stub", "cuda-init-failed", "is for linking only"),
        ("uvm-closed", "cuda-init-failed", "this user may not open /dev/nvidia-uvm"),
        ("uvm-number", "cuda-init-failed", "device number 510, nvidia_uvm is 238"),
        ("variable-doubled", "gpu-visible-devices-wrong", "0 stands twice"),
        ("variable-out-of-range", "gpu-visible-devices-wrong", "7 names no GPU"),
    ],
)
def test_one_fault_is_one_error(name: str, check: str, words: str) -> None:
    errors = found(results(machine(name)), "error")
    assert list(errors) == [check]
    assert words in errors[check]


def test_a_closed_gpu_is_a_warning_and_not_lost() -> None:
    rows = results(machine("gpu-closed"))
    assert found(rows, "error") == {}
    assert found(rows, "warning") == {
        "cuda-gpus-missing": "CUDA offers 1 of 2 GPUs; this user may not open /dev/nvidia1"
    }


def test_a_user_without_rights_of_root_is_healthy() -> None:
    rows = results(machine("nobody"))
    assert found(rows, "error") == found(rows, "warning") == {}


def test_every_machine_is_tested() -> None:
    assert len(CAPTURED["machines"]) == 11


def broken(**changes: Any) -> list[dict[str, Any]]:
    """The healthy machine with other answers: `gpu0` and `gpu1` update what NVML says of a GPU, the
    rest replaces or updates the value of the operation of that name."""
    rows = copy.deepcopy(CAPTURED["base"])
    for row in rows:
        operation, value = row["operation"], row.get("value")
        if operation == "nvml" and "nvml" not in changes:
            for index in (0, 1):
                wanted = changes.get(f"gpu{index}", {})
                gpu = value["gpus"][index]
                value["gpus"][index] = wanted if "error" in wanted else gpu | wanted
        elif operation == "kernel_log":
            value["lines"] += [[20.0, line] for line in changes.get("log", ())]
        elif operation == "pci":
            value["nvidia"][0] |= changes.get("link", {})
            value["nvidia"][1] |= {"driver": None} if "gone" in changes else {}
        elif operation == "cuda" and "cuda" in changes:
            row["value"] = {"missing": [], "library": LIBRARY, "step": "the end"} | changes["cuda"]
        elif operation in changes:
            row["value"] = (value or {}) | changes[operation]
            row.pop("error", None)
    return rows


LIBRARY = "/usr/local/nvidia/lib64/libcuda.so.580.159.04"
UNKNOWN = {"error": "NVMLError_InvalidArgument: Invalid Argument"}
LOST = {"error": "NVMLError_GpuIsLost: GPU is lost"}
XID = "NVRM: Xid (PCI:0000:00:07): "


def fails(code: int, **more: Any) -> Changes:
    return {"code": code, "version": 13000, "end": None} | more


BROKEN: dict[str, tuple[str, Changes]] = {
    # huggingface_hub issue 4128: 802 on all multi-GPU H200 jobs
    "fabric manager not running": (
        "gpu-fabric-incomplete",
        {
            "gpu0": {"fabric": {"state": 2, "status": 0, "healthMask": 0}},
            "gpu1": {"fabric": {"state": 2, "status": 0, "healthMask": 0}},
            "cuda": fails(802),
        },
    ),
    "fabric registration failed": (
        "gpu-fabric-incomplete",
        {"gpu1": {"fabric": {"state": 3, "status": 999, "healthMask": 0}}, "cuda": fails(802)},
    ),
    # aws-deep-learning-ami-ubuntu-dcv-desktop issue 33: A100, whose NVML does not tell
    "fabric manager not installed, older GPU": (
        "cuda-init-failed",
        {
            "gpu0": {"fabric": {"error": "NVMLError_NotSupported: Not Supported"}},
            "gpu1": {"fabric": {"error": "NVMLError_NotSupported: Not Supported"}},
            "cuda": fails(802),
        },
    ),
    "memory row that could not be replaced": (
        "gpu-rows-failed",
        {"gpu1": {"RemappedRows": [0, 1, 0, 1]}},
    ),
    # sichek pull request 121, DCGM issue 263: all counters are zero, and CUDA says "busy"
    "reset required": ("gpu-reset-needed", {"gpu1": {"recovery_action": 1}}),
    "reboot required, CUDA fails": (
        "gpu-reset-needed",
        {"gpu1": {"recovery_action": 2}, "cuda": fails(999)},
    ),
    "uncorrected memory error with all its traces": (
        "gpu-ecc-uncorrected",
        {
            "gpu1": {
                "ecc_uncorrected_volatile": 1,
                "RemappedRows": [0, 1, 1, 0],
                "recovery_action": 1,
            },
            "log": [
                XID + "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error",
                XID + "63, pid=1896, Row Remapper: New row marked for remapping",
                XID
                + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            ],
            "cuda": fails(999),
        },
    ),
    "GPU fallen off the bus": (
        "gpu-fewer-than-bus",
        {
            "gpu1": LOST,
            "log": [
                XID + "79, GPU has fallen off the bus.",
                XID
                + "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            ],
            "cuda": fails(0, count=1),
        },
    ),
    "GPU fallen off the bus, CUDA fails": (
        "gpu-fewer-than-bus",
        {"gpu1": LOST, "log": [XID + "79, GPU has fallen off the bus."], "cuda": fails(999)},
    ),
    # NVSentinel issue 155
    "GPU lost before the driver was loaded": (
        "gpu-xid-logged",
        {
            "nvml": {"gpus": CAPTURED["base"][3]["value"]["gpus"][:1]},
            "gone": True,
            "log": [
                "NVRM: The NVIDIA GPU 0000:00:07.0\\x0aNVRM: (PCI ID: 10de:2335) installed in this "
                "system has\\x0aNVRM: fallen off the bus and is not responding to commands."
            ],
            "cuda": fails(0, count=1),
        },
    ),
    "system processor hangs, older driver": (
        "gpu-xid-logged",
        {
            "gpu0": {"recovery_action": UNKNOWN},
            "gpu1": {"recovery_action": UNKNOWN},
            "log": [XID + "119, pid=430, name=nv_queue, Timeout waiting for RPC from GSP!"],
            "cuda": fails(999),
        },
    ),
    "compute mode prohibited": ("gpu-compute-mode", {"gpu0": {"ComputeMode": 2}}),
    "MIG without instances": (
        "gpu-mig-empty",
        {
            "gpu0": {"MigMode": [1, 1], "mig": []},
            "gpu1": {"MigMode": [1, 1], "mig": []},
            "cuda": fails(100),
        },
    ),
    "driver updated without a reboot": (
        "driver-library-mismatch",
        {
            "nvml": {"error": {"code": 18, "message": "NVMLError_LibRmVersionMismatch: mismatch"}},
            "cuda": fails(803),
        },
    ),
    # a container after `systemctl daemon-reload`: nvidia-container-toolkit issue 48
    "devices taken away": (
        "driver-not-answering",
        {
            "nvml": {"error": {"code": 999, "message": "NVMLError_Unknown: Unknown Error"}},
            "cuda": fails(100),
        },
    ),
    "no room for heterogeneous memory": (
        "cuda-init-failed",
        {
            "log": [
                "nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] "
                "request_free_mem_region() err -34"
            ],
            "cuda": fails(999),
        },
    ),
    "MPS daemon gone": ("cuda-init-failed", {"cuda": fails(805)}),
    "libcuda crashes": (
        "cuda-init-failed",
        {"cuda": {"step": "cuInit", "end": "signal 11"}},
    ),
    "one GPU that CUDA leaves out": ("cuda-gpus-missing", {"cuda": fails(0, count=1)}),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_one_fault_is_one_error_whatever_else_shows_it(fault: str) -> None:
    check, changes = BROKEN[fault]
    assert list(found(results(broken(**changes)), "error")) == [check]


def test_two_ranks_on_instances() -> None:
    memory = {"total": 18_790_481_920, "free": 1, "used": 1}
    mig = {
        "MigMode": [1, 1],
        "mig": [{"Name": "NVIDIA H200 MIG 1g.18gb", "UUID": "MIG-1", "MemoryInfo": memory}],
    }
    rows = broken(gpu0=mig, gpu1=mig, cuda=fails(0, count=1))
    launch = launch_of(["vllm", "serve", "m", "-tp", "2"])
    assert list(found(results(rows, launch), "error")) == ["gpu-mig-split"]
    assert found(results(rows), "error") == {}


@pytest.mark.parametrize(
    ("changes", "warnings"),
    [
        ({"gpu0": {"CurrentClocksThrottleReasons": 0x48}}, ["gpu-throttled"]),
        (
            {"gpu0": {"CurrPcieLinkWidth": 4}, "link": {"current_link_width": "4"}},
            ["gpu-pcie-narrow"],
        ),
        ({"gpu0": {"CurrPcieLinkWidth": 4}}, []),  # sysfs says 16
        ({"gpu0": {"nvlink": [1] * 17 + [0]}}, ["gpu-nvlink-down"]),
        ({"gpu0": {"RemappedRows": [0, 1, 1, 0]}}, ["gpu-rows-pending"]),
        ({"gpu0": {"recovery_action": 4}}, ["gpu-reset-needed"]),
        ({"gpu0": {"MigMode": [0, 1]}}, ["gpu-mig-pending"]),
        ({"gpu0": {"Name": "NVIDIA L4"}}, ["gpu-models-mixed"]),
        ({"log": [XID + "94, pid=7194, Contained: CE User Channel (0x9)."]}, ["gpu-xid-logged"]),
        ({"log": [XID + "31, pid=1942, name=python3, MMU Fault"]}, []),
        ({"gpu0": {"CurrPcieLinkGeneration": 1, "PowerState": 8}}, []),
        ({"gpu0": {"ComputeMode": 3}}, []),
    ],
)
def test_what_is_slow_or_fragile_is_no_error(changes: Changes, warnings: list[str]) -> None:
    rows = results(broken(**changes))
    assert found(rows, "error") == {}
    assert list(found(rows, "warning")) == warnings
