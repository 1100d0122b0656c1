"""The checks of what compiles kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infer_doctor.checks.toolchain import compiler_missing, headers_missing
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.machine import OperatingSystem
from infer_doctor.facts.toolchain import Compiler, Compilers, PythonHeaders
from infer_doctor.launch.command import read as launch_of
from infer_doctor.testing import contract, examine

PYTHON = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.12",
    full_version="3.12.3",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=(),
    site="/srv/engine/lib/python3.12/site-packages",
    include="/usr/include/python3.12",
    managed=False,
)
UBUNTU = OperatingSystem(id="ubuntu", like=("debian",), name="Ubuntu 24.04")
ROCKY = OperatingSystem(id="rocky", like=("rhel", "centos", "fedora"), name="Rocky 9")

C = Compiler(wanted="gcc or clang on PATH", path="/usr/bin/gcc")
CXX = Compiler(wanted="g++ on PATH", path="/usr/bin/g++")
BOTH = Compilers(c=C, cxx=CXX, triton="3.6.0")
NO_C = replace(BOTH, c=replace(C, path=None))
NO_CXX = replace(BOTH, cxx=replace(CXX, path=None))
THERE = PythonHeaders(path="/usr/include/python3.12/Python.h", present=True)
GONE = replace(THERE, present=False)


def engine(build: str | None, name: str = "vllm") -> EngineFact:
    return EngineFact(
        name=name, version="0.26.0", distribution=name, package=f"/s/{name}", build=build
    )


def test_compiler_missing() -> None:
    contract(compiler_missing, fires=[engine("cuda"), NO_C], passes=[engine("cuda"), BOTH])


@pytest.mark.parametrize(
    ("build", "compilers", "fires"),
    [
        ("cuda", NO_CXX, False),
        ("cuda", NO_C, True),
        ("rocm", NO_C, True),
        (None, NO_C, True),
        ("cpu", NO_C, False),
        ("cpu", NO_CXX, True),
    ],
)
def test_each_build_needs_its_own(build: str | None, compilers: Compilers, fires: bool) -> None:
    found = examine(compiler_missing, engine(build), compilers)
    assert bool(found.findings) is fires


def test_compiler_fixes() -> None:
    def first(*facts: object) -> str:
        (finding,) = examine(compiler_missing, *facts).findings
        return finding.fixes[0].actions[0].text

    assert first(engine("cuda"), NO_C, UBUNTU) == "apt-get install -y gcc"
    assert first(engine("cpu"), NO_CXX, ROCKY) == "dnf install -y gcc-c++"
    wrong = replace(BOTH, c=Compiler(wanted="CC=gcc-99", path=None))
    assert first(engine("cuda"), wrong) == "unset CC"


def test_eager_compiles_nothing_on_the_cpu() -> None:
    eager = launch_of(["vllm", "serve", "m", "--enforce-eager"])
    for check, lacking in ((compiler_missing, [NO_CXX]), (headers_missing, [BOTH, GONE, PYTHON])):
        assert examine(check, engine("cpu"), eager, *lacking).outcome == "not_applicable"
        cuda = [NO_C] if check is compiler_missing else lacking
        assert examine(check, engine("cuda"), eager, *cuda).outcome == "failed"


def test_without_triton_nothing_is_compiled_on_a_gpu() -> None:
    bare = replace(NO_C, triton=None)
    assert examine(compiler_missing, engine("cuda"), bare).outcome == "not_applicable"
    found = examine(headers_missing, engine("cuda"), bare, GONE, PYTHON)
    assert found.outcome == "not_applicable"


def test_tensorrt_llm_needs_it_for_some_models_only() -> None:
    (finding,) = examine(compiler_missing, engine("cuda", "tensorrt-llm"), NO_C).findings
    assert (finding.severity, finding.confidence) == ("warning", "possible")


def test_headers_missing() -> None:
    contract(
        headers_missing,
        fires=[engine("cuda"), BOTH, GONE, PYTHON],
        passes=[engine("cuda"), BOTH, THERE, PYTHON],
    )


def test_headers_of_the_system_and_of_another_python() -> None:
    (finding,) = examine(headers_missing, engine("cuda"), BOTH, GONE, PYTHON, UBUNTU).findings
    assert finding.fixes[0].actions[0].text == "apt-get install -y python3.12-dev"
    other = replace(PYTHON, base_prefix="/opt/uv/cpython-3.12")
    (finding,) = examine(headers_missing, engine("cpu"), BOTH, GONE, other, UBUNTU).findings
    assert finding.fixes[0].actions == ()
    assert finding.fixes[1].id == "enforce-eager"
