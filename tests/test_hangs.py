"""Whatever hangs or crashes: the report comes in time, says so, and holds everything else."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dead_mount import dead_mount, usable
from doctor_process import LIMIT_S, Run, outcomes, until

from infer_doctor.facts.gpu import NvmlReading
from infer_doctor.registry import Check, Registry, load

NVML_HANGS = {
    "start": ("nvmlInitWithFlags=hang", "no return from nvmlInit"),
    "constructor": ("constructor=hang", "no answer within"),
    "crash": ("nvmlInitWithFlags=crash", "the process that asked died (signal 11)"),
    "getter": ("nvmlDeviceGetUUID=hang", "no return from UUID"),
}

PR_SET_CHILD_SUBREAPER = 36


def children() -> set[str]:
    """Processes of this one, zombies too."""
    return set(Path("/proc/thread-self/children").read_text().split())


@pytest.fixture
def orphans() -> Iterator[None]:
    """Makes this process inherit what the doctor leaves behind, and fails when there is anything."""
    libc = ctypes.CDLL(None)
    before = children()
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert children() - before == set()


def lost(healthy: dict[str, Any], report: dict[str, Any]) -> dict[str, str]:
    """Facts that only the healthy run has, and why they are missing."""
    (had,), (has,) = healthy["facts"].values(), report["facts"].values()
    return {
        name: fact["missing"]
        for name, fact in has.items()
        if "missing" in fact and "missing" not in had.get(name, {})
    }


def depends(check: Check, on: type, registry: Registry) -> bool:
    """Whether a check needs this fact, at first hand or through others."""
    seen: set[type] = set()
    left = [need.fact for need in check.needs]
    while left:
        fact = left.pop()
        if fact not in seen:
            seen.add(fact)
            probe = registry.probes.get(fact)
            left += [need.fact for need in probe.needs] if probe else []
    return on in seen


def test_healthy_run_leaves_nothing(tmp_path: Path, two_gpus: Path, orphans: None) -> None:
    run = Run(tmp_path, {"LD_LIBRARY_PATH": str(two_gpus)})
    (facts,) = run.report()["facts"].values()
    assert [gpu["name"] for gpu in facts["Gpus"]["gpus"]] == ["NVIDIA H200"] * 2
    assert run.living() == {}


@pytest.mark.parametrize("name", NVML_HANGS)
def test_nvml(name: str, tmp_path: Path, two_gpus: Path, orphans: None) -> None:
    plan, words = NVML_HANGS[name]
    variables = {"LD_LIBRARY_PATH": str(two_gpus)}
    healthy = Run(tmp_path, variables).report()
    run = Run(tmp_path, {**variables, "FAKE_NVML": plan})
    report = run.report()
    assert report["counts"]["crashed"] == 0
    registry = load()
    for check, result in outcomes(healthy).items():
        now = outcomes(report)[check]
        if not depends(registry.checks[check], NvmlReading, registry):
            assert now == result, check
        elif now != result:
            assert now[0] in ("blocked", "not_applicable"), check  # there is no GPU on this bus
    missing = lost(healthy, report)
    if name == "getter":  # the GPUs are there, without what follows
        assert missing == {}
        (facts,) = report["facts"].values()
        assert facts["Driver"]["version"] == "580.159.04"
        assert any(words in gap for gap in facts["Gpus"]["gaps"])
    else:
        assert words in missing["Gpus"]
        assert any(words in str(reason) for _, reason in outcomes(report).values())
    assert run.living() == {}


def test_no_program_on_the_path_is_started(tmp_path: Path) -> None:
    """A hanging nvidia-smi cannot hang what does not start it."""
    (tmp_path / "bin").mkdir()
    started = tmp_path / "started"
    names = "nvidia-smi vllm trtllm-serve python python3 gcc g++ nvcc ldconfig docker git uname sh"
    for name in names.split():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho {name} >> {started}\nexec /bin/sleep 1000\n")
        program.chmod(0o755)
    run = Run(tmp_path, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    run.report()
    assert not started.exists()
    assert run.living() == {}


def test_pipe_in_place_of_a_file(tmp_path: Path) -> None:
    """Opening one waits for a writer that never comes."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").symlink_to(sys.executable)
    (tmp_path / "hub").mkdir()
    for name in ("env/pyvenv.cfg", "hf", "hub/token", "libnvidia-ml.so.1"):
        os.mkfifo(tmp_path / name)
    variables = {
        "HF_HOME": f"{tmp_path}/hf",
        "HF_HUB_CACHE": f"{tmp_path}/hub",
        "LD_LIBRARY_PATH": str(tmp_path),
    }
    report = Run(tmp_path, variables).report()
    assert report["counts"]["crashed"] == 0
    (facts,) = report["facts"].values()
    assert "no answer within" in facts["NvmlReading"]["missing"]
    words = ("check", "--python", f"{tmp_path}/env/bin/python", "--timeout", str(LIMIT_S))
    ended = Run(tmp_path, variables)(*words)
    assert ended.returncode in (0, 1, 2)
    assert len(ended.stderr.splitlines()) == (ended.returncode == 2)


