"""What a Docker daemon says of a container and its image: `docker inspect` as facts.

The answers are those of the Engine API (docs.docker.com/reference/api/engine, ContainerInspect and
ImageInspect). They are asked by `containers/`; no probe makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.registry import given


@given("no container was named")
@frozen
class DockerContainer:
    """One container: how it was started, and what became of it. Sizes in bytes."""

    name: str
    image: str
    status: str
    """created, running, paused, restarting, removing, exited or dead."""
    exit_code: int
    oom_killed: bool
    error: str
    """Why the daemon could not start it; else empty."""
    restarts: int
    restart_policy: str
    health: str | None
    health_output: str
    memory_limit: int | None
    shm_size: int | None
    wants_gpus: bool
    runtime: str
    variables: Mapping[str, str] = field(metadata={"report": False})
    log: tuple[str, ...] = ()
    """The end of what it wrote."""
    gaps: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether its process is not there now."""
        return self.status in ("exited", "dead", "restarting")


@given("no container or image was named")
@frozen
class DockerImage:
    """An image. `machine` is what it was built for, `daemon` what the daemon runs on."""

    name: str
    machine: str
    daemon: str
    variables: Mapping[str, str] = field(metadata={"report": False})


def container_of(
    found: Mapping[str, Any], log: Sequence[str], gaps: Sequence[str]
) -> DockerContainer:
    """Out of ContainerInspect."""
    state, host = _object(found, "State"), _object(found, "HostConfig")
    config = _object(found, "Config")
    health = _object(state, "Health")
    probes = health.get("Log") or [{}]
    policy = _object(host, "RestartPolicy")
    variables = variables_of(config.get("Env"))
    return DockerContainer(
        name=str(found.get("Name", "")).lstrip("/"),
        image=str(config.get("Image", "")),
        status=str(state.get("Status", "")),
        exit_code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        restarts=int(found.get("RestartCount") or 0),
        restart_policy=str(policy.get("Name") or "no"),
        health=health.get("Status"),
        health_output=str(_last(probes).get("Output") or "").strip(),
        memory_limit=host.get("Memory") or None,
        shm_size=host.get("ShmSize") or None,
        wants_gpus=wants_gpus(host),
        runtime=str(host.get("Runtime") or ""),
        variables=variables,
        log=tuple(log),
        gaps=tuple(gaps),
    )


def wants_gpus(host: Mapping[str, Any]) -> bool:
    """--gpus, a CDI device, a node of /dev, or the run-time nvidia."""
    requests = host.get("DeviceRequests") or ()
    nodes = (str(row.get("PathOnHost", "")) for row in host.get("Devices") or ())
    return bool(
        host.get("Runtime") == "nvidia"
        or any(_asks_nvidia(row) for row in requests)
        or any(node.startswith("/dev/nvidia") for node in nodes)
    )


def _asks_nvidia(request: Mapping[str, Any]) -> bool:
    capabilities = [word for group in request.get("Capabilities") or () for word in group]
    names = [str(word) for word in request.get("DeviceIDs") or ()]
    return (
        request.get("Driver") == "nvidia"
        or "gpu" in capabilities
        or any(name.startswith("nvidia.com/gpu") for name in names)
    )


def image_of(found: Mapping[str, Any], daemon: Mapping[str, Any]) -> DockerImage:
    """Out of ImageInspect and SystemInfo."""
    names = found.get("RepoTags") or [str(found.get("Id", ""))[:19]]
    return DockerImage(
        name=str(names[0]),
        machine=str(found.get("Architecture") or ""),
        daemon=str(daemon.get("Architecture") or ""),
        variables=variables_of(_object(found, "Config").get("Env")),
    )


def variables_of(rows: Iterable[str] | None) -> dict[str, str]:
    """NAME=value rows; the last one of a name counts."""
    return {name: value for name, _, value in (str(row).partition("=") for row in rows or ())}


def _object(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def _last(rows: Sequence[Any]) -> Mapping[str, Any]:
    return rows[-1] if rows and isinstance(rows[-1], dict) else {}
