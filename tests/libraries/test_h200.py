"""The libraries of a real machine with two H200: torch's wheels beside CUDA 13.0 and cuDNN 9.14.

The capture holds what the operations answered there and what the real loader had mapped in a process
that ran a convolution, a product and a solve on the GPU.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

import fake_cuda
import pytest

from infer_doctor.catalog.libraries import family_of, library_of
from infer_doctor.engine import Subject, run
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.libraries import LibraryCopies, LoadedLibraries
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host
from infer_doctor.loading.torch_start import PATTERN
from infer_doctor.model import Evidence
from infer_doctor.registry import load

CAPTURE = Path(__file__).parents[1] / "captures" / "h200-x2" / "libraries.json"
SITE = "/opt/torch/.venv/lib/python3.12/site-packages"
SYSTEM = "/usr/lib/x86_64-linux-gnu"

TABLE = (
    "cublas/cublasLt cublas/cublas cudnn/cudnn cuda_nvrtc/nvrtc cuda_nvrtc/nvrtc-builtins "
    "cuda_runtime/cudart cuda_cupti/cupti cufft/cufft curand/curand nvjitlink/nvJitLink "
    "cusparse/cusparse cusparselt/cusparseLt cusolver/cusolver nccl/nccl nvshmem/nvshmem_host "
    "cufile/cufile"
)
"""What torch 2.11 loads by hand, in its order: folder and library."""

ROWS = "\n".join(
    f'        ("{folder}", "lib{library}.so.*[0-9]"),'
    for folder, library in (entry.split("/") for entry in TABLE.split())
)
START = (fake_cuda.HEAD + fake_cuda.FORMS["whole"]).replace(fake_cuda.TABLE, ROWS)

IDS = r"cuda-(?:library-(?!unloadable)|cudnn-|nvrtc-(?!failed)|compat-)[\w-]+"


class Machine(Host):
    """Answers by operation: what is asked for is not the subject of this test."""

    def __init__(self, captured: dict[str, Any]) -> None:
        super().__init__()
        start = [match[0] for match in re.finditer(PATTERN, START)]
        self._answers = {
            "libraries": captured["libraries"],
            "loader_cache": captured["loader_cache"],
            "owned_libraries": {"owned": captured["owned_libraries"]["owned"]},
            "library_marks": {"marks": captured["library_marks"]["marks"]},
            "real": {"path": "/usr/bin/python3.12"},
            "find": {"matches": start},
        }

    def _fetch(self, operation: str, arguments: dict[str, Any], limit_s: float | None) -> Capture:
        if operation not in self._answers:
            return super()._fetch(operation, arguments, limit_s)
        return Capture(
            operation=operation,
            arguments=arguments,
            version=VERSIONS[operation],
            value=self._answers[operation],
        )


def distribution(metadata: str) -> Distribution:
    name, version = posixpath.basename(metadata).removesuffix(".dist-info").split("-")
    return Distribution(
        name=name.replace("_", "-"),
        written_name=name,
        version=version,
        requires=(),
        requires_python=None,
        installer="pip",
        project=None,
        record=True,
        metadata=metadata,
    )


@pytest.fixture
def captured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CAPTURE.read_text())
    return found


def subject(captured: dict[str, Any], first: str | None = None) -> Subject:
    path = captured["environment"]["LD_LIBRARY_PATH"]
    path = path if first is None else f"{first}:{path}"
    rows = [distribution(metadata) for metadata in captured["owned_libraries"]["records"]]
    given = [
        Environ(variables={"LD_LIBRARY_PATH": path}),
        Identity(
            hostname="h200",
            kernel="6.8.0",
            machine="x86_64",
            uid=0,
            container=None,
            initial_pid_namespace=True,
            devices=("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"),
        ),
        Interpreter(
            executable="/opt/torch/.venv/bin/python",
            version="3.12",
            full_version="3.12.3",
            prefix="/opt/torch/.venv",
            base_prefix="/usr",
            kind="venv",
            found_by="--python",
            folders=(SITE,),
            site=SITE,
            include="/usr/include/python3.12",
            managed=False,
        ),
        TorchBuild(
            version="2.11.0+cu130",
            cuda="13.0",
            source=f"{SITE}/torch/version.py",
            folder=f"{SITE}/torch",
        ),
        Distributions(by_name={row.name: row for row in rows}, shadowed=(), shared=(), source=SITE),
        Driver(version="580.159.04", cuda=(13, 0), evidence=Evidence(source="NVML")),
    ]
    return Subject("h200", load(), host=Machine(captured), given=given)


def mapped(captured: dict[str, Any], case: str) -> set[str]:
    return {path for path in captured["mapped"][case] if library_of(posixpath.basename(path))}


def outcomes(found: Subject) -> tuple[set[str], list[str]]:
    checks = [check for id, check in load().checks.items() if re.fullmatch(IDS, id)]
    assert len(checks) == 9
    results = run(checks, found)
    return (
        {row.outcome for row in results if row.check != "cuda-compat-misplaced"},
        [finding.check for row in results for finding in row.findings],
    )


def test_a_second_cudnn_that_nobody_loads_is_no_finding(captured: dict[str, Any]) -> None:
    found = subject(captured)
    loaded = found.get(LoadedLibraries)
    assert isinstance(loaded, LoadedLibraries), loaded
    real = {row.copy.real for row in loaded.rows}
    was = mapped(captured, "as installed")
    assert was <= real
    unused = {library_of(posixpath.basename(path)) or "" for path in real - was}
    assert {family_of(library) for library in unused} == {"nvidia-cudnn"}  # for other work
    copies = found.get(LibraryCopies).rows
    assert {row.version for row in copies if row.library == "cudnn_ops"} == {"9.14.0", "9.19.0.56"}
    assert {row.version for row in copies if row.library == "nccl"} == {"2.28.3", "2.28.9"}
    assert all(row.version for row in copies)
    assert outcomes(found) == ({"passed"}, [])


def test_the_systems_cudnn_first(captured: dict[str, Any]) -> None:
    """torch said there: compiled against (9, 19, 0) but found runtime version (9, 14, 0)."""
    found = subject(captured, first=SYSTEM)
    loaded = found.get(LoadedLibraries)
    assert mapped(captured, "system first") <= {row.copy.real for row in loaded.rows}
    assert outcomes(found)[1] == ["cuda-library-shadowed"]
