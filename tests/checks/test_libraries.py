"""The checks of CUDA's shared libraries."""

from __future__ import annotations

import dataclasses
import posixpath

import pytest

from infer_doctor.catalog.libraries import CUDNN_PARTS, library_of
from infer_doctor.checks.libraries import (
    builtins_missing,
    library_damaged,
    library_dangling,
    library_missing,
)
from infer_doctor.checks.library_mixes import compat_misplaced, cudnn_parts_mixed, majors_mixed
from infer_doctor.checks.library_versions import library_shadowed, library_too_old
from infer_doctor.facts.cuda_init import CudaInit
from infer_doctor.facts.driver import Driver, KernelModule
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import Gpu, Gpus
from infer_doctor.facts.libraries import (
    LibraryCopies,
    LibraryCopy,
    LibraryPin,
    LibraryPins,
    LoadedLibraries,
    LoadedLibrary,
    LoadFailure,
)
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.model import Evidence
from infer_doctor.testing import contract, examine

SITE = "/env/lib/python3.12/site-packages"
CU13 = f"{SITE}/nvidia/cu13/lib"
CUDNN = f"{SITE}/nvidia/cudnn/lib"
TORCH = TorchBuild(
    version="2.11.0+cu130",
    cuda="13.0",
    source=f"{SITE}/torch/version.py",
    folder=f"{SITE}/torch",
)
ENVIRONMENT = Interpreter(
    executable="/env/bin/python",
    version="3.12",
    full_version="3.12.3",
    prefix="/env",
    base_prefix="/usr",
    kind="venv",
    found_by="--python",
    folders=(SITE,),
    site=SITE,
    include="/usr/include/python3.12",
    managed=False,
)
PINS = LibraryPins(
    rows=(
        LibraryPin(
            library="cudnn_graph",
            version="9.19.0.56",
            line="nvidia-cudnn-cu13==9.19.0.56; platform_system == 'Linux'",
            source=f"{SITE}/torch-2.11.0.dist-info",
        ),
        LibraryPin(
            library="nccl",
            version="2.28.9",
            line="nvidia-nccl-cu13==2.28.9; platform_system == 'Linux'",
            source=f"{SITE}/torch-2.11.0.dist-info",
        ),
        LibraryPin(
            library="nvrtc-builtins",
            version="13.0.88",
            line="nvidia-cuda-nvrtc==13.0.88.*; extra == 'nvrtc'",
            source=f"{SITE}/cuda_toolkit-13.0.2.dist-info",
        ),
    )
)
MODULE = KernelModule(version="580.159.04", open=True, evidence=Evidence(source="/proc"))


def file(path: str, version: str | None, owner: str | None = None) -> LibraryCopy:
    return LibraryCopy(
        library=library_of(posixpath.basename(path)) or "",
        path=path,
        real=path,
        soname=posixpath.basename(path),
        version=version,
        version_from=None if version is None else "its name",
        owner=owner,
    )


def row(
    path: str, version: str | None, found_by: str = "torch", owner: str | None = None
) -> LoadedLibrary:
    return LoadedLibrary(
        copy=file(path, version, owner),
        name=posixpath.basename(path),
        path=path,
        found_by=found_by,
        needed_by=f"{SITE}/torch/lib/libtorch_cuda.so",
    )


def failure(
    name: str,
    *tried: tuple[str, str],
    damaged: bool = False,
    step: str = "import torch",
    needed_by: str = f"{SITE}/torch/lib/libtorch_cuda.so",
) -> LoadFailure:
    return LoadFailure(
        library=library_of(posixpath.basename(name)) or name,
        name=name,
        needed_by=needed_by,
        step=step,
        tried=tried,
        damaged=damaged,
    )


def loaded(*rows: LoadedLibrary, failures: tuple[LoadFailure, ...] = ()) -> LoadedLibraries:
    return LoadedLibraries(rows=rows, failures=failures)


def failing(*failures: LoadFailure) -> LoadedLibraries:
    return loaded(failures=failures)


def copies(*rows: LibraryCopy) -> LibraryCopies:
    return LibraryCopies(rows=rows)


def cudnn(
    version: str, folder: str = CUDNN, found_by: str = "RUNPATH of libcudnn.so.9"
) -> list[LoadedLibrary]:
    return [row(f"{folder}/lib{part}.so.9", version, found_by) for part in CUDNN_PARTS]


# ---- missing


def test_missing() -> None:
    contract(
        library_missing,
        fires=[failing(failure("libcusparseLt.so.0")), copies(), TORCH, PINS, ENVIRONMENT],
        passes=[loaded(row(f"{CU13}/libcudart.so.13", "13.0.96")), copies(), TORCH],
    )


