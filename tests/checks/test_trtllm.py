"""The check of TensorRT-LLM's stub, and the other checks on an environment with its real metadata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from environment_facts import HERE, PYTHON, SITE, dist, engine, installed

from infer_doctor.checks.env import requirement_broken
from infer_doctor.checks.env_packages import pynvml_deprecated, python_unsupported
from infer_doctor.checks.trtllm import trtllm_stub
from infer_doctor.facts.engine import EngineFact, EngineSearch, engine_search
from infer_doctor.facts.engine_parts import EngineParts, engine_parts
from infer_doctor.facts.environment import Distributions, Interpreter, distributions
from infer_doctor.live import LiveHost
from infer_doctor.testing import contract, examine

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"

TRT = dist("tensorrt-llm", "1.2.1")
ENGINE = engine(TRT, name="tensorrt-llm")
WHOLE = EngineParts(
    libraries=("bindings.cpython-312-x86_64-linux-gnu.so",), pythons=("3.12",), own_nvml=False
)
BARE = EngineParts(libraries=(), pythons=(), own_nvml=False)
THERE = EngineSearch(engines=(ENGINE,))
NOWHERE = EngineSearch(engines=())


def test_trtllm_stub() -> None:
    contract(
        trtllm_stub,
        fires=[NOWHERE, installed(TRT), PYTHON],
        passes=[THERE, installed(TRT), PYTHON, ENGINE, WHOLE],
    )


def test_package_without_libraries() -> None:
    (finding,) = examine(trtllm_stub, THERE, installed(TRT), PYTHON, ENGINE, BARE).findings
    assert finding.message == f"{SITE}/tensorrt_llm has no compiled module (bindings.*.so)"
    assert finding.fixes[0].actions[0].text == (
        "uv pip install --python /srv/engine/bin/python --force-reinstall --extra-index-url "
        "https://pypi.nvidia.com/ tensorrt-llm==1.2.1"
    )


def test_nothing_to_judge() -> None:
    assert examine(trtllm_stub, NOWHERE, installed(), PYTHON).outcome == "not_applicable"
    found = examine(trtllm_stub, THERE, installed(TRT), PYTHON, ENGINE)
    assert found.outcome == "blocked"
    vllm = engine(dist("vllm", "0.26.0"))
    both = EngineSearch(engines=(vllm, ENGINE))
    assert examine(trtllm_stub, both, installed(TRT), PYTHON, vllm, BARE).outcome == (
        "not_applicable"
    )
    gone = EngineSearch(engines=(), gaps=("x.pth: not readable",))
    assert examine(trtllm_stub, gone, installed(TRT), PYTHON).outcome == "blocked"


@pytest.fixture
def host() -> Iterator[LiveHost]:
    found = LiveHost()
    yield found
    found.close()


Site = tuple[EngineFact, Distributions, Interpreter, EngineParts]


def made(host: LiveHost, site: Path, version: str, *others: tuple[str, str], python: str) -> Site:
    """An environment as pip leaves it: real metadata of TensorRT-LLM, names of the others."""
    package = site / "tensorrt_llm"
    package.mkdir()
    for name in ("__init__.py", f"bindings.cpython-{python.replace('.', '')}-x86_64-linux-gnu.so"):
        (package / name).write_text("")
    (package / "version.py").write_text(f'__version__ = "{version}"\n')
    text = (CAPTURES / f"tensorrt-llm-{version}-PKG-INFO.txt").read_text()
    rows = [("tensorrt_llm", version, text)]
    rows += [(n, v, f"Metadata-Version: 2.1\nName: {n}\nVersion: {v}\n") for n, v in others]
    for name, number, metadata in rows:
        (site / f"{name}-{number}.dist-info").mkdir()
        (site / f"{name}-{number}.dist-info/METADATA").write_text(metadata)
    here = Interpreter(**{**vars(PYTHON), "folders": (str(site),), "site": str(site)})
    found = distributions(host, here)
    (search,) = engine_search(host, here, found).engines
    return search, found, here, engine_parts(host, search)


def test_real_metadata(host: LiveHost, tmp_path: Path) -> None:
    fact, _, here, parts = made(host, tmp_path, "1.2.1", python="3.12")
    assert (fact.name, fact.version, fact.build) == ("tensorrt-llm", "1.2.1", "cuda")
    assert fact.distribution == "tensorrt-llm"
    assert parts == WHOLE
    assert examine(python_unsupported, fact, here, parts).outcome == "passed"


PINNED = (
    ("torch", "2.9.1"),
    ("transformers", "4.57.3"),
    ("nvidia-nccl-cu13", "2.27.7"),
    ("flashinfer-python", "0.6.4"),
    ("xgrammar", "0.1.32"),
    ("numpy", "1.26.4"),
)


@pytest.mark.parametrize(
    ("name", "version", "severity"),
    [
        ("torch", "2.10.0", "error"),
        ("transformers", "5.0.0", "warning"),
        ("nvidia-nccl-cu13", "2.29.2", "warning"),
        ("flashinfer-python", "0.6.5", "warning"),
        ("xgrammar", "0.2.1", "warning"),
        ("numpy", "2.3.0", "warning"),
        ("numpy", "1.26.3", None),
    ],
)
def test_outside_its_pins(
    host: LiveHost, tmp_path: Path, name: str, version: str, severity: str | None
) -> None:
    rows = [(n, version if n == name else v) for n, v in PINNED]
    fact, found, here, _ = made(host, tmp_path, "1.2.1", *rows, python="3.12")
    result = examine(requirement_broken, fact, found, here, HERE)
    named = {row.about: row.severity for row in result.findings}
    assert named.get(name) == severity
    assert not {n for n, _ in PINNED if n != name} & named.keys()


@pytest.mark.parametrize(
    ("version", "pynvml", "fires"),
    [("0.12.0", "11.5.3", False), ("0.12.0", "12.0.0", True), ("1.0.0", "12.0.0", False)],
)
def test_pynvml_by_its_version(
    host: LiveHost, tmp_path: Path, version: str, pynvml: str, fires: bool
) -> None:
    facts = made(host, tmp_path, version, ("pynvml", pynvml), python="3.12")
    assert (examine(pynvml_deprecated, *facts).outcome == "failed") is fires
