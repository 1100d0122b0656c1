"""The checks of distributions that do not belong together, and of the Python."""

from __future__ import annotations

from dataclasses import replace

import pytest
from environment_facts import PYTHON, SITE, dist, engine, installed

from infer_doctor.checks.env_packages import (
    cuda_wheels_mixed,
    pynvml_deprecated,
    python_unsupported,
)
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.testing import contract, examine

VLLM = dist("vllm", "0.26.0", "torch==2.11.0")
PARTS = EngineParts(libraries=("_C.abi3.so",), pythons=(), own_nvml=True)
OLD_PARTS = replace(PARTS, own_nvml=False)
ML = dist("nvidia-ml-py", "13.580.65")
TORCH = TorchBuild(
    version="2.11.0+cu130", cuda="13.0", source=f"{SITE}/torch/version.py", folder=f"{SITE}/torch"
)


def test_pynvml_deprecated() -> None:
    contract(
        pynvml_deprecated,
        fires=[engine(VLLM), installed(VLLM, ML, dist("pynvml", "11.5.0")), PYTHON, OLD_PARTS],
        passes=[engine(VLLM), installed(VLLM, ML), PYTHON, OLD_PARTS],
    )


@pytest.mark.parametrize(
    ("version", "parts", "severity"),
    [
        ("8.0.4", OLD_PARTS, "warning"),
        ("11.5.3", OLD_PARTS, "warning"),
        ("11.5.3", PARTS, "info"),
        ("12.0.0", OLD_PARTS, None),
        ("13.0.1", OLD_PARTS, "info"),
        ("13.0.1", PARTS, "info"),
    ],
)
def test_pynvml_by_version(version: str, parts: EngineParts, severity: str | None) -> None:
    rows = installed(VLLM, ML, dist("pynvml", version))
    found = examine(pynvml_deprecated, engine(VLLM), rows, PYTHON, parts)
    assert [finding.severity for finding in found.findings] == ([severity] if severity else [])
    for finding in found.findings:
        assert finding.fixes[0].actions[0].text == (
            "uv pip uninstall --python /srv/engine/bin/python pynvml"
        )


def test_pynvml_alone_hides_nothing() -> None:
    rows = installed(VLLM, dist("pynvml", "11.5.0"))
    assert examine(pynvml_deprecated, engine(VLLM), rows, PYTHON, OLD_PARTS).outcome == "passed"


def test_nvidia_ml_py_further_up_the_path_wins() -> None:
    base = "/usr/lib/python3/dist-packages"
    rows = installed(VLLM, ML, dist("pynvml", "11.5.0", folder=base))
    both = replace(PYTHON, folders=(SITE, base))
    assert examine(pynvml_deprecated, engine(VLLM), rows, both, OLD_PARTS).outcome == "passed"
    turned = replace(PYTHON, folders=(base, SITE))
    assert examine(pynvml_deprecated, engine(VLLM), rows, turned, OLD_PARTS).outcome == "failed"


@pytest.mark.parametrize(
    ("declared", "version", "severity"),
    [
        ("pynvml>=11.5.0", "12.0.0", "error"),
        ("pynvml>=11.5.0", "13.0.1", "error"),
        ("pynvml>=11.5.0", "11.5.3", None),
        ("pynvml==12.0.0", "12.0.0", None),
        ("pynvml==12.0.0", "13.0.1", None),  # env-requirement-broken tells that
    ],
)
def test_pynvml_under_tensorrt_llm(declared: str, version: str, severity: str | None) -> None:
    own = dist("tensorrt-llm", "0.14.0", declared)
    rows = installed(own, ML, dist("pynvml", version))
    trt = engine(own, name="tensorrt-llm")
    found = examine(pynvml_deprecated, trt, rows, PYTHON, OLD_PARTS)
    assert [finding.severity for finding in found.findings] == ([severity] if severity else [])


CUDNN, OLD_CUDNN = dist("nvidia-cudnn-cu13", "9.19.0.56"), dist("nvidia-cudnn-cu12", "9.10.2.21")


