"""The check of FlashInfer's parts."""

from __future__ import annotations

import pytest
from environment_facts import PYTHON, dist, environ, installed

from infer_doctor.checks.env_flashinfer import flashinfer_mixed
from infer_doctor.testing import contract, examine

MAIN = dist("flashinfer-python", "0.6.14")


def test_flashinfer_mixed() -> None:
    contract(
        flashinfer_mixed,
        fires=[installed(MAIN, dist("flashinfer-jit-cache", "0.6.13+cu130")), environ(), PYTHON],
        passes=[installed(MAIN, dist("flashinfer-jit-cache", "0.6.14+cu130")), environ(), PYTHON],
    )


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ((), None),
        ((MAIN,), None),
        ((dist("flashinfer-cubin", "0.6.14"),), None),
        ((MAIN, dist("flashinfer-cubin", "0.6.14")), []),
        ((MAIN, dist("flashinfer-cubin", "0.6.9")), ["flashinfer-cubin"]),
        ((MAIN, dist("flashinfer-cubin", "0.6.14.post1")), ["flashinfer-cubin"]),
    ],
)
def test_cases(rows: tuple[object, ...], found: list[str] | None) -> None:
    result = examine(flashinfer_mixed, installed(*rows), environ(), PYTHON)  # type: ignore[arg-type]
    assert (result.outcome == "not_applicable") is (found is None)
    assert [row.about for row in result.findings] == (found or [])


def test_the_variable_and_the_command() -> None:
    rows = installed(MAIN, dist("flashinfer-jit-cache", "0.6.13+cu130"))
    bypass = environ(FLASHINFER_DISABLE_VERSION_CHECK="1")
    assert examine(flashinfer_mixed, rows, bypass, PYTHON).outcome == "not_applicable"
    (finding,) = examine(flashinfer_mixed, rows, environ(), PYTHON).findings
    assert finding.fixes[0].actions[0].text == (
        "uv pip install --python /srv/engine/bin/python "
        "--extra-index-url https://flashinfer.ai/whl/cu130 flashinfer-jit-cache==0.6.14"
    )
