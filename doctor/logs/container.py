"""The log of a container, through Docker's own client library."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from infer_doctor.logs.source import NotALog

TIMEOUT_S = 20


def blocks_of(name: str) -> Iterator[bytes]:
    """What the container wrote to its standard output and error; raises NotALog."""
    try:
        docker: Any = import_module("docker")
    except ImportError:
        raise NotALog(
            f"--container needs the Python package docker; or: docker logs {name} 2>&1 | "
            "infer-doctor diagnose -"
        ) from None
    try:
        client = docker.from_env(timeout=TIMEOUT_S)
        container = client.containers.get(name)
        stream = container.logs(stdout=True, stderr=True, stream=True, follow=False)
    except docker.errors.NotFound:
        raise NotALog(f"there is no container {name!r}") from None
    except docker.errors.DockerException as error:
        raise NotALog(f"the container run-time does not answer: {error}") from None
    yield from stream
