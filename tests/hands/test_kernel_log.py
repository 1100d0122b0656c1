"""The kernel's log: which lines are taken along, on records of a real machine and on broken ones."""

from __future__ import annotations

import os

import pytest

from infer_doctor.hands import kernel_log
from infer_doctor.hands.kernel_log import LINES_LIMIT, LOG, keep

REAL = [
    b"5,0,0,-;Linux version 6.18.44 (builder@build) (gcc (GCC) 15.3.0) #1 SMP PREEMPT_DYNAMIC\n",
    b"6,1,0,-;Command line: console=ttyS0 quiet token=secret\n",
    b"4,365,636626,-;nvidia: loading out-of-tree module taints kernel.\n",
    b"6,366,729643,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 240\n",
    b"3,367,729652,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n",
    b"4,368,1335856,c;NVRM: FBHUB Interrupt detected. Clearing it.\n SUBSYSTEM=pci\n DEVICE=+pci\n",
]
"""Records of a machine with two H200, cut where they name it."""


def test_only_lines_of_the_driver_are_kept() -> None:
    assert keep(REAL) == {
        "first": 0.0,
        "lines": [
            (0.636626, "nvidia: loading out-of-tree module taints kernel."),
            (
                0.729643,
                "nvidia-nvlink: Nvlink Core is being initialized, major device number 240",
            ),
            (0.729652, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04"),
            (1.335856, "NVRM: FBHUB Interrupt detected. Clearing it."),
        ],
        "dropped": 0,
    }


@pytest.mark.parametrize(
    "text",
    [
        "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:01:00.0",
        "Out of memory: Killed process 4704 (VLLM::EngineCor) total-vm:1kB",
        "oom-kill:constraint=CONSTRAINT_MEMCG,task=python3,pid=4704,uid=0",
    ],
)
def test_lines_of_the_bus_and_of_lost_memory_are_kept(text: str) -> None:
    assert [line for _, line in keep([f"3,1,5,-;{text}\n".encode()])["lines"]] == [text]


def test_names_that_only_look_alike_are_left_out() -> None:
    assert keep([b"6,1,5,-;usb 1-1: Product: oxide\n", b"6,2,6,-;eth0: laser off\n"])["lines"] == []


@pytest.mark.parametrize(
    "record", [b"", b"\n", b";", b"6,1", b"6,1,x,-;NVRM: a\n", b"\xff\xfe;NVRM"]
)
def test_what_is_no_record_is_passed_over(record: bytes) -> None:
    assert keep([record]) == {"first": None, "lines": [], "dropped": 0}


def test_bytes_that_are_not_utf8_are_written_out() -> None:
    assert keep([b"6,1,5,-;NVRM: \xff\xc3\n"])["lines"] == [(5e-06, "NVRM: \\xff\\xc3")]


def test_the_last_lines_of_a_flood_are_kept() -> None:
    found = keep(f"3,{n},{n},-;NVRM: {n}\n".encode() for n in range(LINES_LIMIT + 5))
    assert found["dropped"] == 5
    assert found["lines"][-1][1] == f"NVRM: {LINES_LIMIT + 4}"
    assert len(found["lines"]) == LINES_LIMIT


def may_read() -> bool:
    try:
        os.close(os.open(LOG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not may_read(), reason=f"{LOG} may not be read here")
def test_the_log_of_this_machine_ends() -> None:
    found = kernel_log.kernel_log()
    assert found["now"] > 0
    assert all(seconds <= found["now"] for seconds, _ in found["lines"])
