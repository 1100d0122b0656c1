"""The version files of torch and its companions, and the list of architectures."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infer_doctor.facts.environment import Distribution
from infer_doctor.facts.torch import (
    ARCH_LIBRARY,
    TorchBuild,
    companion,
    parse_version,
    torch_archs,
)
from infer_doctor.host import Absent, Unavailable
from infer_doctor.live import LiveHost

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"


def test_real_version_files() -> None:
    cpu = parse_version((CAPTURES / "torch-cpu-plain.txt").read_text(), "/s/torch/version.py")
    assert (cpu.version, cpu.cuda, cpu.hip, cpu.kind) == ("2.13.0+cpu", None, None, "cpu")
    assert cpu.folder == "/s/torch"
    cuda = parse_version((CAPTURES / "torch-cuda.txt").read_text(), "/s/torch/version.py")
    assert (cuda.version, cuda.cuda, cuda.kind) == ("2.11.0+cu130", "13.0", "cuda")


def test_older_version_files() -> None:
    text = "__version__ = '2.1.0+rocm5.6'\ndebug = False\ncuda = None\nhip = '5.6.31061'\n"
    assert parse_version(text, "v").kind == "rocm"
    assert parse_version("__version__ = '2.8.0+xpu'\nxpu: Optional[str] = '20250101'\n", "v").xpu


@pytest.mark.parametrize("text", ["", "cuda = '13.0'\n", "__version__ = compute()\n", "\\xff\0"])
def test_broken_version_files(text: str) -> None:
    with pytest.raises(Unavailable, match="names no version"):
        parse_version(text, "/s/torch/version.py")


@pytest.mark.parametrize(
    ("version", "kind", "cuda"),
    [
        ("0.28.0+cu130", "cuda", (13, 0)),
        ("2.11.1+cu132", "cuda", (13, 2)),
        ("0.21.0+cu118", "cuda", (11, 8)),
        ("0.28.0+cpu", "cpu", None),
        ("0.20.0+rocm6.2", "rocm", None),
        ("0.23.0+xpu", "xpu", None),
        ("0.28.0", None, None),
        ("0.25.0a0+1e53952", None, None),
        ("0.25.0+custom1", None, None),
    ],
)
def test_companion(version: str, kind: str | None, cuda: tuple[int, int] | None) -> None:
    found = companion("torchvision", version, "s")
    assert (found.kind, found.cuda, found.requires) == (kind, cuda, None)


def test_what_a_companion_requires() -> None:
    metadata = Distribution(
        name="torchvision",
        written_name="torchvision",
        version="0.28.0",
        requires=("numpy", "torchdata", 'torch>=1; extra == "x"', "torch (==2.13.0)"),
        requires_python=None,
        installer="pip",
        project=None,
        record=True,
        metadata="/s/torchvision-0.28.0.dist-info",
    )
    assert companion("torchvision", "0.28.0", "s", metadata).requires == "torch (==2.13.0)"


LISTS = {
    "several": (b"x\0sm_75 sm_80 sm_90\0y", "sm_75 sm_80 sm_90"),
    "with PTX": (b"\0sm_80 sm_90a compute_90\0", "sm_80 sm_90a compute_90"),
    "one": (b"\0sm_87\0", "sm_87"),
    "family": (b"\0sm_100f sm_120f\0", "sm_100f sm_120f"),
    "the longest": (b"\0sm_90\0 .. \0sm_80 sm_90\0", "sm_80 sm_90"),
    "no list": (b"sm_90 and more text\0sm_\0", None),
    "empty": (b"", None),
}


@pytest.mark.parametrize("name", LISTS)
def test_archs(tmp_path: Path, name: str) -> None:
    data, wanted = LISTS[name]
    (tmp_path / ARCH_LIBRARY).parent.mkdir()
    (tmp_path / ARCH_LIBRARY).write_bytes(data)
    host = LiveHost()
    try:
        if wanted is None:
            with pytest.raises(Unavailable, match="no list of architectures"):
                torch_archs(host, torch(tmp_path))
        else:
            assert torch_archs(host, torch(tmp_path)).archs == tuple(wanted.split())
    finally:
        host.close()


def test_archs_without_cuda() -> None:
    build = TorchBuild(version="2.13.0+cpu", cuda=None, source="v")
    with pytest.raises(Absent, match="not built for CUDA"):
        torch_archs(LiveHost(), build)


def torch(folder: Path) -> TorchBuild:
    return TorchBuild(version="2.11.0", cuda="13.0", source="v", folder=str(folder))


@pytest.mark.engine
def test_archs_are_those_of_torch_itself() -> None:
    """Needs a real torch for CUDA; it answers without a GPU."""
    python = os.environ.get("INFER_DOCTOR_TEST_CUDA_PYTHON")
    if not python:
        pytest.skip("INFER_DOCTOR_TEST_CUDA_PYTHON names no interpreter with a torch for CUDA")
    code = "import torch; print(torch.__file__); print(torch._C._cuda_getArchFlags())"
    file, said = subprocess.check_output([python, "-c", code], text=True).splitlines()
    host = LiveHost()
    try:
        assert torch_archs(host, torch(Path(file).parent)).archs == tuple(said.split())
    finally:
        host.close()
