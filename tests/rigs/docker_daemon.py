"""A real Docker daemon: the one that answers, else one of our own for the length of the tests.

`apt-get install docker.io` and root are all that is needed: the daemon gets its own socket and
folders, no network and no bridge, so it neither meets nor changes another one.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMAGE = "infer-doctor-test"
REPOSITORY = Path(__file__).parents[2]
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
"""What an interpreter needs of the host; mounted read-only, so the image itself is empty."""


class NoDocker(Exception):
    """Why there is no daemon."""


@dataclass(frozen=True)
class Docker:
    """A daemon and how to run the doctor in a container of it."""

    host: str | None
    mounts: tuple[str, ...] = field(default=())

    def call(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, **({"DOCKER_HOST": self.host} if self.host else {})}
        return subprocess.run(
            ["docker", *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            **options,
        )

    def run(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a line of shell in a new container."""
        volumes = [word for mount in self.mounts for word in ("-v", f"{mount}:{mount}:ro")]
        command = ("run", "--rm", "--network", "none", "-e", "HOME=/root", *volumes, *options)
        return self.call(*command, IMAGE, "/bin/sh", "-c", script)

    def check(
        self, *options: str, launch: str = "", before: str = ":", python: str = ""
    ) -> dict[str, Any]:
        """The report of `infer-doctor check` in a new container; `before` is a line of shell."""
        words = [sys.executable, "-m", "infer_doctor", "check", "--format", "json"]
        words += ["--python", python] if python else []
        words += ["--", *launch.split()] if launch else []
        done = self.run(f"{before}; exec {' '.join(words)}", *options)
        assert done.returncode in (0, 1), done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


@contextlib.contextmanager
def running() -> Iterator[Docker]:
    """The daemon with the image in it; raises NoDocker with the reason when there is none."""
    if shutil.which("docker") is None:
        raise NoDocker("no docker command here (apt-get install docker.io)")
    found = Docker(host=None)
    if found.call("info").returncode == 0:
        yield _with_image(found)
        return
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        raise NoDocker("no Docker daemon answers, and only root can start one")
    folder = tempfile.mkdtemp(prefix="infer-doctor-docker-")  # a socket's path is at most 107 bytes
    daemon = _start(folder)
    try:
        own = Docker(host=f"unix://{folder}/socket")
        _wait(own, daemon, folder)
        yield _with_image(own)
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: str) -> subprocess.Popen[bytes]:
    command = ["dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"]
    command += ["--storage-driver=vfs", "--host", f"unix://{folder}/socket"]
    command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run"]
    command += ["--pidfile", f"{folder}/pid"]
    with open(f"{folder}/log", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _wait(docker: Docker, daemon: subprocess.Popen[bytes], folder: str) -> None:
    for _ in range(120):
        if docker.call("info").returncode == 0:
            return
        if daemon.poll() is not None:
            break
        time.sleep(0.5)
    raise NoDocker(f"dockerd does not start here: {Path(folder, 'log').read_text()[-300:]}")


def _with_image(docker: Docker) -> Docker:
    """Import an image of empty folders; everything else is mounted from here."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("root", "tmp", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(archive.getvalue())
        file.flush()
        done = docker.call("import", file.name, IMAGE)
    assert done.returncode == 0, done.stderr
    wanted = (*SYSTEM, sys.prefix, sys.base_prefix, str(REPOSITORY))
    kept = [path for path in dict.fromkeys(wanted) if os.path.exists(path)]
    inside = [p for p in kept if not any(p != o and p.startswith(f"{o}/") for o in kept)]
    return Docker(host=docker.host, mounts=tuple(inside))