@pytest.mark.skipif(not usable(), reason="needs root and /dev/fuse")
class TestDeadMount:
    @pytest.fixture
    def dead(self, tmp_path: Path) -> Iterator[Path]:
        (tmp_path / "dead").mkdir()
        with dead_mount(tmp_path / "dead") as folder:
            yield folder

    def compare(self, tmp_path: Path, variables: dict[str, str], *arguments: str) -> Run:
        """The hung run, which differs from a healthy one only by what it says of the mount."""
        healthy = Run(tmp_path).report()
        run = Run(tmp_path, variables)
        report = run.report(*arguments)
        assert report["counts"]["crashed"] == 0
        changed = 0
        for check, result in outcomes(healthy).items():
            now, why = outcomes(report)[check]
            if now != result[0]:
                assert now == "blocked", check
                assert "no answer within" in str(why) or "does not answer" in str(why), check
                changed += 1
        assert changed, "nothing looks there"
        return run

    @pytest.mark.parametrize(
        "variable",
        ["HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "TMPDIR"],
    )
    def test_cache(self, variable: str, tmp_path: Path, dead: Path) -> None:
        self.compare(tmp_path, {variable: f"{dead}/folder"})

    def test_everything_at_once(self, tmp_path: Path, dead: Path, two_gpus: Path) -> None:
        """More questions hang than time is left for at a few seconds each."""
        link = tmp_path / "link"
        link.symlink_to(dead)
        names = ("HF_HOME", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME", "CUDA_HOME", "VIRTUAL_ENV")
        variables = {name: f"{link}/{name}" for name in names}
        variables |= {
            "HOME": f"{link}/home",
            "PATH": f"{link}/bin:/usr/bin:/bin",
            "FAKE_NVML": "nvmlInitWithFlags=hang",
            "LD_LIBRARY_PATH": str(two_gpus),
        }
        report = Run(tmp_path, variables).report("--python", f"{link}/venv/bin/python")
        (facts,) = report["facts"].values()
        assert report["counts"]["crashed"] == 0
        assert "missing" not in facts["Identity"]
        assert "missing" not in facts["OperatingSystem"]
        assert "no return from nvmlInit" in facts["NvmlReading"]["missing"]

    def test_interpreter(self, tmp_path: Path, dead: Path) -> None:
        run = Run(tmp_path)
        report = run.report("--python", f"{dead}/bin/python")
        (facts,) = report["facts"].values()
        assert "no answer within" in facts["Interpreter"]["missing"]
        assert "missing" not in facts["Identity"]
        assert report["counts"]["crashed"] == 0

    @pytest.mark.parametrize(
        "words", [["{}/file"], ["--snapshot", "{}/file"], ["--output", "{}/file"]]
    )
    def test_file_that_the_user_names(self, words: list[str], tmp_path: Path, dead: Path) -> None:
        (tmp_path / "link").symlink_to(dead)
        ended = Run(tmp_path)("check", *(word.format("link") for word in words))
        assert (ended.returncode, ended.stdout) == (2, "")
        (line,) = ended.stderr.splitlines()
        assert line == f"infer-doctor: {tmp_path}/link/file: no answer within 3.0 s"

    def test_child_that_cannot_be_killed_is_left_alone(self, tmp_path: Path, dead: Path) -> None:
        run = Run(tmp_path, {"PATH": f"{dead}:/usr/bin:/bin"})
        run.report()
        assert set(run.living().values()) == {"D"}  # the rig does hang, and nobody waited for it

    def test_nothing_is_left_once_the_mount_is_gone(self, tmp_path: Path) -> None:
        (tmp_path / "dead").mkdir()
        run = Run(tmp_path, {"PATH": f"{tmp_path}/dead:/usr/bin:/bin"})
        with dead_mount(tmp_path / "dead"):
            run.report()
        until(lambda: run.living() == {})
