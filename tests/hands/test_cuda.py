"""cuInit in a fork of the worker, against a library that plays what it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_library
import pytest

import infer_doctor
from infer_doctor.hands.loop import answer

ASK = """
import json, sys
sys.path.append(sys.argv[1])
import hands.cuda as operation, hands.loop as loop
operation.DEVICES = sys.argv[2]
print(json.dumps(loop.answer("cuda", {"without": sys.argv[3:]}, 1.0)))
"""
"""The worker's own loop, in a process like the worker's, with another folder for /dev."""

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cuda_library.build(tmp_path_factory.mktemp("cuda"), gpus=2)


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
        (folder / name).touch()
    return folder


@pytest.fixture
def ask(library: Path, devices: Path) -> Ask:
    """What the operation answers, with variables of the environment."""

    def once(*without: str, **variables: str) -> dict[str, Any]:
        package = os.path.dirname(infer_doctor.__file__)
        found = subprocess.run(
            [sys.executable, "-I", "-S", "-c", ASK, package, str(devices), *without],
            env={"LD_LIBRARY_PATH": str(library), **variables},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        reply: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
        return reply

    return once


def test_success(ask: Ask, library: Path) -> None:
    assert ask()["value"] == {
        "missing": [],
        "library": str(library / "libcuda.so.1"),
        "code": 0,
        "version": 13000,
        "count": 2,
        "step": "the end",
        "end": None,
    }


@pytest.mark.parametrize("code", [2, 3, 34, 46, 100, 101, 222, 304, 802, 803, 804, 805, 999])
def test_every_code(code: int, ask: Ask) -> None:
    found = ask(FAKE_CUDA=f"cuInit={code}")["value"]
    assert found["code"] == code
    assert found["version"] == 13000
    assert "count" not in found
    assert found["end"] is None


@pytest.mark.parametrize(
    ("value", "code", "count"),
    [("", 100, None), ("-1", 100, None), ("0,0", 101, None), ("1", 0, 1), ("0,1", 0, 2)],
)
def test_variables_are_those_of_the_engine(
    value: str, code: int, count: int | None, ask: Ask
) -> None:
    found = ask(CUDA_VISIBLE_DEVICES=value)["value"]
    assert (found["code"], found.get("count")) == (code, count)
    alone = ask("CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES=value)["value"]
    assert (alone["code"], alone["count"]) == (0, 2)


@pytest.mark.parametrize(
    ("plan", "step", "end"),
    [
        ("constructor=crash", "loading libcuda.so.1", "signal 11"),
        ("cuInit=crash", "cuInit", "signal 11"),
        ("cuInit=exit", "cuInit", "exit status 3"),
        ("cuDeviceGetCount=crash", "cuDeviceGetCount", "signal 11"),
    ],
)
def test_crash_is_an_answer_and_leaves_no_core(
    plan: str, step: str, end: str, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ask(FAKE_CUDA=plan)["value"]
    assert (found["step"], found["end"]) == (step, end)
    assert [path.name for path in tmp_path.iterdir()] == ["dev"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("constructor=hang", "no return from loading libcuda.so.1"),
        ("cuInit=hang", "no return from cuInit"),
        ("cuDriverGetVersion=hang", "no return from cuDriverGetVersion"),
        ("cuDeviceGetCount=hang", "no return from cuDeviceGetCount"),
    ],
)
def test_hang_is_named(plan: str, words: str, ask: Ask) -> None:
    assert ask(FAKE_CUDA=plan)["error"] == {"code": "timeout", "message": words}


def test_what_the_library_prints_is_no_answer(ask: Ask) -> None:
    assert ask(FAKE_CUDA="constructor=noise,cuInit=noise")["value"] == ask()["value"]


def test_file_that_is_no_library(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not ELF\n")
    found = ask(LD_LIBRARY_PATH=str(tmp_path))["value"]
    assert "libcuda.so.1" in found["load_error"]
    assert "code" not in found


@pytest.mark.parametrize("name", ["nvidiactl", "nvidia-uvm"])
def test_nothing_is_loaded_without_the_device_nodes(name: str, ask: Ask, devices: Path) -> None:
    (devices / name).unlink()
    assert ask(FAKE_CUDA="constructor=exit")["value"] == {"missing": [f"{devices}/{name}"]}


def test_nothing_is_loaded_without_a_gpu(ask: Ask, devices: Path) -> None:
    for number in "01":
        (devices / f"nvidia{number}").unlink()
    assert ask(FAKE_CUDA="constructor=exit")["value"] == {"missing": [f"{devices}/nvidia0"]}


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a driver here")
def test_this_machine_has_no_driver() -> None:
    assert "/dev/nvidiactl" in answer("cuda", {"without": []}, 1.0)["value"]["missing"]
