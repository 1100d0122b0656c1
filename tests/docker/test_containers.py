"""`infer-doctor check` in real containers: each with one thing wrong, and nothing else is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from docker_daemon import Docker

pytestmark = pytest.mark.docker

AREAS = ("container-", "host-", "cache-")
GPU = "0000:00:06.0"


def findings(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The findings of this area by check; no check may have more than one here."""
    rows = [f for result in report["results"] for f in result["findings"]]
    # The kernel's log is the host's: it tells of processes killed before this container was.
    mine = [
        row for row in rows if row["check"].startswith(AREAS) and row["check"] != "host-oom-killed"
    ]
    assert len({row["check"] for row in mine}) == len(mine)
    return {row["check"]: row for row in mine}


def undecided(report: dict[str, Any]) -> list[str]:
    """What was blocked or crashed of this area."""
    rows = [r for r in report["results"] if r["check"].startswith(AREAS)]
    return [r["check"] for r in rows if r["outcome"] in ("blocked", "crashed")]


@pytest.fixture(scope="module")
def healthy(docker: Docker) -> dict[str, Any]:
    return docker.check(
        "--shm-size=1g", "--ulimit", "nofile=4096:4096", launch="vllm serve m -tp 2"
    )


def test_a_healthy_container(healthy: dict[str, Any]) -> None:
    assert findings(healthy) == {}
    assert undecided(healthy) in ([], ["host-oom-killed"])  # as far as the kernel's log is readable
    assert healthy["target"]["host"]["container"] == "docker"


def test_default_shared_memory(docker: Docker) -> None:
    found = findings(docker.check(launch="vllm serve m -tp 2"))
    assert list(found) == ["container-shm-small"]
    assert found["container-shm-small"]["message"].startswith("/dev/shm has 64 MiB of 64 MiB free")


def test_shared_memory_that_is_used_up(docker: Docker) -> None:
    found = findings(
        docker.check(
            "--shm-size=512m",
            launch="vllm serve m -tp 2",
            before="head -c 400m /dev/zero >/dev/shm/x",
        )
    )
    assert found["container-shm-small"]["message"].startswith("/dev/shm has 112 MiB of 512 MiB")


def test_few_open_files(docker: Docker) -> None:
    found = findings(docker.check("--ulimit", "nofile=1024:1024"))
    assert list(found) == ["host-nofile-low"]


def test_memory_limit(docker: Docker) -> None:
    found = findings(docker.check("--memory=2g"))
    assert list(found) == ["host-memory-low"]
    assert found["host-memory-low"]["message"].startswith("2.0 GiB of memory is the limit")
    assert found["host-memory-low"]["severity"] == "warning"


def test_memory_limit_that_is_enough(docker: Docker) -> None:
    assert findings(docker.check("--memory=8g", launch="vllm serve m")) == {}


def test_full_cache(docker: Docker) -> None:
    report = docker.check(
        "--tmpfs", "/cache:size=1m", "-e", "HF_HOME=/cache", before="head -c 2m /dev/zero >/cache/x"
    )
    found = findings(report)
    assert list(found) == ["cache-disk-low"]
    assert (found["cache-disk-low"]["severity"], report["verdict"]) == ("error", "fail")
    assert found["cache-disk-low"]["message"].startswith("/cache (tmpfs) has 0 MiB of 1 MiB free")


def test_no_inodes(docker: Docker) -> None:
    before = "touch /cache/1 /cache/2 /cache/3 /cache/4 /cache/5 /cache/6 /cache/7 /cache/8"
    options = ("--tmpfs", "/cache:nr_inodes=8", "-e", "VLLM_CACHE_ROOT=/cache")
    found = findings(docker.check(*options, before=before))
    assert list(found) == ["cache-disk-low"]
    assert "0 of 8 inodes free" in found["cache-disk-low"]["message"]


