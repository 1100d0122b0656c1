"""A whole environment, made of empty libraries: what we say is loaded, against the real loader."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import elf_file
import fake_cuda
import pytest

from infer_doctor.catalog.libraries import library_of
from infer_doctor.engine import Subject, run
from infer_doctor.facts.deep_libraries import LibraryRun, NvrtcRun
from infer_doctor.facts.environment import Question
from infer_doctor.facts.libraries import LibraryCopies, LibraryPins, LoadedLibraries
from infer_doctor.host import Host
from infer_doctor.live import LiveHost
from infer_doctor.model import CheckResult
from infer_doctor.registry import load

DEEP = ("cuda-library-unloadable", "cuda-nvrtc-failed")

IDS = ("cuda-library-", "cuda-cudnn-", "cuda-nvrtc-", "cuda-compat-")

REGISTRY = load()

Change = Callable[[Path, Path], dict[str, str]]
"""Changes a site-packages, with a working folder beside it; returns variables."""


def put(folder: Path, *names: str, version: str = "97.14.0") -> str:
    """A folder with libraries."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(fake_cuda.library(name, version))
    return str(folder)


def nothing(site: Path, work: Path) -> dict[str, str]:
    return {}


def older_cudnn_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": put(work / "old", *fake_cuda.WHEELS["nvidia_cudnn_cu99"][2])}


def one_older_part_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": put(work / "old", "libcudnn_ops.so.97")}


def exact_part_first(site: Path, work: Path) -> dict[str, str]:
    """cuDNN asks for .so.97.19.0 before .so.97."""
    folder = Path(put(work / "old", "libcudnn_cnn.so.97", version="97.19.0"))
    (folder / "libcudnn_cnn.so.97").rename(folder / "libcudnn_cnn.so.97.19.0")
    return {"LD_LIBRARY_PATH": str(folder)}


