"""The example package of docs/ is really installed, beside the doctor, and really runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "docs" / "example-plugin"


@pytest.fixture(scope="module")
def plugin_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees this one's packages and has the example installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "parent.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*install, *offline, str(source)], check=True, capture_output=True)
    return python


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "infer_doctor", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_its_check_is_listed_explained_and_run(plugin_environment: Path) -> None:
    assert "host-swap-on" in run(plugin_environment, "list").stdout
    assert "/proc/swaps lists" in run(plugin_environment, "explain", "host-swap-on").stdout
    result = run(plugin_environment, "check", "--select", "host-swap-on", "--format", "json")
    (row,) = json.loads(result.stdout)["results"]
    assert row["check"] == "host-swap-on"
    assert row["outcome"] in ("passed", "failed"), row


def test_its_own_test_passes(plugin_environment: Path) -> None:
    test = EXAMPLE / "test_example.py"
    command = [plugin_environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, capture_output=True, text=True, cwd=test.parent)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_plugin_that_cannot_be_loaded_is_named_and_stops_nothing(
    plugin_environment: Path,
) -> None:
    site = next(plugin_environment.parent.parent.glob("lib/python*/site-packages"))
    broken = site / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[infer_doctor.checks]\nbroken = no_such_module\n")
    try:
        result = run(plugin_environment, "list")
    finally:
        shutil.rmtree(broken)
    assert result.returncode == 0
    assert "plugin 'broken' could not be loaded: ModuleNotFoundError" in result.stderr
    assert "driver-missing" in result.stdout