def test_read_only_cache(docker: Docker, tmp_path: Path) -> None:
    mount = ("-v", f"{tmp_path}:/root/.cache:ro")
    found = findings(docker.check(*mount))
    assert list(found) == ["cache-not-writable"]
    assert found["cache-not-writable"]["message"].endswith("is mounted read-only")
    moved = (
        "-e",
        "VLLM_CACHE_ROOT=/v",
        "-e",
        "FLASHINFER_WORKSPACE_BASE=/f",
        "-e",
        "HF_HUB_OFFLINE=1",
    )
    assert findings(docker.check(*mount, *moved)) == {}


def test_a_user_that_the_image_does_not_know(docker: Docker) -> None:
    found = findings(docker.check("--user", "12345", "-e", "HOME=/", launch="vllm serve m"))
    assert list(found) == ["cache-not-writable"]
    assert found["cache-not-writable"]["severity"] == "error"
    assert "user id 12345" in found["cache-not-writable"]["message"]


def play_gpu(folder: Path) -> tuple[str, ...]:
    """Options for a container whose bus and kernel show an H200 with its driver."""
    device = folder / "devices" / GPU
    device.mkdir(parents=True)
    for name, value in {"vendor": "0x10de", "class": "0x030200", "device": "0x2335"}.items():
        (device / name).write_text(f"{value}\n")
    (folder / "drivers" / "nvidia").mkdir(parents=True)
    os.symlink("../../drivers/nvidia", device / "driver")
    return (
        "--cap-add=SYS_ADMIN",
        "--security-opt=apparmor=unconfined",
        "-v",
        f"{folder}:/sys/bus/pci",
    )


VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
LOADED = (
    "mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && "
    f"echo '{VERSION}' >/proc/driver/nvidia/version"
)
NODES = "touch /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm"


@pytest.mark.parametrize("nodes", [":", "touch /dev/nvidiactl /dev/nvidia-uvm"])
def test_a_container_without_gpus(docker: Docker, tmp_path: Path, nodes: str) -> None:
    before = f"{LOADED}; {nodes}"
    report = docker.check(*play_gpu(tmp_path), "-e", "NVIDIA_VISIBLE_DEVICES=void", before=before)
    found = findings(report)
    assert list(found) == ["container-without-gpu"]
    assert report["counts"]["error"] == 1, report["primary"]
    assert found["container-without-gpu"]["message"].endswith("NVIDIA_VISIBLE_DEVICES=void")


def test_a_container_without_the_drivers_libraries(docker: Docker, tmp_path: Path) -> None:
    before = f"{LOADED}; {NODES}"
    options = (*play_gpu(tmp_path), "-e", "NVIDIA_DRIVER_CAPABILITIES=graphics")
    found = findings(docker.check(*options, before=before))
    assert list(found) == ["container-driver-capabilities"]
    assert found["container-driver-capabilities"]["confidence"] == "certain"


SEGMENT = (
    "from vllm.distributed.device_communicators.shm_broadcast import MessageQueue as Q; Q(1, 1)"
)
"""The queue that each rank makes for its answers."""


@pytest.mark.engine
def test_the_bound_is_that_of_a_real_vllm(docker: Docker) -> None:
    engine = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if engine is None:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder")
    python = f"{engine}/bin/python"
    base = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    mounts = [
        word for path in {engine, base} - {*docker.mounts} for word in ("-v", f"{path}:{path}:ro")
    ]
    for size, fits in (("239m", False), ("241m", True)):
        options = (f"--shm-size={size}", *mounts)
        start = docker.run(f"exec {python} -c '{SEGMENT}'", *options)
        assert (start.returncode == 0) == fits, start.stderr
        assert ("Insufficient space in /dev/shm" in start.stderr) != fits
        report = docker.check(*options, launch="vllm serve m -tp 2", python=python)
        found = findings(report).get("container-shm-small")
        assert (found is None) == fits
        assert found is None or found["severity"] == "error"
