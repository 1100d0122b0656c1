"""The checks of CUDA's libraries at work."""

from __future__ import annotations

import dataclasses

import pytest

from infer_doctor.checks.deep_libraries import cublas_failed, library_unloadable, nvrtc_failed
from infer_doctor.facts.deep_libraries import CublasRow, CublasRun, LibraryRun, NvrtcRun
from infer_doctor.facts.libraries import LoadedLibraries, LoadFailure
from infer_doctor.testing import contract, examine

LOADED = LoadedLibraries(rows=(), failures=())
RUN = LibraryRun(unloadable={}, versions={"cudnn": "9.19.0"}, source="python -c ...")
NVRTC = NvrtcRun(
    arch=90, for_gpu=True, code=0, log="", archs=(75, 90, 120), path="/cu/libnvrtc.so.13"
)
SYMBOL = "/cu/libcusparse.so.12: undefined symbol: __nvJitLinkComplete_13_0"


def test_unloadable() -> None:
    contract(
        library_unloadable,
        fires=[dataclasses.replace(RUN, unloadable={"/cu/libcusparse.so.12": SYMBOL})],
        passes=[RUN],
    )


@pytest.mark.parametrize(
    ("step", "about"),
    [("load nccl", "libnccl"), ("compile", "libnvrtc"), ("multiply", "libcublas")],
)
def test_the_end_of_the_process_is_a_finding(step: str, about: str) -> None:
    (finding,) = examine(library_unloadable, dataclasses.replace(RUN, ended_in=step)).findings
    assert finding.about == about
    assert finding.confidence == "likely"


def test_nvrtc() -> None:
    failed = dataclasses.replace(NVRTC, code=6, log="f.cu(1): error: nothing\nmore")
    contract(nvrtc_failed, fires=[failed, LOADED], passes=[NVRTC, LOADED])


def test_a_gpu_that_nvrtc_does_not_know() -> None:
    words = "nvrtc: error: invalid value for --gpu-architecture (-arch)"
    failed = dataclasses.replace(NVRTC, arch=121, code=5, log=words)
    (finding,) = examine(nvrtc_failed, failed, LOADED).findings
    assert (
        finding.message
        == f"libnvrtc.so.13 compiles nothing for sm_121: it knows up to sm_120; {words}"
    )
    assert finding.category == "arch_no_kernel"


def test_missing_builtins_have_a_finding_already() -> None:
    missing = LoadFailure(
        library="nvrtc-builtins",
        name="libnvrtc-builtins.so.13.0",
        needed_by="/cu/libnvrtc.so.13",
        step="NVRTC",
        tried=(),
        damaged=False,
    )
    failed = dataclasses.replace(NVRTC, code=7, log="failed to open")
    loaded = LoadedLibraries(rows=(), failures=(missing,))
    assert examine(nvrtc_failed, failed, loaded).outcome == "blocked"
    assert examine(nvrtc_failed, failed, LOADED).outcome == "failed"


def product(**values: object) -> CublasRun:
    row = {"device": 0, "status": 0, "deviation": 1e-7, "error": None, **values}
    return CublasRun(rows=(CublasRow(**row),), path="/cu/libcublas.so.13")  # type: ignore[arg-type]


def test_cublas() -> None:
    contract(cublas_failed, fires=[product(deviation=0.5)], passes=[product()])


@pytest.mark.parametrize(
    ("values", "outcome", "category"),
    [
        ({"status": 1, "deviation": None}, "failed", "cuda_error"),
        ({"deviation": float("nan")}, "failed", "gpu_health"),
        ({"deviation": 2.0**-9}, "failed", "gpu_health"),
        ({"deviation": 2.0**-10}, "passed", None),
        ({"status": None, "deviation": None, "error": "cudaMalloc gave 2"}, "blocked", None),
    ],
)
def test_what_cublas_did(values: dict[str, object], outcome: str, category: str | None) -> None:
    result = examine(cublas_failed, product(**values))
    assert result.outcome == outcome
    assert [finding.category for finding in result.findings] == ([category] if category else [])
