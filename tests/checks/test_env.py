"""The checks of the engine's Python environment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infer_doctor.checks.env import distribution_twice, owned_twice, requirement_broken
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import (
    Distribution,
    Distributions,
    Interpreter,
    SharedFile,
)
from infer_doctor.facts.machine import Identity
from infer_doctor.testing import contract, examine

SITE = "/srv/engine/lib/python3.11/site-packages"

PYTHON = Interpreter(
    executable="/srv/engine/bin/python",
    version="3.11",
    full_version="3.11.7",
    prefix="/srv/engine",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=(SITE,),
    site=SITE,
    include="/usr/include/python3.11",
    managed=False,
)

HERE = Identity(
    hostname="node",
    kernel="6.8",
    machine="x86_64",
    uid=0,
    container=None,
    initial_pid_namespace=True,
    devices=(),
)


def dist(name: str, version: str, *requires: str, folder: str = SITE) -> Distribution:
    return Distribution(
        name=name,
        written_name=name,
        version=version,
        requires=requires,
        requires_python=">=3.10",
        installer="pip",
        project=None,
        record=True,
        metadata=f"{folder}/{name}-{version}.dist-info",
    )


VLLM = dist(
    "vllm",
    "0.26.0",
    "torch==2.11.0",
    "torchvision==0.26.0",
    "transformers>=5.5.3",
    "setuptools==78.1.1",
    "setuptools<81,>=78; python_version > '3.10'",
    "opencv-python-headless>=4.13",
    "tilelang==0.1.9",
    "scipy; extra == 'audio'",
)
MET = (
    dist("torch", "2.11.0+cu130"),
    dist("torchvision", "0.26.0"),
    dist("transformers", "5.19.0"),
    dist("setuptools", "78.1.1"),
    dist("opencv-python-headless", "5.0"),
    dist("pip", "25"),
    dist("tilelang", "0.1.9"),
)


def installed(*rows: Distribution, **more: tuple[object, ...]) -> Distributions:
    fields: dict[str, object] = {"shadowed": (), "shared": (), "gaps": (), **more}
    return Distributions(by_name={row.name: row for row in rows}, source=SITE, **fields)  # type: ignore[arg-type]


def engine(*own: Distribution) -> EngineFact:
    return EngineFact(
        name="vllm",
        version="0.26.0",
        distribution="vllm" if own else None,
        package=f"{SITE}/vllm",
        build="cuda",
        distributions=own,
    )


def without(*names: str) -> list[Distribution]:
    return [row for row in MET if row.name not in names]


def test_requirement_broken() -> None:
    old = dist("transformers", "5.0.0")
    contract(
        requirement_broken,
        fires=[engine(VLLM), installed(VLLM, *without("transformers"), old), PYTHON, HERE],
        passes=[engine(VLLM), installed(VLLM, *MET), PYTHON, HERE],
    )


@pytest.mark.parametrize(
    ("name", "version", "severity", "category"),
    [
        ("transformers", "5.0.0", "warning", "transformers_version"),
        ("transformers", None, "error", "transformers_version"),
        ("torch", "2.10.0", "error", "abi_symbol"),
        ("torch", None, "error", "abi_symbol"),
        ("torchvision", None, "info", "environment"),
        ("torchvision", "0.25.0", "warning", "environment"),
        ("opencv-python-headless", None, "warning", "environment"),
        ("tilelang", None, "info", "environment"),
        ("tilelang", "0.1.8", "warning", "environment"),
    ],
)
def test_each_weight(name: str, version: str | None, severity: str, category: str) -> None:
    rows = [*without(name), *([dist(name, version)] if version else [])]
    found = examine(requirement_broken, engine(VLLM), installed(VLLM, *rows), PYTHON, HERE)
    assert [(f.about, f.severity, f.category) for f in found.findings] == [
        (name, severity, category)
    ]


def test_two_lines_of_one_package_are_one_finding() -> None:
    rows = [*without("setuptools"), dist("setuptools", "82.0")]
    found = examine(requirement_broken, engine(VLLM), installed(VLLM, *rows), PYTHON, HERE)
    (finding,) = found.findings
    assert finding.message == (
        "vllm 0.26.0 requires setuptools==78.1.1 and setuptools<81,>=78; 82.0 is installed"
    )
    assert finding.fixes[0].actions[0].text == (
        "/srv/engine/bin/python -m pip install setuptools==78.1.1 'setuptools<81,>=78'"
    )


def test_many_have_one_fix() -> None:
    found = examine(requirement_broken, engine(VLLM), installed(VLLM), PYTHON, HERE)
    assert len(found.findings) == 6
    (fix,) = {finding.fixes for finding in found.findings}
    assert fix[0].actions[0].text == ("uv pip install --python /srv/engine/bin/python vllm==0.26.0")


def test_what_torch_pins() -> None:
    """Triton is judged, the libraries of CUDA have checks of their own."""
    torch = dist("torch", "2.11.0+cu130", "triton==3.6.0", "nvidia-nccl-cu13==2.28.9")
    rows = [VLLM, torch, *without("torch"), dist("triton", "3.5.1"), dist("nvidia-nccl-cu13", "1")]
    found = examine(requirement_broken, engine(VLLM), installed(*rows), PYTHON, HERE)
    assert [finding.message for finding in found.findings] == [
        "torch 2.11.0+cu130 requires triton==3.6.0; 3.5.1 is installed"
    ]


def test_parts_of_tensorrt() -> None:
    """The PyPI distributions of TensorRT hold no library; those that do may have been left out."""
    own = dist("tensorrt-llm", "1.2.1", "tensorrt~=10.14.1")
    rows = [
        own,
        dist("tensorrt", "10.14.1.48", "tensorrt_cu13==10.14.1.48"),
        dist("tensorrt-cu13", "10.14.1.48", "tensorrt_cu13_libs==10.14.1.48"),
    ]
    trt = replace(engine(own), name="tensorrt-llm")
    found = examine(requirement_broken, trt, installed(*rows), PYTHON, HERE)
    assert [(finding.severity, finding.message) for finding in found.findings] == [
        (
            "error",
            "tensorrt-cu13 10.14.1.48 requires tensorrt_cu13_libs==10.14.1.48; it is not installed",
        )
    ]
    assert not examine(
        requirement_broken, engine(VLLM), installed(*MET, *rows), PYTHON, HERE
    ).findings


@pytest.mark.parametrize("by", ["python_path", "user_site"])
def test_what_a_leading_folder_spoils_is_another_check(by: str) -> None:
    home = "/home/u/.local/lib/python3.11/site-packages"
    old = dist("torch", "2.5.0", folder=home)
    own = installed(VLLM, old, *without("torch"), shadowed=(MET[0],))
    plain = replace(PYTHON, folders=(home, SITE))
    assert examine(requirement_broken, engine(VLLM), own, plain, HERE).outcome == "failed"
    led = (
        replace(plain, user_site=home) if by == "user_site" else replace(plain, python_path=(home,))
    )
    assert examine(requirement_broken, engine(VLLM), own, led, HERE).outcome == "passed"


def test_what_cannot_be_judged_is_blocked() -> None:
    rough = replace(PYTHON, full_version=None)
    own = dist("vllm", "0.26.0", "six; python_full_version < '3.11.8'")
    judged = examine(requirement_broken, engine(own), installed(own), rough, HERE)
    assert judged.outcome == "blocked"
    assert examine(requirement_broken, engine(), installed(), PYTHON, HERE).outcome == "blocked"


def shared(path: str, *owners: Distribution) -> SharedFile:
    return SharedFile(path=f"{SITE}/{path}", owners=owners)


HEADLESS, FULL = MET[4], dist("opencv-python", "5.0")


def test_owned_twice() -> None:
    file = shared("cv2/cv2.abi3.so", FULL, HEADLESS)
    contract(
        owned_twice,
        fires=[engine(VLLM), installed(VLLM, *MET, FULL, shared=(file,)), PYTHON],
        passes=[engine(VLLM), installed(VLLM, *MET, FULL), PYTHON],
    )


def test_owned_twice_keeps_what_the_engine_requires() -> None:
    files = (shared("cv2/cv2.abi3.so", FULL, HEADLESS), shared("cv2/version.py", FULL, HEADLESS))
    found = examine(owned_twice, engine(VLLM), installed(VLLM, *MET, FULL, shared=files), PYTHON)
    (finding,) = found.findings
    assert finding.severity == "warning"
    assert "own 2 files of the same name" in finding.message
    assert [action.text for action in finding.fixes[0].actions] == [
        "/srv/engine/bin/python -m pip uninstall -y opencv-python opencv-python-headless",
        "/srv/engine/bin/python -m pip install --no-deps opencv-python-headless==5.0",
    ]


@pytest.mark.parametrize(
    ("paths", "severity"),
    [
        (["google/__init__.py"], None),
        (["tests/test_a.py"], None),
        (["tests/test_a.py", "docs/conf.py"], None),
        (["google/__init__.py", "google/x.py"], "warning"),
        (["nvidia/nccl/lib/libnccl.so.2"], "warning"),
        (["vllm/_C.abi3.so"], "error"),
        (["torch/lib/libtorch_cpu.so"], "error"),
    ],
)
def test_owned_twice_cases(paths: list[str], severity: str | None) -> None:
    files = tuple(shared(path, dist("a", "1"), dist("b", "1")) for path in paths)
    found = examine(owned_twice, engine(VLLM), installed(VLLM, *MET, shared=files), PYTHON)
    assert [finding.severity for finding in found.findings] == ([severity] if severity else [])
    if severity:
        assert found.findings[0].fixes[0].safety == "manual"


def test_wheels_of_two_cudas_are_another_check() -> None:
    pair = (dist("nvidia-nccl-cu12", "2.27"), dist("nvidia-nccl-cu13", "2.28"))
    file = shared("nvidia/nccl/lib/libnccl.so.2", *pair)
    found = examine(owned_twice, engine(VLLM), installed(VLLM, *pair, shared=(file,)), PYTHON)
    assert found.outcome == "passed"
    other = shared("nvidia/nccl/lib/libnccl.so.2", pair[0], dist("nccl", "1"))
    found = examine(owned_twice, engine(VLLM), installed(VLLM, *pair, shared=(other,)), PYTHON)
    assert found.outcome == "failed"


def test_without_a_list_of_files_nothing_is_proven() -> None:
    bare = replace(dist("six", "1"), record=False)
    found = examine(owned_twice, engine(VLLM), installed(VLLM, *MET, bare), PYTHON)
    assert (found.outcome, found.reason) == (
        "blocked",
        "1 without a list of their files (RECORD): six",
    )


def test_distribution_twice() -> None:
    contract(
        distribution_twice,
        fires=[engine(VLLM), installed(*MET, shadowed=(dist("torch", "2.10.0"),)), PYTHON],
        passes=[engine(VLLM), installed(*MET), PYTHON],
    )


def test_the_same_name_elsewhere_is_no_fault() -> None:
    system = dist("torch", "2.1.0", folder="/usr/lib/python3/dist-packages")
    again = dist("torch", "2.11.0+cu130")
    found = examine(
        distribution_twice, engine(VLLM), installed(*MET, shadowed=(system, again)), PYTHON
    )
    assert found.outcome == "passed"
