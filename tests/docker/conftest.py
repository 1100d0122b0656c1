"""One Docker daemon for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import docker_daemon
import pytest


@pytest.fixture(scope="session")
def docker() -> Iterator[docker_daemon.Docker]:
    """A daemon that answers, or a skip that says why there is none."""
    daemon = docker_daemon.running()
    try:
        found = daemon.__enter__()
    except docker_daemon.NoDocker as reason:
        pytest.skip(str(reason))
    yield found
    daemon.__exit__(None, None, None)
