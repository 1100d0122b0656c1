"""The checks that need --deep."""

from __future__ import annotations

from infer_doctor.checks.deep import context_failed, import_failed, result_wrong
from infer_doctor.facts.deep import CudaDevice, CudaRun, Imports
from infer_doctor.testing import contract, examine


def run(error: str | None = None, *devices: CudaDevice) -> CudaRun:
    return CudaRun(count=len(devices), error=error, devices=devices, source="python")


def device(deviation: float | None, error: str | None = None) -> CudaDevice:
    return CudaDevice(index=0, deviation=deviation, error=error)


def test_import_failed() -> None:
    bad = Imports(errors={"torch": None, "torchvision": "RuntimeError: nms"}, source="python")
    good = Imports(errors={"torch": None}, source="python")
    contract(import_failed, fires=[bad], passes=[good])


def test_a_missing_library_is_told_from_a_wrong_symbol() -> None:
    words = "ImportError: libcudart.so.13: cannot open shared object file: No such file"
    result = examine(import_failed, Imports(errors={"torch": words}, source="python"))
    assert [finding.category for finding in result.findings] == ["missing_lib"]


def test_context_failed() -> None:
    contract(
        context_failed,
        fires=[run("RuntimeError: Error 802: system not yet initialized")],
        passes=[run(None, device(1e-7))],
    )


def test_a_gpu_that_refuses_work_is_named() -> None:
    result = examine(context_failed, run(None, device(None, "no kernel image is available")))
    assert [finding.about for finding in result.findings] == ["cuda:0"]


def test_result_wrong() -> None:
    contract(result_wrong, fires=[run(None, device(0.5))], passes=[run(None, device(3e-4))])
