"""Which control group limits this process, on the forms that /proc really has."""

from __future__ import annotations

from pathlib import Path

import pytest

from infer_doctor.hands import cgroup
from infer_doctor.hands.files import unescape

HOST = "/system.slice/docker-4f.scope"


@pytest.mark.parametrize(
    ("path", "root", "inside"),
    [
        ("/", "/", ""),  # a container with its own cgroup name space
        (HOST, "/", HOST),  # the host, or a container that shares its name space
        ("/docker/4f", "/docker/4f", ""),  # version 1 in Docker: only its own group is mounted
        ("/docker/4f/engine", "/docker/4f", "/engine"),
        ("/docker/4f0", "/docker/4f", ""),  # another group whose name begins alike
        ("/other", "/docker/4f", ""),
        ("/../../user.slice", "/", ""),  # seen from a name space further down
    ],
)
def test_the_path_inside_the_mount(path: str, root: str, inside: str) -> None:
    assert cgroup._below(path, root) == inside


def test_groups_up_to_the_mount(tmp_path: Path) -> None:
    inner = tmp_path / "kubepods" / "pod"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("4294967296\n")
    (inner.parent / "memory.max").write_text("max\n")
    rows = cgroup._groups(str(tmp_path), "/kubepods/pod", ("memory.max",))
    assert [(row["folder"], row["files"]["memory.max"]) for row in rows] == [
        (str(inner), "4294967296"),
        (str(inner.parent), "max"),
        (str(tmp_path), None),
    ]


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate", 2),
        ("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory", 1),
        ("32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct", None),
        ("1 0 8:1 / / rw - ext4 /dev/sda1 rw", None),
        ("cut", None),
        ("", None),
    ],
)
def test_mounts_of_the_memory_controller(line: str, version: int | None) -> None:
    found = cgroup._mount(line)
    assert (found and found["version"]) == version


def test_mountinfo_writes_spaces_in_octal() -> None:
    assert unescape(r"/mnt/my\040disk\134x") == r"/mnt/my disk\x"