def runtime_first(site: Path, work: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": put(work / "old", "libcudart.so.99", "libnvJitLink.so.99")}


def here(site: Path, work: Path) -> dict[str, str]:
    put(work, "libcudnn_graph.so.97", version="97.19.0")
    return {"LD_LIBRARY_PATH": f"/none:{work}/none:"}


def preloaded(site: Path, work: Path) -> dict[str, str]:
    return {"LD_PRELOAD": put(work / "old", "libnccl.so.98") + "/libnccl.so.98"}


def no_runtime(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cu99/lib/libcudart.so.99").unlink()
    return {}


def runtime_in_its_own_folder(site: Path, work: Path) -> dict[str, str]:
    """Where torch's RPATH does not look, but its table does."""
    (site / "nvidia/cuda_runtime/lib").mkdir(parents=True)
    moved = site / "nvidia/cuda_runtime/lib/libcudart.so.99"
    (site / "nvidia/cu99/lib/libcudart.so.99").rename(moved)
    return {}


def no_builtins(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cu99/lib/libnvrtc-builtins.so.99.0").unlink()
    return {}


def no_sparse(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cusparselt/lib/libcusparseLt.so.96").unlink()
    return {}


def dangling(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/nccl/lib/libnccl.so.98").unlink()
    (site / "nvidia/nccl/lib/libnccl.so.98").symlink_to("libnccl.so.98.21.5")
    return {}


def damaged(site: Path, work: Path) -> dict[str, str]:
    (site / "nvidia/cudnn/lib/libcudnn.so.97").write_bytes(b"")
    return {}


def link_mends(site: Path, work: Path) -> dict[str, str]:
    """A dangling link goes unnoticed where another copy is found."""
    old = work / "old"
    old.mkdir()
    (old / "libcudnn_graph.so.97").symlink_to("libcudnn_graph.so.97.1.0")
    return {"LD_LIBRARY_PATH": str(old)}


def other_machine(site: Path, work: Path) -> dict[str, str]:
    old = work / "old"
    old.mkdir()
    (old / "libcudnn_graph.so.97").write_bytes(elf_file.library("libcudnn_graph.so.97", machine=40))
    return {"LD_LIBRARY_PATH": str(old)}


ERRORS: list[tuple[Change, str, list[str]]] = [
    (nothing, "whole", []),
    (nothing, "none", []),
    (nothing, "some", []),
    (older_cudnn_first, "whole", ["cuda-library-shadowed"]),
    (one_older_part_first, "whole", ["cuda-cudnn-parts-mixed"]),
    (exact_part_first, "whole", []),
    (runtime_first, "whole", []),
    (runtime_first, "none", []),
    (here, "whole", ["cuda-library-missing"]),  # the other parts are looked for beside it
    (preloaded, "whole", []),
    (no_runtime, "whole", ["cuda-library-missing"]),
    (runtime_in_its_own_folder, "whole", []),
    (runtime_in_its_own_folder, "some", []),
    (no_builtins, "whole", ["cuda-nvrtc-builtins-missing"]),
    (no_sparse, "whole", ["cuda-library-missing"]),
    (dangling, "whole", ["cuda-library-dangling"]),
    (damaged, "whole", ["cuda-library-damaged"]),
    (link_mends, "whole", []),
    (other_machine, "whole", []),
]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    root = tmp_path.resolve()

    def examine(change: Change, form: str) -> tuple[Path, dict[str, str], Host, Subject]:
        site = fake_cuda.build(root / "env", form)
        (root / "work").mkdir()
        variables = change(site, root / "work")
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(root / "work")
        host = LiveHost()
        subject = subject_of(host, root)
        subject.get(LoadedLibraries)
        return root, variables, host, subject

    return examine


def subject_of(host: Host, root: Path) -> Subject:
    question = Question(python=f"{root}/env/bin/python")
    return Subject("host", REGISTRY, host=host, given=[question])


def results(subject: Subject) -> list[CheckResult]:
    """Of all checks of libraries but the two that need --deep: they are blocked."""
    checks = [
        check for id, check in REGISTRY.checks.items() if id.startswith(IDS) and id not in DEEP
    ]
    assert len(checks) == 9
    return run(checks, subject)


def errors(found: list[CheckResult]) -> list[str]:
    crashed = [row.reason for row in found if row.outcome == "crashed"]
    assert crashed == []
    return sorted(f.check for row in found for f in row.findings if f.severity == "error")


@pytest.mark.parametrize(("change", "form", "wanted"), ERRORS)
def test_what_is_loaded_and_what_is_wrong(
    machine: Callable[..., Any], change: Change, form: str, wanted: list[str]
) -> None:
    root, variables, host, subject = machine(change, form)
    try:
        loaded = subject.get(LoadedLibraries)
        assert isinstance(loaded, LoadedLibraries), loaded
        found = results(subject)
    finally:
        host.close()
    mapped, failed = fake_cuda.truth(root / "env", variables, root / "work")
    ours = {path for path in mapped if library_of(os.path.basename(path))}
    steps = [row.step for row in loaded.failures]
    assert ("import torch" in steps) == (failed is not None), failed
    if failed is None:  # what was loaded before a failure does not matter
        assert {os.path.realpath(row.path) for row in loaded.rows} == ours
    assert errors(found) == wanted
    replay = subject_of(Host(list(host.captures.values())), root)
    assert replay.get(LoadedLibraries) == loaded


def test_facts_of_a_healthy_environment(machine: Callable[..., Any]) -> None:
    _, _, host, subject = machine(nothing, "whole")
    try:
        copies, pins = subject.get(LibraryCopies), subject.get(LibraryPins)
        found = results(subject)
    finally:
        host.close()
    versions = {
        row.library: (row.version, row.version_from) for row in copies.rows if row.owner is not None
    }
    assert versions["cudnn_graph"] == ("97.19.0.56", "the distribution nvidia-cudnn-cu99")
    assert versions["cudart"] == ("99.0.96", "the distribution nvidia-cuda-runtime")
    assert {row.library for row in pins.rows} >= {"cudnn", "nccl", "cublasLt", "cusparseLt"}
    outcomes = {row.check: row.outcome for row in found}
    assert outcomes.pop("cuda-compat-misplaced") in ("blocked", "not_applicable")
    assert set(outcomes.values()) == {"passed"}


def test_an_environment_behind_a_link(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    fake_cuda.build(root / "far" / "env")
    (root / "env").symlink_to("far/env")
    host = LiveHost()
    try:
        subject = subject_of(host, root)
        loaded = subject.get(LoadedLibraries)
        found = results(subject)
    finally:
        host.close()
    assert all(row.copy.owner for row in loaded.rows if row.copy.library != "cuda")
    assert loaded.rows[0].copy.path.startswith(f"{root}/env/lib/")
    assert errors(found) == []


def engine(site: Path, name: str, modules: dict[str, list[str]]) -> None:
    """An installed engine with extension modules: name -> what it needs."""
    package = site / name.replace("-", "_")
    package.mkdir()
    (package / "__init__.py").write_text("")
    for module, needed in modules.items():
        (package / module).write_bytes(elf_file.library(None, needed))
    info = site / f"{package.name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


def test_an_engine_for_another_cuda(machine: Callable[..., Any]) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        needed = ["libtorch_cuda.so", "libcudart.so.98", "libcuda.so.1"]
        engine(site, "vllm", {"_C.abi3.so": needed, "_moe_C.abi3.so": needed})
        return {}

    _, _, host, subject = machine(change, "whole")
    try:
        found = results(subject)
    finally:
        host.close()
    (finding,) = (f for row in found for f in row.findings if f.severity == "error")
    assert (finding.check, finding.about) == ("cuda-library-missing", "libcudart.so.98")
    assert finding.fixes[0].title.startswith("Install a build of vllm for CUDA 99.0")


def test_a_runtime_of_another_cuda_beside_it(machine: Callable[..., Any]) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        engine(site, "vllm", {"_C.abi3.so": ["libtorch_cuda.so", "libcudart.so.98"]})
        return {"LD_LIBRARY_PATH": put(work / "old", "libcudart.so.98")}

    _, _, host, subject = machine(change, "whole")
    try:
        assert errors(results(subject)) == ["cuda-library-majors-mixed"]
    finally:
        host.close()


@pytest.mark.parametrize("there", [True, False])
def test_tensorrt_loads_its_libraries_by_hand(machine: Callable[..., Any], there: bool) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        module = f"bindings{EXTENSION_SUFFIXES[0]}"
        engine(site, "tensorrt-llm", {module: ["libnvinfer.so.95", "libnvinfer_plugin.so.95"]})
        (site / "tensorrt_libs").mkdir()
        for name, needed in (("libnvinfer_plugin", ["libnvinfer.so.95"]), ("libnvinfer", [])):
            if there or name == "libnvinfer":
                data = elf_file.library(f"{name}.so.95", needed)
                (site / "tensorrt_libs" / f"{name}.so.95").write_bytes(data)
        return {}

    _, _, host, subject = machine(change, "whole")
    try:
        loaded = subject.get(LoadedLibraries)
        found = results(subject)
    finally:
        host.close()
    assert "nvinfer" in [row.copy.library for row in loaded.rows]
    assert errors(found) == ([] if there else ["cuda-library-missing"])


def test_a_file_that_was_written_over_has_its_own_version(machine: Callable[..., Any]) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        graph = site / "nvidia/cudnn/lib/libcudnn_graph.so.97"
        graph.write_bytes(fake_cuda.library("libcudnn_graph.so.97", "97.10.2") + b"longer")
        return {}

    _, _, host, subject = machine(change, "whole")
    try:
        (row,) = [r for r in subject.get(LibraryCopies).rows if r.library == "cudnn_graph"]
        found = results(subject)
    finally:
        host.close()
    assert (row.version, row.version_from, row.owner) == ("97.10.2", "its symbols", None)
    assert errors(found) == ["cuda-cudnn-parts-mixed"]


def test_deep_loads_each_copy_and_says_which_cannot_be(machine: Callable[..., Any]) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        nccl = site / "nvidia/nccl/lib/libnccl.so.98"
        nccl.write_bytes(elf_file.library("libnccl.so.98", ["libnothing.so.1"]))
        return {}

    root, _, host, _ = machine(change, "whole")
    question = Question(python=f"{root}/env/bin/python")
    subject = Subject("host", REGISTRY, host=host, given=[question], deep=True)
    try:
        run, nvrtc = subject.get(LibraryRun), subject.get(NvrtcRun)
    finally:
        host.close()
    (path, error), *others = run.unloadable.items()
    assert (os.path.basename(path), others) == ("libnccl.so.98", [])
    assert error.startswith("libnothing.so.1: cannot open shared object file")
    assert run.versions == {}  # these libraries have no functions
    assert run.ended_in is None
    assert "NVRTC could not be asked" in nvrtc.reason


def test_torch_that_loads_in_another_way_is_unknown(machine: Callable[..., Any]) -> None:
    def change(site: Path, work: Path) -> dict[str, str]:
        (site / "torch" / "__init__.py").write_text("import ctypes\n")
        return {}

    _, _, host, subject = machine(change, "whole")
    try:
        found = results(subject)
    finally:
        host.close()
    outcomes = {row.outcome for row in found if row.check != "cuda-compat-misplaced"}
    assert outcomes == {"blocked"}
    assert any("in a way that is not known here" in (row.reason or "") for row in found)
