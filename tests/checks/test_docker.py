"""Checks of what Docker says of a container and an image."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from infer_doctor.checks.docker import (
    driver_capabilities,
    ended_badly,
    image_architecture,
    image_secret,
    out_of_memory,
    restart_loop,
    unhealthy,
)
from infer_doctor.facts.docker import DockerContainer, DockerImage, container_of, wants_gpus
from infer_doctor.testing import contract, examine

HEALTHY = DockerContainer(
    name="llm",
    image="vllm/vllm-openai:v0.26.0",
    status="running",
    exit_code=0,
    oom_killed=False,
    error="",
    restarts=0,
    restart_policy="on-failure",
    health="healthy",
    health_output="",
    memory_limit=64 << 30,
    shm_size=16 << 30,
    wants_gpus=True,
    runtime="nvidia",
    variables={"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
    log=("INFO started", "RuntimeError: it broke", ""),
)
IMAGE = DockerImage(name="org/llm:1", machine="amd64", daemon="x86_64", variables={"PATH": "/bin"})


def but(**changes: Any) -> DockerContainer:
    return dataclasses.replace(HEALTHY, **changes)


ENDED = but(status="exited", exit_code=1, health=None)


def test_contracts() -> None:
    killed = but(status="exited", exit_code=137, oom_killed=True)
    contract(out_of_memory, fires=[killed], passes=[HEALTHY])
    again = but(status="restarting", restarts=3, exit_code=1, health=None)
    contract(restart_loop, fires=[again], passes=[HEALTHY])
    contract(ended_badly, fires=[ENDED], passes=[HEALTHY])
    refused = but(health="unhealthy", health_output="connection refused")
    contract(unhealthy, fires=[refused], passes=[HEALTHY])
    graphics = but(variables={"NVIDIA_DRIVER_CAPABILITIES": "graphics"})
    contract(driver_capabilities, fires=[graphics], passes=[HEALTHY])
    arm = dataclasses.replace(IMAGE, machine="arm64")
    contract(image_architecture, fires=[arm], passes=[IMAGE])
    secret = dataclasses.replace(IMAGE, variables={"HF_TOKEN": "hf-secret-1"})
    contract(image_secret, fires=[secret], passes=[IMAGE])


@pytest.mark.parametrize(
    ("code", "words", "category"),
    [
        (1, "ended itself", "container"),
        (127, "not in the image", "container"),
        (132, "SIGILL", "arch_no_kernel"),
        (135, "/dev/shm", "nccl_shm"),
        (137, "SIGKILL", "host_ram"),
        (139, "SIGSEGV", "abi_symbol"),
        (138, "signal 10", "container"),
    ],
)
def test_exit_codes(code: int, words: str, category: str) -> None:
    (finding,) = examine(ended_badly, but(status="exited", exit_code=code)).findings
    assert words in finding.message
    assert finding.category == category
    assert finding.evidence[-1].excerpt == "RuntimeError: it broke"


@pytest.mark.parametrize("code", [0, 130, 143])
def test_orderly_ends_are_no_findings(code: int) -> None:
    assert examine(ended_badly, but(status="exited", exit_code=code)).outcome == "passed"


def test_a_kill_for_memory_is_one_finding() -> None:
    killed = but(status="exited", exit_code=137, oom_killed=True)
    assert examine(ended_badly, killed).outcome == "passed"
    (finding,) = examine(out_of_memory, killed).findings
    assert "its limit of 64.0 GiB" in finding.message


def test_the_daemons_reason_stands_first() -> None:
    error = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    (finding,) = examine(ended_badly, but(status="created", error=error)).findings
    assert error in finding.message


def test_a_healthy_container_may_have_been_restarted() -> None:
    assert examine(restart_loop, but(restarts=9)).outcome == "passed"
    assert examine(restart_loop, but(restarts=9, health=None)).outcome == "failed"


def test_capabilities_matter_only_with_gpus() -> None:
    without = but(wants_gpus=False, variables={"NVIDIA_DRIVER_CAPABILITIES": "graphics"})
    assert examine(driver_capabilities, without).outcome == "not_applicable"
    unset = but(variables={})
    assert examine(driver_capabilities, unset).outcome == "passed"


@pytest.mark.parametrize(
    ("variable", "value", "fires"),
    [
        ("HF_TOKEN", "$HF_TOKEN", False),
        ("HF_TOKEN_PATH", "/run/token", False),
        ("VLLM_API_KEY", "", False),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=13.0", False),
        ("VLLM_API_KEY", "correct-horse", True),
    ],
)
def test_secrets_of_images(variable: str, value: str, fires: bool) -> None:
    image = dataclasses.replace(IMAGE, variables={variable: value})
    result = examine(image_secret, image)
    assert (result.outcome == "failed") is fires
    assert "correct-horse" not in repr(result)


def test_an_unknown_processor_is_not_judged() -> None:
    image = dataclasses.replace(IMAGE, daemon="riscv64")
    assert examine(image_architecture, image).outcome == "not_applicable"


@pytest.mark.parametrize("field", ["daemon", "machine"])
def test_a_processor_that_is_not_told_is_undecided(field: str) -> None:
    image = dataclasses.replace(IMAGE, **{field: ""})
    assert examine(image_architecture, image).outcome == "blocked"


@pytest.mark.parametrize(
    ("host", "wants"),
    [
        ({}, False),
        ({"Runtime": "runc", "DeviceRequests": None, "Devices": []}, False),
        ({"Runtime": "nvidia"}, True),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}]}, True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}]}, True),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0"}]}, True),
        ({"Devices": [{"PathOnHost": "/dev/fuse"}]}, False),
    ],
)
def test_what_asks_for_gpus(host: dict[str, Any], wants: bool) -> None:
    assert wants_gpus(host) is wants


def test_an_answer_without_its_parts() -> None:
    found = container_of({}, [], [])
    assert (found.name, found.status, found.exit_code) == ("", "", 0)
