"""Lines of the kernel log in every form that people have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.facts.kernel_log import LogLine, parse_kills, parse_line, parse_xids

CAPTURES = Path(__file__).parent.parent / "captures" / "kernel-log"


def lines(name: str) -> list[LogLine]:
    return [parse_line(line) for line in (CAPTURES / name).read_text().splitlines()]


def test_a_healthy_machine_has_no_xid() -> None:
    assert parse_xids(lines("h200.txt"), 100.0) == []


def test_every_form() -> None:
    events = parse_xids(lines("forms.txt"), None)
    assert [(event.address, event.code) for event in events] == [
        ("0000:01:00", 13),
        ("0000:2b:00", 31),
        ("0000:01:00", 38),
        ("0000:01:00", 43),
        ("0000:07:00", 48),
        ("0000:10:1c", 63),
        ("0000:c1:00", 74),
        ("0000:06:00", 79),
        ("0000:1b:00", 94),
        ("0000:01:00", 94),
        ("0004:01:00", 119),
        ("0000:5f:00", 145),
        ("0018:01:00", 149),
        ("0000:01:00", 154),
        ("0000:01:00", 31),
    ]
    assert [(event.pid, event.process) for event in events if event.pid] == [
        (1942, "llama-bench"),
        (1659, None),
        (1896, None),
        (12833, None),
        (7194, None),
        (430, "nv_queue"),
    ]


def test_the_age_comes_from_the_time_since_boot() -> None:
    (event,) = parse_xids(lines("aer-then-lost.txt"), 74_889.644138 + 180)
    assert event.address == "0000:02:00"
    assert event.age_s == pytest.approx(180)
    (event,) = parse_xids(lines("aer-then-lost.txt"), None)
    assert event.age_s is None


def test_a_gpu_that_was_lost_before_the_driver_came() -> None:
    (event,) = parse_xids(lines("lost-at-load.txt"), 2000.0)
    assert (event.address, event.code) == ("0000:b3:00", 79)
    assert event.before_load is False
    assert event.line.startswith("[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID")


def test_what_happened_before_the_driver_was_loaded_again_is_old() -> None:
    again = LogLine(seconds=200_000.0, text="NVRM: loading NVIDIA UNIX Open Kernel Module 580")
    xid = LogLine(seconds=100.0, text="NVRM: Xid (PCI:0000:06:00): 62, 0 0 0")
    new = LogLine(seconds=200_100.0, text="NVRM: Xid (PCI:0000:06:00): 31, pid=1")
    old, fresh = parse_xids([xid, again, new], 200_200.0)
    assert (old.before_load, fresh.before_load) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVRM: Xid",
        "NVRM: Xid (PCI:0000:01:00)",
        "NVRM: Xid (PCI:0000:01:00): ",
        "NVRM: Xid (PCI:0000:01:00): x, y",
        "NVRM: Xid (PCI:zz:01:00): 79, y",
        "NVRM: Xid (): 79",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46",
        "NVRM: GPU at PCI:0000:06:00: GPU-660d987e-5b28-3bf6-2a2d-1d5ecae7f6df",
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "\x00\xff NVRM: Xid (PCI:0000:01:0",
    ],
)
def test_what_is_no_xid(text: str) -> None:
    assert parse_xids([LogLine(seconds=None, text=text)], None) == []


def test_every_cut_of_a_line_is_read_or_left_out() -> None:
    for name in ("forms.txt", "aer-then-lost.txt", "lost-at-load.txt"):
        for line in lines(name):
            for end in range(len(line.text)):
                for event in parse_xids([LogLine(seconds=1.0, text=line.text[:end])], 2.0):
                    assert event.code <= 154


def test_killed_for_memory() -> None:
    texts = [
        "Out of memory: Killed process 4704 (VLLM::EngineCor) total-vm:98231460kB, "
        "anon-rss:64422400kB, file-rss:81920kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
        "Memory cgroup out of memory: Killed process 311 (python3) total-vm:1kB, anon-rss:2048kB",
        "Out of memory: Killed process 9 (a",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=311,uid=0",
    ]
    first, second = parse_kills([LogLine(seconds=10.0, text=text) for text in texts], 70.0)
    assert (first.pid, first.name, first.rss) == (4704, "VLLM::EngineCor", 64_422_400 * 1024)
    assert (first.group, first.age_s) == (False, 60.0)
    assert (second.pid, second.rss, second.group) == (311, 2_097_152, True)