def test_cuda_wheels_mixed() -> None:
    contract(
        cuda_wheels_mixed,
        fires=[installed(CUDNN, OLD_CUDNN), TORCH, PYTHON],
        passes=[installed(CUDNN, dist("nvidia-cublas-cu12", "12.8")), TORCH, PYTHON],
    )


def test_all_pairs_are_one_finding() -> None:
    rows = (dist("nvidia-nccl-cu12", "2.27.5"), dist("nvidia-nccl-cu13", "2.28.9"))
    found = examine(cuda_wheels_mixed, installed(CUDNN, OLD_CUDNN, *rows), TORCH, PYTHON)
    (finding,) = found.findings
    assert finding.message == (
        "torch 2.11.0+cu130 is for CUDA 13.0; nvidia-cudnn-cu12 9.10.2.21, nvidia-nccl-cu12 2.27.5 "
        "have the same files as nvidia-cudnn-cu13 9.19.0.56, nvidia-nccl-cu13 2.28.9"
    )
    assert [action.text for action in finding.fixes[0].actions] == [
        "uv pip uninstall --python /srv/engine/bin/python nvidia-cudnn-cu12 nvidia-nccl-cu12",
        "uv pip install --python /srv/engine/bin/python --no-deps --force-reinstall "
        "nvidia-cudnn-cu13==9.19.0.56 nvidia-nccl-cu13==2.28.9",
    ]


def test_wheels_for_the_other_cuda_alone_are_no_finding() -> None:
    """cupy or onnxruntime bring them; whether torch lacks its own is asked elsewhere."""
    for rows in ((OLD_CUDNN,), (CUDNN, dist("nvidia-cufft-cu12", "11.3")), ()):
        assert examine(cuda_wheels_mixed, installed(*rows), TORCH, PYTHON).outcome == "passed"
    cpu = replace(TORCH, cuda=None)
    found = examine(cuda_wheels_mixed, installed(CUDNN, OLD_CUDNN), cpu, PYTHON)
    assert found.outcome == "not_applicable"


def test_python_unsupported() -> None:
    own = dist("vllm", "0.26.0", python=">=3.13")
    contract(
        python_unsupported,
        fires=[engine(own), PYTHON, PARTS],
        passes=[engine(VLLM), PYTHON, PARTS],
    )


TRT = dist("tensorrt-llm", "1.2.1", python=">=3.10, <4")
BINDINGS = EngineParts(
    libraries=("bindings.cpython-310-x86_64-linux-gnu.so",), pythons=("3.10",), own_nvml=False
)


@pytest.mark.parametrize(
    ("python", "parts", "found"),
    [
        ("3.12", BINDINGS, ("error", "certain")),
        ("3.10", BINDINGS, None),
        ("3.12", replace(BINDINGS, libraries=(), pythons=()), None),
        ("3.11", replace(BINDINGS, libraries=(), pythons=()), ("warning", "possible")),
        ("3.11", None, ("warning", "possible")),
        ("3.9", None, ("error", "likely")),
    ],
)
def test_python_of_tensorrt_llm(
    python: str, parts: EngineParts | None, found: tuple[str, str] | None
) -> None:
    here = replace(PYTHON, version=python, full_version=f"{python}.4")
    facts = [engine(TRT, name="tensorrt-llm"), here, *([parts] if parts else [])]
    result = examine(python_unsupported, *facts)
    assert [(row.severity, row.confidence) for row in result.findings] == ([found] if found else [])


def test_what_the_compiled_modules_say_goes_first() -> None:
    facts = (engine(TRT, name="tensorrt-llm"), PYTHON, BINDINGS)
    (finding,) = examine(python_unsupported, *facts).findings
    assert finding.message == (
        "the compiled modules of tensorrt-llm 1.2.1 are for Python 3.10; this is Python 3.12.3"
    )
    assert finding.fixes[0].title == "Make a new environment with Python 3.10 for tensorrt-llm"


def test_a_patch_release_that_is_not_known() -> None:
    rough = replace(PYTHON, full_version=None)
    own = dist("vllm", "0.26.0", python=">=3.10,!=3.12.1")
    assert examine(python_unsupported, engine(own), rough, PARTS).outcome == "passed"
