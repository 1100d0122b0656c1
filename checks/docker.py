"""A container or image as its Docker daemon describes it."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.exit_codes import STOPPED, meaning
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.docker import DockerContainer, DockerImage
from infer_doctor.fixes.container import set_driver_capabilities
from infer_doctor.fixes.docker import more_memory, pull_for, secret_at_start, see_log, stop_restarts
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.secret_forms import is_secret, names_secret
from infer_doctor.units import gib, plural

LOOP = 3
"""Starts anew that are no accident: Docker doubles its pause from 100 ms up to a minute between them
(docs.docker.com/engine/containers/start-containers-automatically), so these took under a second."""

TAIL = 3
"""Lines of the log's end that are shown."""

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The kernel's name of an architecture -> that of images (OCI image specification, `GOARCH`)."""

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
NEEDED = ("compute", "utility")
"""compute brings libcuda.so.1, utility libnvidia-ml.so.1 (NVIDIA Container Toolkit)."""


def _state(container: DockerContainer) -> Evidence:
    killed = ", OOMKilled" if container.oom_killed else ""
    return Evidence(
        source=f"docker inspect {container.name}",
        excerpt=f"{container.status}, exit code {container.exit_code}{killed}, "
        f"{plural(container.restarts, 'restart')} ({container.restart_policy})",
    )


def _end_of_log(container: DockerContainer) -> Iterator[Evidence]:
    lines = [line.strip() for line in container.log if line.strip()]
    for line in lines[-TAIL:]:
        yield Evidence(source=f"docker logs {container.name}", excerpt=line)


@check("docker-out-of-memory", severity="error", category="host_ram", since="0.2")
def out_of_memory(container: DockerContainer) -> Iterator[Finding]:
    """The kernel killed the container for its memory limit.

    ## Why it matters
    The engine ends without a word in its log: SIGKILL leaves no time for one. Loading weights, a
    large page cache of pinned memory and CPU offload need host memory beside that of the GPU.

    ## How it decides
    State.OOMKilled of `docker inspect`: Docker sets it when the memory controller of this container
    killed a process of it. Exit code 137 without it is docker-ended-badly.

    ## Fix safety
    Manual: the container has to be made anew with another limit.
    """
    if not container.oom_killed:
        return
    limit = container.memory_limit
    bound = f"its limit of {gib(limit)}" if limit else "memory that the host had not"
    yield Finding(
        about=container.name,
        message=f"container {container.name} was killed for {bound} (OOMKilled, exit code "
        f"{container.exit_code})",
        evidence=(_state(container), *_end_of_log(container)),
        fixes=(more_memory(container.name, limit),),
    )


@check("docker-restart-loop", severity="error", category="container", since="0.2")
def restart_loop(container: DockerContainer) -> Iterator[Finding]:
    """The container ends and is started again and again.

    ## Why it matters
    Each start loads the weights anew and fails at the same place; the cause scrolls away, and the GPU
    memory of the start before may not be free yet.

    ## How it decides
    RestartCount of `docker inspect` is 3 or more (by hand it is not counted), and the container is not
    healthy: it is restarting, has ended, or runs without a health check that passes.

    ## Fix safety
    Manual: it decides about a running service.
    """
    if container.restarts < LOOP or container.health == "healthy":
        return
    words, _ = meaning(container.exit_code)
    last = f"; its last exit code is {container.exit_code}: {words}" if container.exit_code else ""
    yield Finding(
        about=container.name,
        message=f"container {container.name} was started again {container.restarts} times{last}",
        confidence="certain" if container.ended else "likely",
        evidence=(_state(container), *_end_of_log(container)),
        fixes=(stop_restarts(container.name),),
    )


@check("docker-ended-badly", severity="error", category="container", since="0.2")
def ended_badly(container: DockerContainer) -> Iterator[Finding]:
    """The container ended with an error, by a signal, or could not be started.

    ## Why it matters
    The exit code is often the only trace: 137 and 139 leave no line in the log.

    ## How it decides
    State.ExitCode of a container that has ended, but for 0, 130 and 143 (orderly ends); 137 with
    OOMKilled is docker-out-of-memory. What the code says: catalog/exit_codes.py, 125 to 127 as Docker
    documents them, 128+n as signal n. State.Error is the daemon's own reason. What the log itself tells
    is judged by the checks of logs.

    ## Fix safety
    Manual: it shows where to look.
    """
    if container.error:
        yield Finding(
            about=container.name,
            message=f"container {container.name} could not be started: {container.error}",
            evidence=(_state(container),),
        )
        return
    if not container.ended or container.exit_code in STOPPED or container.oom_killed:
        return
    words, category = meaning(container.exit_code)
    yield Finding(
        about=container.name,
        message=f"container {container.name} ended with exit code {container.exit_code}: {words}",
        confidence="likely",
        category=category,
        evidence=(_state(container), *_end_of_log(container)),
        fixes=(see_log(container.name),),
    )


