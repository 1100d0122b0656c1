"""The check of nvcc and ninja, and the facts behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from environment_facts import PYTHON, dist, engine, environ, installed

from infer_doctor.checks.kernel_build import nvcc_missing
from infer_doctor.facts.environment import Interpreter, distributions
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.kernel_build import (
    CudaCompiler,
    FlashInfer,
    cuda_compiler,
    flash_infer,
    samples_by_default,
)
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.host import Absent
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine

VLLM = engine(dist("vllm", "0.26.0"))
TRT = engine(dist("tensorrt-llm", "1.2.1"), name="tensorrt-llm")
BARE = FlashInfer(version="0.6.14", prebuilt=False, compiled=None, sampler=True)
THERE = CudaCompiler(
    nvcc="/usr/local/cuda/bin/nvcc",
    wanted="PATH and /usr/local/cuda",
    ninja="/srv/engine/bin/ninja",
    ninja_beside="/srv/engine/bin/ninja",
)
NO_NVCC = replace(THERE, nvcc=None)
NO_NINJA = replace(THERE, ninja=None)
HOPPER = GpuCapabilities(capabilities={0: (9, 0)}, source="NVML")
TURING = GpuCapabilities(capabilities={0: (7, 5)}, source="NVML")
TORCH = TorchBuild(version="2.11.0+cu130", cuda="13.0", source="/s/torch/version.py")


def test_nvcc_missing() -> None:
    contract(
        nvcc_missing,
        fires=[VLLM, BARE, NO_NVCC, HOPPER, environ()],
        passes=[VLLM, BARE, THERE, HOPPER, environ()],
    )


@pytest.mark.parametrize(
    ("facts", "severities"),
    [
        ((VLLM, BARE, NO_NVCC, environ()), ["error"]),
        ((VLLM, BARE, NO_NVCC, environ(VLLM_USE_FLASHINFER_SAMPLER="0")), []),
        ((VLLM, BARE, NO_NVCC, environ(VLLM_USE_FLASHINFER_SAMPLER="1")), ["error"]),
        ((VLLM, replace(BARE, prebuilt=True), NO_NVCC, environ()), []),
        ((VLLM, replace(BARE, compiled="/c/sampling.so"), NO_NVCC, environ()), []),
        ((VLLM, replace(BARE, sampler=False), NO_NVCC, environ()), []),
        (
            (
                VLLM,
                replace(BARE, sampler=False),
                NO_NVCC,
                environ(VLLM_USE_FLASHINFER_SAMPLER="1"),
            ),
            ["error"],
        ),
        ((VLLM, BARE, NO_NINJA, environ()), ["warning"]),
        ((VLLM, BARE, replace(NO_NINJA, ninja_beside=None), environ()), ["error"]),
        ((VLLM, BARE, replace(NO_NVCC, ninja=None), environ()), ["error", "warning"]),
        ((TRT, replace(BARE, sampler=False), NO_NVCC, environ()), ["warning"]),
    ],
)
def test_cases(facts: tuple[object, ...], severities: list[str]) -> None:
    found = examine(nvcc_missing, *facts, HOPPER)
    assert [row.severity for row in found.findings] == severities


def test_gpus_on_which_it_is_not_used() -> None:
    found = examine(nvcc_missing, VLLM, BARE, NO_NVCC, TURING, environ())
    assert found.outcome == "not_applicable"


def test_message_and_fixes() -> None:
    home = replace(NO_NVCC, wanted="CUDA_HOME=/usr/local/cuda")
    facts = (VLLM, BARE, home, HOPPER, environ(), PYTHON, installed(), TORCH)
    (finding,) = examine(nvcc_missing, *facts).findings
    assert finding.message == (
        "FlashInfer 0.6.14 compiles its sampler when the engine starts and finds no nvcc "
        "(CUDA_HOME=/usr/local/cuda)"
    )
    assert [fix.actions[0].text for fix in finding.fixes] == [
        "export VLLM_USE_FLASHINFER_SAMPLER=0",
        "uv pip install --python /srv/engine/bin/python "
        "--extra-index-url https://flashinfer.ai/whl/cu130 flashinfer-jit-cache==0.6.14",
    ]


@pytest.fixture
def host() -> Iterator[LiveHost]:
    found = LiveHost()
    yield found
    found.close()


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_nvcc_where_flashinfer_takes_it(host: LiveHost, tmp_path: Path) -> None:
    nvcc = program(tmp_path / "cuda/bin/nvcc")
    ninja = program(tmp_path / "env/bin/ninja")
    here = replace(PYTHON, executable=f"{tmp_path}/env/bin/python")
    by_path = cuda_compiler(host, environ(PATH=f"{nvcc.parent}"), here)
    assert (by_path.nvcc, by_path.ninja, by_path.ninja_beside) == (str(nvcc), None, str(ninja))
    wrong = cuda_compiler(host, environ(PATH=f"{nvcc.parent}", CUDA_HOME=f"{tmp_path}/none"), here)
    assert (wrong.nvcc, wrong.wanted) == (None, f"CUDA_HOME={tmp_path}/none")
    by_home = cuda_compiler(host, environ(PATH="", CUDA_PATH=f"{tmp_path}/cuda"), here)
    assert by_home.nvcc == str(nvcc)


ENVS = "if TYPE_CHECKING:\n    VLLM_USE_FLASHINFER_SAMPLER: bool = True\n"
"""A line of vLLM 0.26 and 0.32."""


@pytest.mark.parametrize(
    ("envs", "sampler", "expected"),
    [
        (ENVS, "flashinfer_sample(logits)", True),
        (ENVS, "if has_flashinfer(): pass", False),
        (ENVS.replace("True", "False"), "", False),
        ("    VLLM_USE_FLASHINFER_SAMPLER: Optional[bool] = None\n", "", False),
        ("", "", False),
    ],
)
def test_samples_by_default(envs: str, sampler: str, expected: bool) -> None:
    assert samples_by_default(envs, sampler) is expected


def test_the_installed_flashinfer(host: LiveHost, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in ("vllm/envs.py", "vllm/v1/sample/ops/topk_topp_sampler.py"):
        program(site / name).write_text(ENVS)
    program(site / "flashinfer/__init__.py")
    info = program(site / "flashinfer_python-0.6.14.dist-info/METADATA")
    info.write_text("Metadata-Version: 2.1\nName: flashinfer-python\nVersion: 0.6.14\n")
    here = Interpreter(**{**vars(PYTHON), "folders": (str(site),), "site": str(site)})
    vllm = replace(VLLM, package=f"{site}/vllm")
    rows = distributions(host, here)
    home = environ(HOME=str(tmp_path))
    assert flash_infer(host, home, here, rows, vllm) == BARE
    library = tmp_path / ".cache/flashinfer/0.6.14/90a/cached_ops/sampling/sampling.so"
    program(library)
    fresh = LiveHost()
    assert flash_infer(fresh, home, here, rows, vllm).compiled == str(library)
    program(site / "flashinfer_jit_cache/__init__.py")
    fresh.close()
    fresh = LiveHost()
    assert flash_infer(fresh, home, here, rows, vllm).prebuilt
    fresh.close()
    with pytest.raises(Absent):
        flash_infer(host, home, here, rows, replace(vllm, build="cpu"))