def test_missing_names_the_distribution_that_torch_declares() -> None:
    facts = failing(failure("libnccl.so.2")), copies(), TORCH, PINS, ENVIRONMENT
    (finding,) = examine(library_missing, *facts).findings
    assert finding.message == "libnccl.so.2, which libtorch_cuda.so needs, is not found"
    (fix,) = finding.fixes
    assert fix.title == "Install nvidia-nccl-cu13==2.28.9"


def test_an_engine_for_another_cuda_is_not_cured_by_a_second_runtime() -> None:
    module = f"{SITE}/vllm/_C.abi3.so"
    other = f"{SITE}/vllm/_moe_C.abi3.so"
    rows = (
        failure("libcudart.so.12", step="vllm/_C.abi3.so", needed_by=module),
        failure("libcudart.so.12", step="vllm/_moe_C.abi3.so", needed_by=other),
    )
    there = file("/usr/local/cuda-12.8/lib64/libcudart.so.12", "12.8.90")
    (finding,) = examine(library_missing, failing(*rows), copies(there), TORCH, PINS).findings
    assert "_C.abi3.so, _moe_C.abi3.so need" in finding.message
    assert finding.message.endswith(f"{there.path} is not where the loader looks")
    (fix,) = finding.fixes
    assert "a build of vllm for CUDA 13.0" in fix.title
    assert "this one is for CUDA 12" in fix.title


def test_parts_of_cudnn_that_are_missing_are_one_finding() -> None:
    names = ("libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9")
    graph = f"{CUDNN}/libcudnn_graph.so.9"
    rows = [failure(name, step="cuDNN", needed_by=graph) for name in names]
    (finding,) = examine(library_missing, failing(*rows), copies(), TORCH).findings
    assert finding.message == (
        "libcudnn_heuristic.so.9, libcudnn_engines_precompiled.so.9, which libcudnn_graph.so.9 "
        "opens, are not found"
    )


def test_the_drivers_libraries_are_no_business_of_it() -> None:
    rows = failure("libcuda.so.1", step="the driver"), failure("libnvidia-ml.so.1")
    assert examine(library_missing, failing(*rows), copies(), TORCH).outcome == "passed"


def test_a_path_in_a_variable_that_is_not_there() -> None:
    gone = failure("/opt/nccl/libnccl.so.2", step="VLLM_NCCL_SO_PATH")
    (finding,) = examine(library_missing, failing(gone), copies(), TORCH, PINS).findings
    assert finding.message.startswith("VLLM_NCCL_SO_PATH names /opt/nccl/libnccl.so.2")
    assert [fix.title for fix in finding.fixes] == ["Start without VLLM_NCCL_SO_PATH"]


# ---- dangling and damaged


def test_dangling() -> None:
    link = (f"{CU13}/libcublas.so.13", "leads nowhere")
    contract(
        library_dangling,
        fires=[failing(failure("libcublas.so.13", link))],
        passes=[failing(failure("libcublas.so.13"))],
    )


def test_a_dangling_link_is_not_missing_too() -> None:
    link = (f"{CU13}/libcublas.so.13", "leads nowhere")
    facts = failing(failure("libcublas.so.13", link)), copies(), TORCH
    assert examine(library_missing, *facts).outcome == "passed"


@pytest.mark.parametrize("check", [library_dangling, library_damaged])
def test_the_drivers_files_count_when_a_driver_is_loaded_and_cuda_was_not_asked(
    check: object,
) -> None:
    damaged = check is library_damaged
    problem = "file too short" if damaged else "leads nowhere"
    empty = failure("libcuda.so.1", ("/usr/lib/libcuda.so.1", problem), damaged=damaged)
    no_driver = dataclasses.replace(MODULE, version=None)
    assert examine(check, failing(empty), MODULE).outcome == "failed"  # type: ignore[arg-type]
    assert examine(check, failing(empty), no_driver).outcome == "passed"  # type: ignore[arg-type]
    asked = CudaInit(load_error="file too short", library=None)
    assert examine(check, failing(empty), MODULE, asked).outcome == "passed"  # type: ignore[arg-type]


def test_damaged() -> None:
    empty = (f"{CU13}/libcublas.so.13", "file too short")
    contract(
        library_damaged,
        fires=[failing(failure("libcublas.so.13", empty, damaged=True))],
        passes=[failing(failure("libcublas.so.13", empty))],
    )


# ---- NVRTC


