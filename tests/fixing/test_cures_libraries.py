"""For checks of CUDA's libraries: an environment of empty ones, cured by its own pip or by the next
start, which the emitted command line is."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
import wheels
from doctor_process import Run

Change = Callable[[Path, Path], dict[str, str]]
"""Breaks a site-packages, with a working folder beside it; returns variables."""


def put(folder: Path, *names: str, version: str = "97.14.0") -> str:
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(fake_cuda.library(name, version))
    return str(folder)


def older_cudnn_first(site: Path, work: Path) -> dict[str, str]:
    old = put(work / "old", *fake_cuda.WHEELS["nvidia_cudnn_cu99"][2])
    return {"LD_LIBRARY_PATH": f"{old}:/opt/more"}


def one_older_part_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": put(work / "old", "libcudnn_ops.so.97")}


def builtins_elsewhere(site: Path, work: Path) -> dict[str, str]:
    """Beside nothing that looks there: torch before 2.6 does not load it first."""
    kept = site / "nvidia" / "cuda_nvrtc" / "lib"
    kept.mkdir(parents=True)
    name = "libnvrtc-builtins.so.99.0"
    (site / "nvidia/cu99/lib" / name).rename(kept / name)
    return {}


def nccl_by_name(site: Path, work: Path) -> dict[str, str]:
    """vLLM loads the one that the variable names."""
    (site / "vllm").mkdir()
    (site / "vllm" / "__init__.py").write_text("")
    (site / "vllm-0.26.0.dist-info").mkdir()
    (site / "vllm-0.26.0.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 0.26.0\n")
    return {"VLLM_NCCL_SO_PATH": "/opt/none/libnccl.so.98"}


def no_runtime(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cu99/lib/libcudart.so.99").unlink()
    return {}


def no_builtins(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cu99/lib/libnvrtc-builtins.so.99.0").unlink()
    return {}


def older_than_pinned(site: Path, work: Path) -> dict[str, str]:
    """Another package wanted an older wheel, and pip put it over."""
    info = site / "nvidia_cudnn_cu99-97.14.0.10.dist-info"
    (site / "nvidia_cudnn_cu99-97.19.0.56.dist-info").rename(info)
    for file in info.iterdir():
        file.write_text(file.read_text().replace("97.19.0.56", "97.14.0.10"))
    for name in fake_cuda.WHEELS["nvidia_cudnn_cu99"][2]:
        file = site / "nvidia/cudnn/lib" / name
        file.write_bytes(fake_cuda.library(name, "97.14.0"))
    return {}


BY_START: list[tuple[str, Change, str, str]] = [
    ("cuda-library-shadowed", older_cudnn_first, "whole", "LD_LIBRARY_PATH=/opt/more"),
    ("cuda-cudnn-parts-mixed", one_older_part_first, "whole", "-u LD_LIBRARY_PATH"),
    ("cuda-nvrtc-builtins-missing", builtins_elsewhere, "none", "LD_LIBRARY_PATH="),
    ("cuda-library-missing", nccl_by_name, "whole", "-u VLLM_NCCL_SO_PATH"),
]

BY_PIP: list[tuple[str, Change]] = [
    ("cuda-library-missing", no_runtime),
    ("cuda-nvrtc-builtins-missing", no_builtins),
    ("cuda-library-too-old", older_than_pinned),
]


def outcome(run: Run, words: list[str]) -> tuple[str, int]:
    said = json.loads(run("check", *words, "--format", "json", cwd=run.home / "work").stdout)
    (row,) = said["results"]
    return row["outcome"], len(row["findings"])


def started(run: Run, line: str, command: list[str]) -> Run:
    """The same as the emitted line starts it: `env -u A B=1 COMMAND`."""
    words = shlex.split(line)
    assert words[-len(command) :] == command
    variables = dict(run.variables)
    rest = iter(words[words[0] == "env" : -len(command)])
    for word in rest:
        if word == "-u":
            variables.pop(next(rest))
        else:
            name, _, value = word.partition("=")
            variables[name] = value
    return Run(run.home, variables)


@pytest.mark.parametrize(("check", "change", "form", "wanted"), BY_START)
def test_cured_by_the_next_start(
    check: str, change: Change, form: str, wanted: str, tmp_path: Path
) -> None:
    site = fake_cuda.build(tmp_path / "env", form)
    work = tmp_path / "work"
    work.mkdir()
    run = Run(tmp_path, change(site, work))
    words = ["--python", f"{tmp_path}/env/bin/python", "--select", check]
    assert outcome(run, words) == ("failed", 1)
    command = ["vllm", "serve", "m"]
    made = run("fix", *words, "--emit", "command", "--", *command, cwd=work)
    assert wanted in made.stdout, made.stdout + made.stderr
    assert outcome(started(run, made.stdout, command), words) == ("passed", 0)


def listing(site: Path) -> dict[str, Any]:
    """Every file but Python's own caches: bytes, mode, owner."""
    rows = {}
    for path in site.rglob("*"):
        if "__pycache__" not in path.parts and path.is_file():
            found = path.stat()
            rows[str(path.relative_to(site))] = (
                path.read_bytes(),
                found.st_mode,
                found.st_uid,
                found.st_gid,
            )
    return rows


@pytest.fixture(scope="module")
def pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of an environment with pip alone."""
    made = wheels.environment(tmp_path_factory.mktemp("pip") / "environment")
    return next(made.glob("lib/python3*/site-packages"))


@pytest.mark.parametrize(("check", "change"), BY_PIP)
def test_cured_by_pip_and_taken_back(check: str, change: Change, pip: Path, tmp_path: Path) -> None:
    site = fake_cuda.build(tmp_path / "env")
    for package in pip.glob("pip*"):
        shutil.copytree(package, site / package.name)
    work, house = tmp_path / "work", tmp_path / "house"
    work.mkdir()
    change(site, work)
    for name, (version, folder, files) in fake_cuda.WHEELS.items():
        contents = {f"nvidia/{folder}/lib/{file}": fake_cuda.library(file) for file in files}
        wheels.wheel(house, name.replace("_", "-"), version, contents)
    run = Run(tmp_path, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)})
    words = ["--python", f"{tmp_path}/env/bin/python", "--select", check]
    before = listing(site)
    assert outcome(run, words)[0] == "failed"
    done = run("fix", *words, "--apply", "--yes", "--unsafe", cwd=work)
    assert (done.stderr, done.stdout[:7]) == ("", "cured: "), done.stdout
    assert outcome(run, words) == ("passed", 0)
    assert listing(site) != before
    undone = run("undo", "--yes")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert listing(site) == before
