"""Launch files as the public documentation writes them: every check of a launch runs over each.

None of them may get an error, at most one warning, and only those listed here with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infer_doctor.examine import Examination
from infer_doctor.launch.model import Launch
from infer_doctor.model import CheckResult
from infer_doctor.registry import Registry
from infer_doctor.targets import look

FILES = sorted((Path(__file__).parent.parent / "cases" / "launch").iterdir())

GATED = "the model is behind a licence and the file sets no token; who logged in before has one"

JUSTIFIED: dict[tuple[str, str], str] = {
    ("serve-tensor-parallel.sh", "launch-hub-token-missing"): GATED,
    ("vllm-config-parallel.yaml", "launch-hub-token-missing"): GATED,
    ("trtllm-mpi.sh", "launch-hub-token-missing"): GATED,
}
"""(file, check) of a warning -> why it is right."""

LAUNCHES = {
    "serve-two-gpus.sh": 2,
    "compose-anchors.yaml": 2,
    "kserve-runtime.yaml": 2,
}
"""Engines that a file starts, where not one."""


@pytest.fixture(scope="module")
def registry() -> Registry:
    found = Registry()
    found.add_package("infer_doctor.facts")
    found.add_package("infer_doctor.checks")
    return found


def results_of(path: Path, registry: Registry) -> list[CheckResult]:
    """All checks that need the launch, on no machine."""
    found = look(str(path))
    elsewhere = tuple(replace(launch, machine="another") for launch in found.launches)
    alone = replace(found, launches=elsewhere)
    return Examination.of(registry, targets=[alone]).run(registry.checks.values())


def test_there_are_thirty() -> None:
    assert len(FILES) >= 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_engine_is_found(path: Path) -> None:
    found = look(str(path))
    assert len(found.launches) == LAUNCHES.get(path.name, 1)
    for launch in found.launches:
        assert launch.engine is not None
        assert launch.gaps == ()
        for part in (*launch.words, *launch.environment):
            assert part.place.file == str(path)
            assert part.place.line
        assert all(key.place.line for key in launch.config)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_error_and_at_most_one_justified_warning(path: Path, registry: Registry) -> None:
    results = results_of(path, registry)
    assert results
    assert [(row.check, row.reason) for row in results if row.outcome == "crashed"] == []
    found = [finding for row in results for finding in row.findings]
    errors = [(f.check, f.message) for f in found if f.severity == "error"]
    assert errors == []
    warnings = [(f.check, f.message) for f in found if f.severity == "warning"]
    assert len(warnings) <= 1, warnings
    assert [(c, m) for c, m in warnings if (path.name, c) not in JUSTIFIED] == []


def test_every_justification_is_still_needed(registry: Registry) -> None:
    warned = {
        (path.name, row.check)
        for path in FILES
        for row in results_of(path, registry)
        if any(finding.severity == "warning" for finding in row.findings)
    }
    assert set(JUSTIFIED) - warned == set()
    assert {path for path, _ in JUSTIFIED} <= {path.name for path in FILES}


def test_only_checks_of_the_launch_run(registry: Registry) -> None:
    ids = {row.check for row in results_of(FILES[0], registry)}
    assert "driver-missing" not in ids
    assert "launch-machine-unknown" in ids
    assert Launch in [need.fact for need in registry.checks["launch-machine-unknown"].needs]