def test_builtins() -> None:
    missing = failure("libnvrtc-builtins.so.13.0", step="NVRTC", needed_by=f"{CU13}/libnvrtc.so.13")
    contract(
        builtins_missing,
        fires=[failing(missing), copies(), PINS],
        passes=[loaded(row(f"{CU13}/libnvrtc-builtins.so.13.0", "13.0.88")), copies()],
    )
    there = file(f"{CU13}/libnvrtc-builtins.so.13.0", "13.0.88")
    (finding,) = examine(builtins_missing, failing(missing), copies(there), PINS).findings
    assert finding.severity == "warning"
    assert finding.message.endswith(f"{there.path} is not where the loader looks")
    assert [fix.title for fix in finding.fixes] == [f"Start with {CU13} in LD_LIBRARY_PATH"]
    (gone,) = examine(builtins_missing, failing(missing), copies(), PINS).findings
    assert gone.severity == "error"
    assert [fix.title for fix in gone.fixes] == ["Install nvidia-cuda-nvrtc==13.0.88.*"]


# ---- shadowed


OLD = "/opt/old/lib"
OWN = file(f"{CU13}/libnvJitLink.so.13", "13.0.88", "nvidia-nvjitlink")
VARIABLES = Environ(variables={"LD_LIBRARY_PATH": f"/usr/local/nvidia/lib64:{OLD}/"})


def test_shadowed() -> None:
    contract(
        library_shadowed,
        fires=[
            loaded(row(f"{OLD}/libnvJitLink.so.13", "12.9.41", "LD_LIBRARY_PATH")),
            copies(OWN),
            TORCH,
            ENVIRONMENT,
            VARIABLES,
        ],
        passes=[
            loaded(row(OWN.path, OWN.version, owner=OWN.owner)),
            copies(OWN),
            TORCH,
            ENVIRONMENT,
        ],
    )


def test_shadowed_says_what_puts_it_first_and_how_to_take_it_away() -> None:
    older = row(f"{OLD}/libnvJitLink.so.13", "12.9.41", "LD_LIBRARY_PATH")
    (finding,) = examine(
        library_shadowed, loaded(older), copies(OWN), TORCH, ENVIRONMENT, VARIABLES
    ).findings
    assert finding.message == (
        f"libnvJitLink.so.13 in {OLD} (12.9.41) is loaded before the engine's 13.0.88 in {CU13}: "
        "by LD_LIBRARY_PATH"
    )
    assert finding.evidence[-1].excerpt == f"LD_LIBRARY_PATH=/usr/local/nvidia/lib64:{OLD}/"
    (fix,) = finding.fixes
    assert fix.title == f"Start without {OLD} in LD_LIBRARY_PATH"
    assert [action.text for action in fix.actions] == [
        "export LD_LIBRARY_PATH=/usr/local/nvidia/lib64"
    ]


def test_a_folder_with_the_drivers_libraries_is_not_taken_out() -> None:
    older = row(f"{OLD}/libnvJitLink.so.13", "12.9.41", "LD_LIBRARY_PATH")
    driver = file(f"{OLD}/libcuda.so.1", "580.159.04")
    facts = loaded(older), copies(OWN, driver), TORCH, ENVIRONMENT, VARIABLES
    (finding,) = examine(library_shadowed, *facts).findings
    assert [fix.safety for fix in finding.fixes] == ["manual"]


@pytest.mark.parametrize(
    ("version", "outcome", "severity"),
    [
        ("12.9.41", "failed", "error"),
        ("13.0.48", "failed", "warning"),
        ("13.0.88", "passed", None),
        ("13.1.5", "passed", None),  # a newer one is no fault
        (None, "blocked", None),
    ],
)
def test_how_much_older(version: str | None, outcome: str, severity: str | None) -> None:
    other = row(f"{OLD}/libnvJitLink.so.13", version, "LD_LIBRARY_PATH")
    result = examine(library_shadowed, loaded(other), copies(OWN), TORCH, ENVIRONMENT)
    assert result.outcome == outcome
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])


def test_a_toolkit_that_nobody_loads_is_no_finding() -> None:
    toolkit = file("/usr/local/cuda-12.4/lib64/libnvJitLink.so.13", "12.4.127")
    facts = loaded(row(OWN.path, OWN.version)), copies(OWN, toolkit), TORCH, ENVIRONMENT
    assert examine(library_shadowed, *facts).outcome == "passed"


def test_a_copy_of_the_system_is_not_the_engines_own() -> None:
    other = row(f"{OLD}/libnccl.so.2", "2.27.3", "LD_LIBRARY_PATH")
    system = file("/usr/lib/x86_64-linux-gnu/libnccl.so.2", "2.28.3")
    python = dataclasses.replace(ENVIRONMENT, kind="system", prefix="/usr")
    assert (
        examine(library_shadowed, loaded(other), copies(system), TORCH, python).outcome == "passed"
    )


