"""`check --container` and `--image` of a real Docker daemon."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_daemon import IMAGE, Docker
from doctor_process import Run

pytestmark = pytest.mark.docker


@pytest.fixture
def outside(docker: Docker, tmp_path: Path) -> Run:
    variables = {"DOCKER_HOST": docker.host} if docker.host else {}
    return Run(tmp_path, variables)


@pytest.fixture
def start(docker: Docker) -> Iterator[Any]:
    """Start a container with these options and a line of shell; its name."""
    started: list[str] = []

    def run(script: str, *options: str) -> str:
        mounts = [word for mount in docker.mounts for word in ("-v", f"{mount}:{mount}:ro")]
        name = f"infer-doctor-{os.getpid()}-{len(started)}"
        words = ["run", "-d", "--name", name, "--network", "none", *mounts, *options, IMAGE]
        done = docker.call(*words, "/bin/sh", "-c", script)
        started.append(name)
        assert done.returncode == 0, done.stderr
        return name

    yield run
    for name in started:
        docker.call("rm", "-f", name)


def ended(docker: Docker, name: str) -> None:
    docker.call("wait", name)


def report_of(outside: Run, *words: str) -> dict[str, Any]:
    done = outside("check", "--format", "json", *words)
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["counts"]["crashed"] == 0
    assert done.returncode == {"pass": 0, "fail": 1, "unknown": 3}[found["verdict"]]
    return found


def findings(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f["check"]: f for row in report["results"] for f in row["findings"]}


def test_a_container_that_runs(outside: Run, start: Any) -> None:
    name = start("sleep 600")
    report = report_of(outside, "--container", name)
    assert findings(report) == {}
    (facts,) = report["facts"].values()
    assert facts["DockerContainer"]["status"] == "running"
    assert facts["DockerContainer"]["shm_size"] == 64 << 20


def test_exit_code_and_the_logs_end(docker: Docker, outside: Run, start: Any) -> None:
    name = start("echo first; sleep 0.3; echo the last words >&2; exit 3")
    ended(docker, name)
    found = findings(report_of(outside, "--container", name))
    assert found.keys() == {"docker-ended-badly"}
    excerpts = [row["excerpt"] for row in found["docker-ended-badly"]["evidence"]]
    assert excerpts[0].startswith("exited, exit code 3")
    assert excerpts[-1] == "the last words"


@pytest.mark.parametrize(
    ("number", "word"), [("KILL", "SIGKILL"), ("SEGV", "SIGSEGV"), ("BUS", "SIGBUS")]
)
def test_ends_by_signals(number: str, word: str, docker: Docker, outside: Run, start: Any) -> None:
    name = start(
        f"python3 -c 'import os, signal; os.kill(os.getpid(), signal.SIG{number})'; exit $?"
    )
    ended(docker, name)
    found = findings(report_of(outside, "--container", name))
    assert found.keys() == {"docker-ended-badly"}
    assert word in found["docker-ended-badly"]["message"]


def test_killed_for_its_memory_limit(docker: Docker, outside: Run, start: Any) -> None:
    script = "exec python3 -c 'x = bytearray(200 << 20); print(len(x))'"
    name = start(script, "--memory", "64m", "--memory-swap", "64m")
    ended(docker, name)
    found = findings(report_of(outside, "--container", name))
    assert found.keys() == {"docker-out-of-memory"}
    assert (
        "its limit of 64 MiB (OOMKilled, exit code 137)" in found["docker-out-of-memory"]["message"]
    )


def test_a_restart_loop(docker: Docker, outside: Run, start: Any) -> None:
    name = start("echo no model; exit 1", "--restart", "always")
    end = time.monotonic() + 60
    while int(docker.call("inspect", "-f", "{{.RestartCount}}", name).stdout) < 3:
        assert time.monotonic() < end
        time.sleep(0.2)
    found = findings(report_of(outside, "--container", name))
    assert found.keys() >= {"docker-restart-loop"}
    assert found["docker-restart-loop"]["evidence"][-1]["excerpt"] == "no model"


def test_an_unhealthy_container(docker: Docker, outside: Run, start: Any) -> None:
    health = (
        "--health-cmd",
        "echo refused; exit 1",
        "--health-interval",
        "1s",
        "--health-retries",
        "1",
    )
    name = start("sleep 600", *health)
    end = time.monotonic() + 60
    while "unhealthy" not in docker.call("inspect", "-f", "{{.State.Health.Status}}", name).stdout:
        assert time.monotonic() < end
        time.sleep(0.2)
    found = findings(report_of(outside, "--container", name))
    assert found.keys() == {"docker-unhealthy"}
    assert found["docker-unhealthy"]["evidence"][0]["excerpt"] == "refused"


def test_the_launch_in_the_container_is_judged(outside: Run, start: Any) -> None:
    """Two ranks with 64 MiB of shared memory, and no GPU asked for."""
    script = "vllm serve /models/llm --tensor-parallel-size 2 || sleep 600"
    name = start(script, "-e", "VLLM_API_KEY=purple-monkey-1")
    done = outside("check", "--format", "json", "--container", name)
    report = json.loads(done.stdout)
    found = findings(report)
    assert found.keys() >= {"manifest-shm-small", "manifest-gpu-missing"}
    shm = found["manifest-shm-small"]
    assert "64 MiB of /dev/shm" in shm["message"]
    assert shm["evidence"][0]["source"].startswith("docker inspect infer-doctor-")
    assert "purple-monkey" not in done.stdout
    (subject,) = report["facts"]
    assert subject == f"container {name}"


def test_shared_memory_that_is_enough(outside: Run, start: Any) -> None:
    script = "vllm serve /models/llm --tensor-parallel-size 2 || sleep 600"
    name = start(script, "--ipc", "host")
    assert "manifest-shm-small" not in findings(report_of(outside, "--container", name))


def image(docker: Docker, folder: Path, *lines: str, platform: str | None = None) -> str:
    """An image of one small file with these Dockerfile instructions."""
    context = folder / "context"
    context.mkdir()
    (context / "file").write_text("x")
    (context / "Dockerfile").write_text("\n".join(["FROM scratch", "COPY file /", *lines, ""]))
    name = f"infer-doctor-image-{folder.name.lower()}"
    words = ["--platform", platform] if platform else []
    done = docker.call("build", "-q", "--no-cache", *words, "-t", name, str(context))
    assert done.returncode == 0, done.stderr
    return name


def test_a_secret_in_an_image(docker: Docker, outside: Run, tmp_path: Path) -> None:
    name = image(docker, tmp_path, "ENV HF_TOKEN=purple-monkey-dishwasher", "ENV HF_HOME=/data")
    done = outside("check", "--image", name, "--format", "json")
    found = findings(json.loads(done.stdout))
    assert found.keys() == {"docker-image-secret"}
    assert "purple" not in done.stdout


def test_an_image_for_another_processor(docker: Docker, outside: Run, tmp_path: Path) -> None:
    machine = docker.call("info", "-f", "{{.Architecture}}").stdout.strip()
    other = "arm64" if machine == "x86_64" else "amd64"
    name = image(docker, tmp_path, "ENV A=1", platform=f"linux/{other}")
    found = findings(report_of(outside, "--image", name))
    assert found.keys() == {"docker-image-architecture"}


@pytest.mark.parametrize("words", [("--container", "no-such"), ("--image", "no-such:1")])
def test_what_is_not_there(words: tuple[str, ...], outside: Run) -> None:
    done = outside("check", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no {words[0][2:]} '{words[1]}' at this Docker daemon" in done.stderr


def test_no_daemon(tmp_path: Path) -> None:
    run = Run(tmp_path, {"DOCKER_HOST": f"unix://{tmp_path}/none"})
    done = run("check", "--container", "x")
    assert done.returncode == 2
    words = f"does not answer: unix://{tmp_path}/none: No such file or directory"
    assert f"infer-doctor: the Docker daemon {words}\n" == done.stderr
