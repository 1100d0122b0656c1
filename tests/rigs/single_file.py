"""infer-doctor.pyz, built once for all tests that run it."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def built() -> Path:
    """The file; INFER_DOCTOR_TEST_PYZ may name one that was built before."""
    if given := os.environ.get("INFER_DOCTOR_TEST_PYZ"):
        return Path(given)
    folder = tempfile.mkdtemp(prefix="infer-doctor-pyz-")
    output = Path(folder, "infer-doctor.pyz")
    words = [sys.executable, str(ROOT / "scripts" / "make_pyz.py"), "-o", str(output)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return output


def remove() -> None:
    """Take it away again, if it was built here."""
    if built.cache_info().currsize and "INFER_DOCTOR_TEST_PYZ" not in os.environ:
        shutil.rmtree(built().parent, ignore_errors=True)


def interpreters() -> dict[str, str]:
    """Version -> command of each Python that answers here."""
    found = {}
    for version in ("3.10", "3.11", "3.12", "3.13"):
        command = shutil.which(f"python{version}")
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            command = sys.executable
        if command and subprocess.run([command, "-c", ""], capture_output=True).returncode == 0:
            found[version] = command
    return found
