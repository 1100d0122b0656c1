"""The copies that `check` names against those that the real loader takes, in a real CUDA environment.

INFER_DOCTOR_TEST_CUDA names a virtual environment with a torch for CUDA 12 or 13 and its nvidia wheels.
No GPU is needed: cuDNN's heuristic and engine libraries are opened only with one, and are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import cuda_environment
import pytest

from infer_doctor.catalog.libraries import library_of
from infer_doctor.checks.deep_libraries import NVRTC_BUILTINS
from infer_doctor.engine import Subject
from infer_doctor.facts.deep_libraries import LibraryRun, NvrtcRun
from infer_doctor.facts.environment import Question
from infer_doctor.facts.libraries import LoadedLibraries
from infer_doctor.live import LiveHost
from infer_doctor.registry import load

NAME = "INFER_DOCTOR_TEST_CUDA"

pytestmark = [
    pytest.mark.cuda_env,
    pytest.mark.skipif(NAME not in os.environ, reason=f"{NAME} names no CUDA environment"),
]

NEEDS_A_GPU = ("cudnn_heuristic", "cudnn_engines_precompiled", "cudnn_engines_runtime_compiled")

Arrange = Callable[[Path, Path], dict[str, str]]
"""Changes an environment (its site-packages) in a working folder; returns variables."""


def copied(site: Path, target: Path, *names: str) -> Path:
    """A folder with copies of libraries of the environment."""
    target.mkdir(exist_ok=True)
    for name in names:
        (found,) = site.glob(f"nvidia/*/lib/{name}")
        shutil.copy(found, target / found.name)
    return target


def as_installed(site: Path, work: Path) -> dict[str, str]:
    return {}


def toolkit_first(site: Path, work: Path) -> dict[str, str]:
    toolkits = sorted(Path("/usr/local").glob("cuda*/lib*"))
    return {"LD_LIBRARY_PATH": ":".join(map(str, toolkits))} if toolkits else {}


def runtime_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(copied(site, work / "old", "libcudart.so.*"))}


def cudnn_first(site: Path, work: Path) -> dict[str, str]:
    names = ("libcudnn.so.*", "libcudnn_graph.so.*", "libcudnn_cnn.so.*")
    return {"LD_LIBRARY_PATH": f"{work}/none:{copied(site, work / 'old', *names)}"}


def one_part_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": f"{copied(site, work / 'old', 'libcudnn_graph.so.*')};{work}/none"}


def empty_entry(site: Path, work: Path) -> dict[str, str]:
    copied(site, work, "libcudnn_cnn.so.*", "libcupti.so.*")
    return {"LD_LIBRARY_PATH": f"{work}/none:"}


def preloaded(site: Path, work: Path) -> dict[str, str]:
    folder = copied(site, work / "old", "libcudart.so.*", "libcufile.so.*")
    return {"LD_PRELOAD": ":".join(str(path) for path in folder.iterdir())}


def no_builtins(site: Path, work: Path) -> dict[str, str]:
    for path in site.glob("nvidia/*/lib/libnvrtc-builtins.so.*"):
        path.unlink()
    return {}


def no_runtime(site: Path, work: Path) -> dict[str, str]:
    """torch then loads its table by hand, and what the table finds first."""
    for path in site.glob("nvidia/*/lib/libcudart.so.*"):
        path.unlink()
    return {}


def runtime_elsewhere(site: Path, work: Path) -> dict[str, str]:
    folder = copied(site, work / "old", "libcudart.so.*")
    for path in site.glob("nvidia/*/lib/libcudart.so.*"):
        path.unlink()
    return {"LD_LIBRARY_PATH": str(folder)}


def dangling(site: Path, work: Path) -> dict[str, str]:
    (path,) = site.glob("nvidia/*/lib/libcudnn_cnn.so.*")
    path.unlink()
    path.symlink_to("libcudnn_cnn.so.0")
    return {}


def damaged(site: Path, work: Path) -> dict[str, str]:
    (path,) = site.glob("nvidia/*/lib/libcufile.so.*")
    path.unlink()
    path.write_bytes(b"")
    return {}


@pytest.mark.parametrize(
    "arrange",
    [
        as_installed,
        toolkit_first,
        runtime_first,
        cudnn_first,
        one_part_first,
        empty_entry,
        preloaded,
        no_builtins,
        no_runtime,
        runtime_elsewhere,
        dangling,
        damaged,
    ],
)
def test_names_the_copy_that_the_loader_takes(
    arrange: Arrange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = cuda_environment.farm(Path(os.environ[NAME]), tmp_path / "env")
    work = tmp_path / "work"
    work.mkdir()
    variables = arrange(site, work)
    python = tmp_path / "env" / "bin" / "python"
    loaded, errors = cuda_environment.truth(python, variables, work)
    found = examined(python, variables, work, monkeypatch)
    named = [row for row in found.rows if row.copy.library not in NEEDS_A_GPU]
    assert sorted(os.path.realpath(row.path) for row in named) == sorted(
        path for path in loaded if library_of(os.path.basename(path))
    )
    failed = {row.step for row in found.failures if row.library not in NEEDS_A_GPU}
    steps = {"Graph": "cuDNN", "Ops": "cuDNN", "Cnn": "cuDNN", "Adv": "cuDNN", "nvrtc": "NVRTC"}
    steps |= {"driver": "the driver"}
    assert failed == {steps.get(name, name) for name in errors}, errors


TORCH_SAYS = """
import json, torch
cudnn = torch.backends.cudnn.version()
print(json.dumps({
    "cudart": torch.version.cuda,
    "cudnn": f"{cudnn // 10000}.{cudnn % 10000 // 100}.{cudnn % 100}",
    "nccl": ".".join(map(str, torch.cuda.nccl.version())),
}))
"""


def deep(python: Path) -> tuple[LibraryRun, NvrtcRun]:
    host = LiveHost(timeout_s=120)
    try:
        question = Question(python=str(python))
        subject = Subject("host", load(), host=host, given=[question], deep=True)
        run, nvrtc = subject.get(LibraryRun), subject.get(NvrtcRun)
    finally:
        host.close()
    assert isinstance(run, LibraryRun), run
    assert isinstance(nvrtc, NvrtcRun), nvrtc
    return run, nvrtc


def test_the_libraries_say_what_torch_says() -> None:
    python = Path(os.environ[NAME]) / "bin" / "python"
    done = subprocess.run(
        [str(python), "-c", TORCH_SAYS], capture_output=True, text=True, check=True
    )
    wanted = json.loads(done.stdout)
    run, nvrtc = deep(python)
    assert run.unloadable == {}
    assert run.ended_in is None
    assert {name: run.versions[name] for name in wanted} == wanted
    assert run.versions["nvrtc"] == wanted["cudart"]
    assert (nvrtc.code, nvrtc.log) == (0, "")
    assert nvrtc.arch in nvrtc.archs


def test_nvrtc_without_builtins_says_so(tmp_path: Path) -> None:
    site = cuda_environment.farm(Path(os.environ[NAME]), tmp_path / "env")
    no_builtins(site, tmp_path)
    _, nvrtc = deep(tmp_path / "env" / "bin" / "python")
    assert nvrtc.code == NVRTC_BUILTINS
    assert "failed to open libnvrtc-builtins" in nvrtc.log


def examined(
    python: Path, variables: dict[str, str], work: Path, monkeypatch: pytest.MonkeyPatch
) -> LoadedLibraries:
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(work)
    host = LiveHost()
    try:
        subject = Subject("host", load(), host=host, given=[Question(python=str(python))])
        found = subject.get(LoadedLibraries)
    finally:
        host.close()
    assert isinstance(found, LoadedLibraries), found
    assert found.gaps == ()
    return found