@check("docker-unhealthy", severity="warning", category="server_unreachable", since="0.2")
def unhealthy(container: DockerContainer) -> Iterator[Finding]:
    """The health check of the container fails.

    ## Why it matters
    Compose starts no service that waits for it, and Swarm replaces it.

    ## How it decides
    State.Health.Status of `docker inspect` is "unhealthy"; the last probe's own words are shown.

    ## Fix safety
    Manual: what to do depends on the engine's log.
    """
    if container.health is None:
        raise NotApplicable("the container has no health check")
    if container.health != "unhealthy":
        return
    yield Finding(
        about=container.name,
        message=f"the health check of container {container.name} fails",
        evidence=(
            Evidence(
                source=f"docker inspect {container.name}",
                excerpt=container.health_output or "State.Health.Status: unhealthy",
            ),
            *_end_of_log(container),
        ),
        fixes=(see_log(container.name),),
    )


@check("docker-driver-capabilities", severity="error", category="container", since="0.2")
def driver_capabilities(container: DockerContainer) -> Iterator[Finding]:
    """The container asks for GPUs but not for the driver's libraries of CUDA or NVML.

    ## Why it matters
    Without `utility` there is no libnvidia-ml.so.1 and vLLM does not recognise the GPU; without
    `compute` there is no libcuda.so.1 and nothing computes.

    ## How it decides
    NVIDIA_DRIVER_CAPABILITIES of the container, the image's included, names neither "all" nor both;
    unset or empty is compute,utility (NVIDIA Container Toolkit). Only where GPUs are asked for.

    ## Fix safety
    Manual: the container has to be made anew.
    """
    if not container.wants_gpus:
        raise NotApplicable("the container asks for no NVIDIA GPU")
    value = container.variables.get(CAPABILITIES, "")
    have = {word.strip() for word in value.split(",") if word.strip()}
    lacks = [word for word in NEEDED if word not in have]
    if not have or "all" in have or not lacks:
        return
    yield Finding(
        about=CAPABILITIES,
        message=f"container {container.name} has {CAPABILITIES}={value}; {' and '.join(lacks)} "
        f"{'is' if len(lacks) == 1 else 'are'} needed",
        evidence=(
            Evidence(source=f"docker inspect {container.name}", excerpt=f"{CAPABILITIES}={value}"),
        ),
        fixes=(set_driver_capabilities("docker"),),
    )


@check("docker-image-architecture", severity="error", category="container", since="0.2")
def image_architecture(image: DockerImage) -> Iterator[Finding]:
    """The image was built for another processor than the daemon runs on.

    ## Why it matters
    The start fails with "exec format error", or, where an emulator is installed, takes hours: images
    for Grace machines are arm64, all others amd64.

    ## How it decides
    Architecture of the image against that of the daemon (`docker info`), x86_64 being amd64 and
    aarch64 arm64. Other processors are not judged.

    ## Fix safety
    Manual: another image has to be pulled.
    """
    expected = MACHINES.get(image.daemon)
    if not image.daemon or not image.machine:
        raise Unavailable("Docker does not tell the processor of the daemon or of the image")
    if expected is None:
        raise NotApplicable(f"the daemon runs on {image.daemon}")
    if image.machine == expected:
        return
    yield Finding(
        about=image.name,
        message=f"{image.name} is built for {image.machine}; the daemon runs on {expected}",
        evidence=(
            Evidence(source=f"docker image inspect {image.name}", excerpt=image.machine),
            Evidence(source="docker info", excerpt=image.daemon),
        ),
        fixes=(pull_for(image.name, expected),),
    )


@check("docker-image-secret", severity="warning", category="security", since="0.2")
def image_secret(image: DockerImage) -> Iterator[Finding]:
    """A secret is built into the image.

    ## Why it matters
    Whoever can pull the image can read its variables, in every layer's history too; deleting the
    variable in a later layer does not take it back.

    ## How it decides
    A variable of the image whose name says that its value is a secret (HF_TOKEN, VLLM_API_KEY and the
    like; not HF_TOKEN_PATH) has a value that is no reference and no path.

    ## Fix safety
    Manual: the secret has to be renewed and the image built without it.
    """
    for name, value in image.variables.items():
        if value and names_secret(name) and is_secret(value):
            yield Finding(
                about=name,
                message=f"{image.name} holds a value for {name}; whoever can pull it has it",
                evidence=(
                    Evidence(
                        source=f"docker image inspect {image.name}", excerpt=f"{name}=<token>"
                    ),
                ),
                fixes=(secret_at_start(name),),
            )
