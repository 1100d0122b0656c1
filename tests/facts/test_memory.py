"""Host memory, control groups and /dev/shm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infer_doctor.facts.memory import (
    MemoryGroup,
    SharedMemory,
    host_memory,
    memory_groups,
    parse_group,
    parse_meminfo,
    shared_memory,
)
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host, Unavailable

CAPTURES = Path(__file__).parents[1] / "captures"
GIB = 1 << 30
UNLIMITED = "9223372036854771712"
"""Version 1 without a limit, on pages of 4 KiB."""


def asked(operation: str, value: dict[str, Any], **arguments: Any) -> Host:
    capture = Capture(
        operation=operation, arguments=arguments, version=VERSIONS[operation], value=value
    )
    return Host([capture])


@pytest.mark.parametrize(
    ("machine", "total", "available"),
    [("h200", 131_981_020, 131_425_428), ("h200-x2", 263_998_500, 263_311_008)],
)
def test_real_machines(machine: str, total: int, available: int) -> None:
    text = (CAPTURES / machine / "meminfo.txt").read_text()
    host = asked("read", {"text": text, "truncated": False}, path="/proc/meminfo", limit=1 << 20)
    memory = host_memory(host)
    assert (memory.total, memory.available) == (total * 1024, available * 1024)


def test_cut_after_every_line() -> None:
    lines = (CAPTURES / "h200" / "meminfo.txt").read_text().splitlines(keepends=True)
    for count in range(len(lines)):
        text = "".join(lines[:count])
        if count == 0:
            with pytest.raises(Unavailable, match="MemTotal"):
                parse_meminfo(text)
        else:
            memory = parse_meminfo(text)
            assert memory.total == 131_981_020 * 1024
            assert (memory.available is None) == (count < 3)


@pytest.mark.parametrize("broken", ["", "MemTotal: N/A\n", "MemTotal:   12 MB\n", "\\xff\\xfe"])
def test_what_is_no_meminfo(broken: str) -> None:
    with pytest.raises(Unavailable):
        parse_meminfo(broken)


def test_a_balloon_is_memory_that_may_come_back() -> None:
    memory = parse_meminfo(
        "MemTotal:        2097152 kB\nMemAvailable:    1048576 kB\nBalloon:        14680064 kB\n"
    )
    assert (memory.total, memory.available) == (16 * GIB, 15 * GIB)


def group(version: int, **files: str | None) -> MemoryGroup:
    return parse_group(
        "/g", {name.replace("__", "."): text for name, text in files.items()}, version
    )


def test_version_two() -> None:
    found = group(
        2,
        memory__max="4294967296",
        memory__high="max",
        memory__current="2147483648",
        memory__stat="anon 5\ninactive_file 1073741824\nactive_file 536870912\nfile_mapped 7",
    )
    assert (found.limit, found.used, found.cache) == (4 * GIB, 2 * GIB, 3 * GIB // 2)
    assert found.free == 4 * GIB - GIB // 2


def test_version_two_slows_down_at_high() -> None:
    found = group(2, memory__max="max", memory__high="4294967296", memory__current="0")
    assert found.limit == 4 * GIB


def test_version_one_sees_the_limits_above_its_name_space() -> None:
    found = group(
        1,
        memory__limit_in_bytes=UNLIMITED,
        memory__usage_in_bytes="1073741824",
        memory__stat=f"cache 3\nhierarchical_memory_limit {4 * GIB}\n"
        f"total_inactive_file {GIB // 2}\ninactive_file 1",
    )
    assert (found.limit, found.cache, found.free) == (4 * GIB, GIB // 2, 4 * GIB - GIB // 2)


@pytest.mark.parametrize("version", [1, 2])
def test_no_limit(version: int) -> None:
    found = group(version, memory__limit_in_bytes=UNLIMITED, memory__max="max", memory__current="5")
    assert found.limit is None
    assert found.free is None


def test_the_root_group_has_no_files() -> None:
    assert group(2, memory__max=None, memory__current=None, memory__stat=None).limit is None


def test_tightest_of_all_levels_and_gaps() -> None:
    def row(folder: str, limit: str) -> dict[str, Any]:
        return {"folder": folder, "files": {"memory.max": limit, "memory.current": "1"}}

    rows = [row("/a/b", "max"), row("/a", str(4 * GIB)), row("/", str(8 * GIB)), row("/odd", "?")]
    found = memory_groups(asked("cgroup", {"version": 2, "groups": rows}))
    assert found.tightest is not None
    assert (found.tightest.folder, found.tightest.limit) == ("/a", 4 * GIB)
    assert len(found.gaps) == 1
    assert found.gaps[0].startswith("/odd: ")


def test_without_a_controller_nothing_limits() -> None:
    found = memory_groups(asked("cgroup", {"version": 0, "groups": []}))
    assert found.tightest is None
    assert not found.gaps


def test_shared_memory() -> None:
    space = {"path": "/dev/shm", "total": 64 << 20, "free": 60 << 20}
    found = shared_memory(asked("space", space, path="/dev/shm"))
    assert found == SharedMemory(total=64 << 20, free=60 << 20)
    parent = {"path": "/dev", "total": 1, "free": 1}
    assert shared_memory(asked("space", parent, path="/dev/shm")).total is None
