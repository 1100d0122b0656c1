"""Questions to a Docker daemon: the one of DOCKER_HOST, else the one of this machine."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

SOCKET = "/var/run/docker.sock"

LOG_LINES = 400
"""Of the end of a container's log: an engine writes some 300 lines before it is ready."""


class NoAnswer(Exception):
    """The daemon, the container or the image is not to be had; the text says why."""


class Daemon:
    """A connection; every answer is plain JSON."""

    def __init__(self, timeout_s: float) -> None:
        try:
            docker: Any = import_module("docker")
        except ImportError:
            raise NoAnswer("--container and --image need the Python package docker") from None
        self._errors = docker.errors
        try:
            self._client = docker.from_env(timeout=timeout_s)
            self.info: dict[str, Any] = self._client.info()
        except (self._errors.DockerException, OSError) as error:
            raise NoAnswer(f"the Docker daemon does not answer: {_cause(error)}") from None

    @property
    def local(self) -> bool:
        """Whether it runs the containers of this very machine."""
        return str(self._client.api.base_url).startswith(("http+docker://", "unix://"))

    def container(self, name: str) -> dict[str, Any]:
        return dict(self._ask(self._client.containers.get, name, "container").attrs)

    def image(self, name: str) -> dict[str, Any]:
        return dict(self._ask(self._client.images.get, name, "image").attrs)

    def log(self, name: str) -> bytes:
        """The end of what a container wrote."""
        container = self._ask(self._client.containers.get, name, "container")
        try:
            data: bytes = container.logs(stdout=True, stderr=True, tail=LOG_LINES)
        except (self._errors.DockerException, OSError) as error:
            raise NoAnswer(f"the log of {name} cannot be had: {_line(error)}") from None
        return data

    def close(self) -> None:
        self._client.close()

    def _ask(self, get: Any, name: str, kind: str) -> Any:
        try:
            return get(name)
        except self._errors.NotFound:
            raise NoAnswer(f"there is no {kind} {name!r} at this Docker daemon") from None
        except (self._errors.DockerException, OSError) as error:
            raise NoAnswer(f"{kind} {name}: {_line(error)}") from None


def _cause(error: BaseException) -> str:
    """What the operating system said below the errors of three libraries, else the error itself."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return f"{os.environ.get('DOCKER_HOST') or SOCKET}: {below.strerror}"
        below = below.__cause__ or below.__context__
    return _line(error)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
