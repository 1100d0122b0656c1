"""`preflight` as the entrypoint of real containers, and every recipe of the documentation."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import single_file
from docker_daemon import IMAGE, Docker
from ruamel.yaml import YAML

pytestmark = pytest.mark.docker

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
PREFLIGHT = f"{sys.executable} -m infer_doctor preflight"
CACHE = ("--tmpfs", "/cache:size=4m", "-e", "HF_HOME=/cache", "-e", "VLLM_CACHE_ROOT=/cache")
FULL = "head -c 4m /dev/zero >/cache/x 2>/dev/null"
"""A cache on a full disk: cache-disk-low is then an error."""

ENGINE = """\
#!/usr/bin/env python3
import json, os, signal, sys, time
print(json.dumps({"pid": os.getpid(), "arguments": sys.argv[1:]}), flush=True)
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    time.sleep(600)
"""
"""Stands in for the engine of the recipes: says what it was given."""


@pytest.mark.parametrize("status", [0, 1, 137, 143])
def test_the_status_comes_through(docker: Docker, status: int) -> None:
    assert docker.run(f"exec {PREFLIGHT} -- sh -c 'exit {status}'").returncode == status


@pytest.mark.parametrize(("number", "status"), [("KILL", 137), ("TERM", 143)])
def test_death_by_a_signal_comes_through(docker: Docker, number: str, status: int) -> None:
    """Under a shell: the kernel keeps such signals of its own from process 1."""
    done = docker.run(f"{PREFLIGHT} -- sh -c 'kill -{number} $$'; exit $?")
    assert done.returncode == status


def test_a_kill_from_outside_comes_through(docker: Docker, tmp_path: Path) -> None:
    with container(docker, f"exec {PREFLIGHT} -- python3 /engine/vllm --wait", tmp_path) as name:
        wait_for(docker, name, '"pid": 1')
        docker.call("kill", name)
        assert docker.call("wait", name).stdout.strip() == "137"


def test_the_command_is_process_one_and_alone(docker: Docker) -> None:
    script = "echo $$; cat /proc/1/comm; ls /proc | grep -c ^[0-9]; cat /proc/1/task/1/children"
    through = docker.run(f"exec {PREFLIGHT} -- sh -c '{script}; true'").stdout.split()
    direct = docker.run(f"{script}; true").stdout.split()
    assert through[:3] == direct[:3] == ["1", "sh", direct[2]]
    assert len(through) == len(direct)


def test_sigterm_reaches_the_command(docker: Docker, tmp_path: Path) -> None:
    with container(docker, f"exec {PREFLIGHT} -- python3 /engine/vllm --wait", tmp_path) as name:
        wait_for(docker, name, '"pid": 1')
        assert docker.call("kill", "--signal", "TERM", name).returncode == 0
        assert docker.call("wait", name).stdout.strip() == "7"


def test_sigterm_ends_the_examination(docker: Docker, tmp_path: Path) -> None:
    """Process 1 gets no signal that it has no handler for: `docker stop` would take ten seconds."""
    script = f"{FULL}; exec {PREFLIGHT} --wait 600 -- true"
    with container(docker, script, tmp_path, *CACHE) as name:
        wait_for(docker, name, "waiting up to")
        assert docker.call("kill", "--signal", "TERM", name).returncode == 0
        assert docker.call("wait", name).stdout.strip() == "143"


def test_a_refused_start_and_its_termination_message(docker: Docker, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("")
    options = (*CACHE, "-v", f"{message}:/dev/termination-log")
    done = docker.run(f"{FULL}; exec {PREFLIGHT} -- echo started", *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("infer-doctor: refused: fail: 1 error")
    assert "/cache (tmpfs) has 0 MiB of 4 MiB free" in done.stderr
    assert message.read_text() in done.stderr
    assert 100 < message.stat().st_size <= 4096


def test_what_comes_in_time_is_waited_for(docker: Docker) -> None:
    script = f"{FULL}; (sleep 3; rm /cache/x) & exec {PREFLIGHT} --wait 60 -- echo started"
    done = docker.run(script, *CACHE)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert "waiting up to 60 s for: cache-disk-low" in done.stderr


def test_a_child_of_the_entrypoint_is_left_to_the_command(docker: Docker) -> None:
    """A script may start something beside and then replace itself by preflight."""
    script = f"(sleep 0.1; exit 5) & exec {PREFLIGHT} -- cat /proc/1/task/1/children"
    done = docker.run(script)
    assert len(done.stdout.split()) == 1, done.stderr


class container:
    """One in the background, removed in the end."""

    def __init__(self, docker: Docker, script: str, folder: Path, *options: str) -> None:
        engine = engine_of(folder)
        mounts = [word for mount in docker.mounts for word in ("-v", f"{mount}:{mount}:ro")]
        words = ["run", "-d", "--network", "none", "-e", "HOME=/root", *mounts]
        words += ["-v", f"{engine}:/engine:ro", *options, IMAGE, "/bin/sh", "-c", script]
        self._docker = docker
        done = docker.call(*words)
        assert done.returncode == 0, done.stderr
        self._name = done.stdout.strip()

    def __enter__(self) -> str:
        return self._name

    def __exit__(self, *_: object) -> None:
        self._docker.call("rm", "-f", self._name)


def wait_for(docker: Docker, name: str, text: str) -> None:
    end = time.monotonic() + 60
    while text not in (logs := docker.call("logs", name)).stdout + logs.stderr:
        assert time.monotonic() < end, logs.stderr
        time.sleep(0.05)


def engine_of(folder: Path) -> Path:
    """A folder with a `vllm` in it."""
    engine = folder / "engine"
    engine.mkdir(exist_ok=True)
    program = engine / "vllm"
    program.write_text(ENGINE)
    program.chmod(0o755)
    return engine


PATH = "PATH=/engine:/usr/local/bin:/usr/bin:/bin"


def options_of(docker: Docker, folder: Path, mounts: Sequence[str]) -> list[str]:
    """What every container of a recipe gets in place of an engine image."""
    volumes = [word for mount in mounts for word in ("-v", f"{mount}:{mount}:ro")]
    engine = engine_of(folder)
    more = ["--network", "none", "-v", f"{engine}:/engine:ro", "-e", PATH, "-e", "HOME=/root"]
    return [*volumes, *more]


@pytest.fixture
def surroundings(docker: Docker, tmp_path: Path) -> list[str]:
    return options_of(docker, tmp_path, docker.mounts)


def test_recipe_dockerfile(docker: Docker, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    shutil.copy(RECIPES / "Dockerfile", context)
    shutil.copy(single_file.built(), context / "infer-doctor.pyz")
    tag = "infer-doctor-recipe"
    done = docker.call("build", "-q", "-t", tag, "--build-arg", f"ENGINE={IMAGE}", str(context))
    assert done.returncode == 0, done.stderr
    # The recipe copies to /usr/local, which must not be hidden by the host's.
    usr = [f"/usr/{name}" for name in os.listdir("/usr") if name != "local"]
    mounts = [mount for mount in docker.mounts if mount != "/usr"] + usr
    options = ["--rm", *options_of(docker, tmp_path, mounts)]
    done = docker.call("run", *options, tag, "my/model", "-tp", "2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"pid": 1, "arguments": ["serve", "my/model", "-tp", "2"]}
    required = ["-e", "INFER_DOCTOR_REQUIRE=cuda-context-failed"]
    done = docker.call("run", *options, *required, tag, "my/model")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("infer-doctor: refused")


def read_yaml(name: str) -> Any:
    return YAML(typ="safe", pure=True).load((RECIPES / name).read_text())


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="needs docker-compose")
def test_recipe_compose(docker: Docker, tmp_path: Path) -> None:
    document = read_yaml("compose.yaml")
    service = document["services"]["vllm"]
    assert service.pop("deploy")["resources"]["reservations"]["devices"][0]["count"] == 2
    service["network_mode"] = "none"
    service["volumes"] += [f"{mount}:{mount}:ro" for mount in docker.mounts]
    service["volumes"].append(f"{engine_of(tmp_path)}:/engine:ro")
    service["environment"] |= {"PATH": PATH.partition("=")[2], "HOME": "/root"}
    shutil.copy(single_file.built(), tmp_path / "infer-doctor.pyz")
    (tmp_path / "compose.yaml").write_text(json.dumps(document))
    variables = {**os.environ, "ENGINE": IMAGE, "MODEL": "my/model"}
    variables |= {"DOCKER_HOST": docker.host} if docker.host else {}
    words = ["docker-compose", "-f", str(tmp_path / "compose.yaml"), "-p", "inferdoctor"]
    try:
        done = subprocess.run(
            [*words, "up", "--no-color", "--exit-code-from", "vllm"],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        subprocess.run([*words, "down"], env=variables, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"arguments": ["serve", "my/model", "--tensor-parallel-size", "2"]' in done.stdout
    (report,) = (tmp_path / "reports").iterdir()
    assert json.loads(report.read_text())["command"] == "preflight"


def pod_of(name: str) -> Any:
    document = read_yaml(name)
    return document["spec"] if document["kind"] == "Pod" else document["spec"]["template"]["spec"]


@pytest.mark.parametrize("name", ["kubernetes-init-container.yaml", "kubernetes-wrapper.yaml"])
def test_recipe_kubernetes(
    name: str, docker: Docker, tmp_path: Path, surroundings: list[str]
) -> None:
    """Every container of the pod in its order, with its command, mounts and variables."""
    pod = pod_of(name)
    volumes = {}
    for volume in pod["volumes"]:
        volumes[volume["name"]] = tmp_path / volume["name"]
        volumes[volume["name"]].mkdir()
    said = []
    for place in (*pod["initContainers"], *pod["containers"]):
        words = list(surroundings)
        for mount in place["volumeMounts"]:
            words += ["-v", f"{volumes[mount['name']]}:{mount['mountPath']}"]
        for variable in place.get("env", ()):
            words += ["-e", f"{variable['name']}={variable.get('value', 'llm-0')}"]
        if place["image"].startswith("registry.example.com/infer-doctor"):
            words += ["-v", f"{single_file.built()}:/infer-doctor.pyz:ro"]
        program, *arguments = [*place["command"], *place.get("args", ())]
        done = docker.call("run", "--rm", *words, "--entrypoint", program, IMAGE, *arguments)
        assert done.returncode == 0, f"{place['name']}: {done.stdout}{done.stderr}"
        said.append(done.stdout)
    assert json.loads(said[-1])["arguments"][:2] == ["serve", "Qwen/Qwen3-8B"]
    assert json.loads(said[-1])["pid"] == 1


def test_recipe_systemd(docker: Docker, tmp_path: Path, surroundings: list[str]) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(RECIPES / "vllm.service")
    service = unit["Service"]
    before = service["ExecStartPre"]
    assert before.endswith(f"-- {service['ExecStart']}")
    # The paths of the recipe are those of the container.
    visible = ["-v", f"{single_file.built()}:/opt/infer-doctor/infer-doctor.pyz:ro"]
    python = ["--tmpfs", "/opt/vllm", "-e", service["Environment"]]
    script = (
        f"mkdir -p /opt/vllm/bin && ln -s /usr/bin/python3 /opt/vllm/bin/python && exec {before}"
    )
    for cache, status in (((), 0), (CACHE, 1)):
        fill = f"{FULL};" if cache else ""
        done = docker.call(
            "run",
            "--rm",
            *surroundings,
            *visible,
            *python,
            *cache,
            IMAGE,
            "sh",
            "-c",
            f"{fill} {script}",
        )
        assert done.returncode == status, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_recipe_systemd_is_a_valid_unit(tmp_path: Path) -> None:
    text = (RECIPES / "vllm.service").read_text()
    programs = set(re.findall(r"(?<=[ =])/opt/\S+/(?:infer-doctor\.pyz|vllm|python)(?=\s)", text))
    for program in programs:  # it looks whether they are there
        text = text.replace(program, "/bin/true")
    path = tmp_path / "vllm.service"
    path.write_text(text.replace("User=vllm", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "vllm.service" not in done.stderr
    assert shlex.split(text)
