"""Copies that Python imports first: what is read from disk is what a real interpreter does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from infer_doctor.engine import Subject
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.facts.environment import Interpreter, Question
from infer_doctor.facts.shadow import HiddenPackages, LocalCopy, WorkingFolder
from infer_doctor.live import LiveHost
from infer_doctor.model import Missing
from infer_doctor.registry import load

F = TypeVar("F")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("PYTHON"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with a vLLM that has nothing but its names."""
    made = tmp_path / "engine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
    package(site(made), "vllm", "0.26.0", "_C.abi3.so")
    package(site(made), "tokenizers", "0.23.3")
    package(site(made), "torch", "2.11.0", "_C.cpython-312-x86_64-linux-gnu.so")
    return made


def site(environment: Path) -> Path:
    (found,) = environment.glob("lib/python3.*/site-packages")
    return found


def package(folder: Path, name: str, version: str | None, *files: str) -> None:
    (folder / name).mkdir(parents=True)
    for file in ("__init__.py", *files):
        (folder / name / file).write_text("")
    if version:
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def hosts() -> Iterator[list[LiveHost]]:
    made: list[LiveHost] = []
    yield made
    for host in made:
        host.close()


def get(hosts: list[LiveHost], environment: Path, fact: type[F]) -> F | Missing:
    hosts.append(LiveHost())
    question = Question(python=f"{environment}/bin/python")
    subject = Subject("host", load(), host=hosts[-1], given=[question])
    found: F | Missing = subject.get(fact)
    return found


def imported(environment: Path, name: str, *options: str) -> str:
    """Where the real interpreter takes a package from."""
    code = f"import {name}, os, json; print(json.dumps(os.path.dirname({name}.__file__)))"
    command = [f"{environment}/bin/python", *options, "-c", code]
    found: str = json.loads(subprocess.check_output(command, text=True))
    return found


def test_a_clone_on_python_path(
    environment: Path, tmp_path: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "clone", "vllm", None)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/clone")
    found = get(hosts, environment, HiddenPackages)
    assert isinstance(found, HiddenPackages)
    (row,) = found.rows
    assert (row.name, row.libraries) == ("vllm", False)
    assert row.path == imported(environment, "vllm")
    assert row.installed == f"{site(environment)}/vllm"
    interpreter = get(hosts, environment, Interpreter)
    assert isinstance(interpreter, Interpreter)
    assert interpreter.python_path == (f"{tmp_path}/clone",)


def test_what_is_meant_hides_nothing(
    environment: Path, tmp_path: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "target", "vllm", "0.27.0")  # pip install --target
    package(tmp_path / "only", "transformers", None)
    (tmp_path / "link").symlink_to(site(environment))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}/target:{tmp_path}/only:{tmp_path}/link")
    found = get(hosts, environment, HiddenPackages)
    assert isinstance(found, HiddenPackages)
    assert found.rows == ()


def test_the_own_site_packages_of_the_user(
    tmp_path: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = subprocess.check_output(
        [sys.executable, "-c", "import sys; print(sys.base_prefix)"], text=True
    ).strip()
    folder = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    package(tmp_path / folder, "vllm", None)
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    hosts.append(LiveHost())
    question = Question(python=f"{base}/bin/python3")
    subject = Subject("host", load(), host=hosts[-1], given=[question])
    found = subject.get(Interpreter)
    assert found.user_site == f"{tmp_path}/{folder}"
    monkeypatch.setenv("PYTHONNOUSERSITE", "1")
    hosts.append(LiveHost())
    subject = Subject("host", load(), host=hosts[-1], given=[question])
    assert subject.get(Interpreter).user_site is None


def test_the_package_folder_as_working_folder(
    environment: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of vLLM have names of packages; those that are not installed hide nothing."""
    inside = site(environment) / "vllm"
    for name in ("tokenizers", "ray"):
        package(inside, name, None)
    monkeypatch.chdir(inside)
    found = get(hosts, environment, WorkingFolder)
    assert isinstance(found, WorkingFolder)
    path = f"{inside}/tokenizers"
    assert found.copies == (LocalCopy(name="tokenizers", path=path, libraries=False),)
    assert imported(environment, "tokenizers") == path
    assert not found.by_variable


def test_a_script_with_the_name_of_a_package(
    environment: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("vllm.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", ":/opt/x")
    found = get(hosts, environment, WorkingFolder)
    assert isinstance(found, WorkingFolder)
    assert [copy.name for copy in found.copies] == ["vllm"]
    assert found.by_variable
    safe = ["-P"] if hasattr(sys.flags, "safe_path") else []  # 3.11
    assert imported(environment, "vllm", *safe) == os.getcwd()  # whatever Python is told


def test_a_folder_without_init_hides_nothing(environment: Path, hosts: list[LiveHost]) -> None:
    Path("torch").mkdir()
    found = get(hosts, environment, WorkingFolder)
    assert isinstance(found, WorkingFolder)
    assert found.copies == ()
    assert imported(environment, "torch") == f"{site(environment)}/torch"


def test_an_editable_install_is_meant(environment: Path, hosts: list[LiveHost]) -> None:
    package(Path("vllm").absolute(), "vllm", None)
    project = Path("vllm").absolute()
    info = site(environment) / "vllm-0.26.0.dist-info"
    (info / "direct_url.json").write_text(
        json.dumps({"url": f"file://{project}", "dir_info": {"editable": True}})
    )
    os.chdir(project)
    found = get(hosts, environment, WorkingFolder)
    assert isinstance(found, WorkingFolder)
    assert found.copies == ()


def test_the_environment_itself_as_working_folder(
    environment: Path, hosts: list[LiveHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(site(environment))
    found = get(hosts, environment, WorkingFolder)
    assert isinstance(found, Missing)
    assert found.kind == "absent"


def test_parts_of_the_engine(environment: Path, hosts: list[LiveHost]) -> None:
    found = get(hosts, environment, EngineParts)
    assert found == EngineParts(libraries=("_C.abi3.so",), pythons=(), own_nvml=False)