def test_the_wheel_that_torch_pins_is_shadowed_by_nobody() -> None:
    """conda's newer copy in the environment's lib is not the one that torch was built with."""
    wheel = row(OWN.path, OWN.version, "RPATH of libtorch_cuda.so", owner=OWN.owner)
    conda = file("/env/lib/libnvJitLink.so.13", "13.2.10")
    facts = loaded(wheel), copies(OWN, conda), TORCH, ENVIRONMENT
    assert examine(library_shadowed, *facts).outcome == "passed"
    other = row("/env/lib/libnvJitLink.so.13", "12.9.41", "RPATH of python3.12")
    facts = loaded(other), copies(OWN, other.copy), TORCH, ENVIRONMENT
    assert examine(library_shadowed, *facts).outcome == "failed"


def test_what_the_user_names_is_meant() -> None:
    named = row("/opt/nccl/libnccl.so.2", "2.18.1", "VLLM_NCCL_SO_PATH")
    own = file(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "2.28.9", "nvidia-nccl-cu13")
    for check in (library_shadowed, library_too_old):
        facts = loaded(named), copies(own), TORCH, ENVIRONMENT, PINS
        assert examine(check, *facts).outcome == "passed"


# ---- cuDNN


def test_parts_mixed() -> None:
    mixed = [
        *cudnn("9.19.0.56")[1:],
        row(f"{OLD}/libcudnn_graph.so.9", "9.14.0", "LD_LIBRARY_PATH"),
    ]
    contract(
        cudnn_parts_mixed,
        fires=[loaded(*mixed), copies(), VARIABLES],
        passes=[loaded(*cudnn("9.19.0.56")), copies()],
    )
    (finding,) = examine(cudnn_parts_mixed, loaded(*mixed), copies(), VARIABLES).findings
    assert finding.message.startswith(f"libcudnn_graph.so.9 in {OLD} is 9.14.0, libcudnn_ops.so.9")
    assert [fix.title for fix in finding.fixes] == [f"Start without {OLD} in LD_LIBRARY_PATH"]


def test_most_parts_by_a_variable_are_still_what_does_not_belong() -> None:
    mixed = [row(f"{CUDNN}/libcudnn_graph.so.9", "9.19.0.56")]
    mixed += cudnn("9.14.0", OLD, "LD_LIBRARY_PATH")[1:]
    (finding,) = examine(cudnn_parts_mixed, loaded(*mixed), copies(), VARIABLES).findings
    assert "are 9.14.0" in finding.message
    assert f"in {OLD}" in finding.message.partition(":")[0]


def test_mixed_parts_are_one_finding() -> None:
    mixed = [
        *cudnn("9.19.0.56")[1:],
        row(f"{OLD}/libcudnn_graph.so.9", "9.14.0", "LD_LIBRARY_PATH"),
    ]
    own = file(f"{CUDNN}/libcudnn_graph.so.9", "9.19.0.56", "nvidia-cudnn-cu13")
    facts = loaded(*mixed), copies(own), TORCH, ENVIRONMENT, PINS
    assert examine(library_shadowed, *facts).outcome == "passed"
    assert examine(library_too_old, *facts).outcome == "passed"


def test_a_whole_older_cudnn_is_shadowing_and_not_mixed() -> None:
    shim = row(f"{CUDNN}/libcudnn.so.9", "9.19.0.56", owner="nvidia-cudnn-cu13")
    rows = loaded(shim, *cudnn("9.14.0", OLD, "LD_LIBRARY_PATH"))
    own = [dataclasses.replace(r.copy, owner="nvidia-cudnn-cu13") for r in cudnn("9.19.0.56")]
    assert examine(cudnn_parts_mixed, rows, copies(*own)).outcome == "passed"
    (finding,) = examine(library_shadowed, rows, copies(*own), TORCH, ENVIRONMENT).findings
    assert "libcudnn_cnn.so.9 and 4 more" in finding.message
    assert (finding.severity, finding.confidence) == ("error", "certain")
    assert (
        examine(library_too_old, rows, copies(*own), TORCH, ENVIRONMENT, PINS).outcome == "passed"
    )


