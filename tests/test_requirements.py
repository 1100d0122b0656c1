"""Requirements of an engine against an environment, by the rules of pip."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.requirements import broken, fits_python, target, torch_fits, undecidable

PYTHON = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.11",
    full_version="3.11.7",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=("/s",),
    site="/s",
    include="/usr/include/python3.11",
    managed=False,
)


def dist(name: str, version: str, *requires: str) -> Distribution:
    return Distribution(
        name=name,
        written_name=name,
        version=version,
        requires=requires,
        requires_python=None,
        installer="pip",
        project=None,
        record=True,
        metadata=f"/s/{name}-{version}.dist-info",
    )


def unmet(line: str, python: Interpreter = PYTHON, machine: str = "x86_64", **have: str) -> bool:
    rows = [dist(name.replace("_", "-"), version) for name, version in have.items()]
    installed = Distributions(
        by_name={row.name: row for row in rows}, shadowed=(), shared=(), source="/s"
    )
    return bool(list(broken(dist("e", "1", line), installed, target(python, machine, "6.8"))))


@pytest.mark.parametrize(
    ("line", "have", "wanted"),
    [
        ("torch==2.13.0", {"torch": "2.13.0+cpu"}, False),
        ("torch==2.13.0+cpu", {"torch": "2.13.0+cpu"}, False),
        ("torch==2.13.0+cpu", {"torch": "2.13.0"}, True),
        ("torch==2.13.0+cpu", {"torch": "2.13.0+cu130"}, True),
        ("torch (==2.13.0)", {"torch": "2.12.0"}, True),
        ("torch>=2.8", {"torch": "2.9.0rc1"}, False),
        ("Py_CPUInfo", {"py_cpuinfo": "9"}, False),
        ("py-cpuinfo", {}, True),
        ("protobuf!=6.30.*,>=5.29.6", {"protobuf": "6.30.2"}, True),
        ('six>=1; python_version > "3.11"', {}, False),
        ('six>=1; python_version >= "3.11"', {}, True),
        ('six; python_full_version < "3.11.8"', {}, True),
        ('x; platform_machine == "s390x"', {}, False),
        ('x; platform_machine == "x86_64" and sys_platform == "linux"', {}, True),
        ('x; extra == "audio"', {}, False),
        ('x; extra == "audio" or os_name == "posix"', {}, True),
        ("mistral_common[image]>=1.11.6", {"mistral_common": "1.13"}, False),
        ("x @ https://example.org/x.whl", {"x": "1"}, False),
        ("x>=1", {"x": "unknown"}, False),
        ("not a requirement !!", {}, False),
    ],
)
def test_broken(line: str, have: dict[str, str], wanted: bool) -> None:
    assert unmet(line, **have) is wanted


def test_markers_are_those_of_the_target() -> None:
    later = replace(PYTHON, version="3.13", full_version="3.13.1")
    assert unmet('six; python_version > "3.11"', later)
    assert unmet('x; platform_machine == "aarch64"', machine="aarch64")


def test_undecidable() -> None:
    rough = replace(PYTHON, full_version=None)
    line = 'six; python_full_version < "3.11.8"'
    own = dist("e", "1", line, "torch")
    assert undecidable(own, target(PYTHON, "x86_64", "6.8")) == []
    assert undecidable(own, target(rough, "x86_64", "6.8")) == [line]
    assert not unmet(line, rough)


@pytest.mark.parametrize(
    ("requires", "full", "fits"),
    [
        ("<3.15,>=3.11", "3.11.7", True),
        (">=3.12", "3.11.7", False),
        (">=3.10,!=3.14.1", None, True),
        (">=3.11.5", None, True),
        ("<3.11", None, False),
        (None, "3.11.7", True),
        ("nonsense", "3.11.7", True),
    ],
)
def test_fits_python(requires: str | None, full: str | None, fits: bool) -> None:
    assert fits_python(requires, replace(PYTHON, full_version=full)) is fits


@pytest.mark.parametrize(
    ("line", "version", "fits"),
    [
        ("torch (==2.13.0)", "2.13.0+cpu", True),
        ("torch==2.11.0", "2.13.0+cpu", False),
        ("torch==2.9.0", "2.9.0a0+145a3a7bda.nv25.10", True),
        ("torch==2.9.0a0+145a3a7bda.nv25.10", "2.9.0a0+145a3a7bda.nv25.10", True),
        ("torch>=2.11", "2.13.0+cu130", True),
        ("torch>=2.11", "2.9.0", False),
        ("torch", "2.9.0", True),
        ("torch ?", "2.9.0", True),
    ],
)
def test_torch_fits(line: str, version: str, fits: bool) -> None:
    assert torch_fits(line, version) is fits
