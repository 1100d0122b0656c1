"""Fixtures of the whole suite: machines that were captured, as libraries that play them."""

import json
from pathlib import Path
from typing import Any

import nvml_library
import pytest

CAPTURES = Path(__file__).parent / "captures"


def captured_nvml(machine: str) -> dict[str, Any]:
    """What NVML said on a real machine."""
    found: dict[str, Any] = json.loads((CAPTURES / machine / "nvml.json").read_text())
    return found


@pytest.fixture(scope="session")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a libnvidia-ml.so.1 that plays a machine with one H200."""
    return nvml_library.build(captured_nvml("h200"), tmp_path_factory.mktemp("nvml-h200"))


@pytest.fixture(scope="session")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a machine with two H200 and NVLink."""
    return nvml_library.build(captured_nvml("h200-x2"), tmp_path_factory.mktemp("nvml-h200-x2"))