def test_a_part_of_unknown_version_elsewhere_is_not_passed() -> None:
    rows = [*cudnn("9.19.0.56")[1:], row(f"{OLD}/libcudnn_graph.so.9", None, "LD_LIBRARY_PATH")]
    result = examine(cudnn_parts_mixed, loaded(*rows), copies())
    assert (result.outcome, result.reason) == (
        "blocked",
        f"the version of {OLD}/libcudnn_graph.so.9 cannot be told",
    )
    beside = [*cudnn("9.19.0.56")[1:], row(f"{CUDNN}/libcudnn_cnn.so.9", None)]
    assert examine(cudnn_parts_mixed, loaded(*beside), copies()).outcome == "passed"


# ---- majors


def test_majors_mixed() -> None:
    contract(
        majors_mixed,
        fires=[
            loaded(
                row(f"{CU13}/libcudart.so.13", "13.0.96"),
                row("/usr/local/cuda/lib64/libcudart.so.12", "12.8.90", "LD_LIBRARY_PATH"),
            ),
            TORCH,
        ],
        passes=[
            loaded(
                row(f"{CU13}/libcudart.so.13", "13.0.96"),
                row(f"{CU13}/libcufft.so.12", "12.0.0.61"),
                row(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "2.28.9", owner="nvidia-nccl-cu12"),
            ),
            TORCH,
        ],
    )


def test_a_cudnn_for_another_cuda() -> None:
    rows = [row(f"{CUDNN}/libcudnn.so.9", "9.10.2.21", owner="nvidia-cudnn-cu12")]
    (finding,) = examine(majors_mixed, loaded(*rows), TORCH).findings
    assert "libcudnn.so.9 of CUDA 12" in finding.message
    assert "nvidia-cudnn-cu12" in finding.fixes[0].title


# ---- too old


def test_too_old() -> None:
    facts = [copies(), TORCH, ENVIRONMENT, PINS]
    contract(
        library_too_old,
        fires=[loaded(*cudnn("9.10.2.21")), *facts],
        passes=[loaded(*cudnn("9.19.0.56")), *facts],
    )


@pytest.mark.parametrize(
    ("version", "outcome", "severity", "confidence"),
    [
        ("2.27.3", "failed", "error", "likely"),
        ("2.28.3", "failed", "warning", "possible"),
        ("2.28.9", "passed", None, None),
        ("2.30.1", "passed", None, None),
        (None, "blocked", None, None),
    ],
)
def test_below_the_pin(
    version: str | None, outcome: str, severity: str | None, confidence: str | None
) -> None:
    nccl = row("/usr/lib/x86_64-linux-gnu/libnccl.so.2", version, "the loader's cache")
    result = examine(library_too_old, loaded(nccl), copies(), TORCH, ENVIRONMENT, PINS)
    assert result.outcome == outcome
    for finding in result.findings:
        assert (finding.severity, finding.confidence) == (severity, confidence)
        assert finding.message.endswith("nvidia-nccl-cu13==2.28.9 is declared")


# ---- compat


COMPAT = "/usr/local/cuda-12.8/compat"
DRIVER = Driver(version="580.159.04", cuda=(13, 0), evidence=Evidence(source="NVML"))


def gpus(name: str) -> Gpus:
    return Gpus(gpus=(Gpu(index=0, name=name, uuid=None, bus_id=None),), source="NVML")


def test_compat() -> None:
    compat = row(f"{COMPAT}/libcuda.so.1", "570.86.10", "LD_LIBRARY_PATH")
    contract(
        compat_misplaced,
        fires=[loaded(compat), DRIVER],
        passes=[loaded(row("/usr/lib64/libcuda.so.1", "580.159.04")), DRIVER],
    )


def test_compat_on_an_older_driver_is_what_it_is_for() -> None:
    compat = row(f"{COMPAT}/libcuda.so.1", "570.86.10", "the loader's cache")
    older = dataclasses.replace(DRIVER, version="535.183.01")
    assert examine(compat_misplaced, loaded(compat), older, gpus("NVIDIA H200")).outcome == "passed"
    result = examine(compat_misplaced, loaded(compat), older, gpus("NVIDIA GeForce RTX 4090"))
    assert "NVIDIA GeForce RTX 4090 is not a data-centre GPU" in result.findings[0].message


def test_cudas_own_answer_goes_before() -> None:
    compat = row(f"{COMPAT}/libcuda.so.1", "570.86.10", "LD_LIBRARY_PATH")
    asked = CudaInit(code=803, library=f"{COMPAT}/libcuda.so.570.86.10")
    assert examine(compat_misplaced, loaded(compat), DRIVER, asked).outcome == "not_applicable"
    not_called = CudaInit(missing=("/dev/nvidia-uvm",))
    assert examine(compat_misplaced, loaded(compat), DRIVER, not_called).outcome == "failed"
