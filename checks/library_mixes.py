"""CUDA's shared libraries that do not go together: parts, majors, driver."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from infer_doctor.catalog.libraries import NAMED_BY_CUDA, digits_of, family_of
from infer_doctor.checks.library_versions import PARTS, cudnn_versions, driver_in, first_by, told
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.cuda_init import CudaInit
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.libraries import LibraryCopies, LibraryCopy, LoadedLibraries, LoadedLibrary
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.libraries import leave_out, one_cuda
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.versions import release

COMPAT = "/compat/"


@check("cuda-cudnn-parts-mixed", severity="error", category="kernel_lib_version", since="0.1")
def cudnn_parts_mixed(
    loaded: LoadedLibraries, copies: LibraryCopies, environ: Environ | None
) -> Iterator[Finding]:
    """The parts of cuDNN that the process loads are of different versions.

    ## Why it matters
    cuDNN refuses to work: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH (1002).

    ## How it decides
    libcudnn opens libcudnn_graph, _ops, _cnn, _adv and others by name at run time, so
    LD_LIBRARY_PATH goes before the folder it stands in. The versions of those parts, from the
    file's name, its symbol cudnn_..._version or its wheel, must be equal in all three digits;
    seen: one part 9.14.0 among 9.19.0 gives 1002. libcudnn itself does not count: with all parts
    of another version it works and is that version (cuda-library-shadowed judges it).

    ## Fix safety
    Safe where a variable puts a part first: it changes the next start only. Else manual.
    """
    versions = cudnn_versions(loaded)
    if len(versions) > 1:
        groups = sorted(versions.values(), key=len)
        wrong, rest = groups[0], groups[-1]
        if any(row.found_by in ("LD_LIBRARY_PATH", "LD_PRELOAD") for row in rest):
            wrong, rest = rest, wrong  # what a variable brings is what does not belong here
        row = wrong[0]
        names = ", ".join(posixpath.basename(r.path) for r in wrong[:3])
        folder = posixpath.dirname(row.path)
        yield Finding(
            about="cudnn",
            message=f"{names} in {folder} {'is' if len(wrong) == 1 else 'are'} {row.copy.version}, "
            f"{posixpath.basename(rest[0].path)} in {posixpath.dirname(rest[0].path)} is "
            f"{rest[0].copy.version}: cuDNN refuses mixed parts",
            confidence="certain",
            evidence=(told(row.copy), told(rest[0].copy), *first_by(row, environ)),
            fixes=(leave_out(row, environ, holds_driver=driver_in(folder, copies)),),
        )
        return
    parts = [row for row in loaded.rows if row.copy.library in PARTS]
    known = {posixpath.dirname(row.path) for row in parts if row.copy.version is not None}
    for row in parts:
        if row.copy.version is None and posixpath.dirname(row.path) not in known:
            raise Unavailable(f"the version of {row.path} cannot be told")


@check("cuda-library-majors-mixed", severity="error", category="kernel_lib_version", since="0.1")
def majors_mixed(loaded: LoadedLibraries, torch: TorchBuild) -> Iterator[Finding]:
    """Libraries of two CUDA majors are loaded into the engine's process.

    ## Why it matters
    Two runtimes keep two sets of streams and contexts: pointers of one are invalid in the other,
    and cuDNN for CUDA 12 looks for a cuBLAS that torch for CUDA 13 does not bring.

    ## How it decides
    The CUDA of each loaded library against torch's: by its soname (libcudart.so.12, also cuBLAS,
    NVRTC, nvJitLink, CUPTI), for cuDNN by its wheel (nvidia-cudnn-cu12). cuFFT, cuSPARSE and others
    count on their own and are left out; so is NCCL, which links its runtime in.

    ## Fix safety
    Manual: one of the two sets has to go.
    """
    ours = (torch.cuda or "").partition(".")[0]
    groups: dict[str, list[LoadedLibrary]] = {}
    for row in loaded.rows:
        major = _cuda_of(row.copy)
        if major is not None and major != ours:
            groups.setdefault(major, []).append(row)
    for major, rows in groups.items():
        names = ", ".join(dict.fromkeys(posixpath.basename(row.path) for row in rows[:3]))
        yield Finding(
            about=f"CUDA {major}",
            message=f"torch {torch.version} is for CUDA {torch.cuda}; {names} of CUDA {major} "
            f"is loaded with it, for {posixpath.basename(rows[0].needed_by)}",
            confidence="likely",
            evidence=(
                Evidence(source=torch.source, excerpt=f"cuda = {torch.cuda!r}"),
                *(
                    Evidence(source=row.path, excerpt=f"needed by {row.needed_by}, {row.found_by}")
                    for row in rows[:3]
                ),
            ),
            fixes=(one_cuda(torch, major, rows[0].copy.owner, rows[0].needed_by),),
        )


def _cuda_of(copy: LibraryCopy) -> str | None:
    """The CUDA major that a library belongs to; None where nothing says it."""
    if copy.library in NAMED_BY_CUDA:
        return digits_of(copy.soname or "").partition(".")[0] or None
    found = re.search(r"-cu(\d+)$", copy.owner or "")
    return found[1] if found and family_of(copy.library) == "nvidia-cudnn" else None


@check("cuda-compat-misplaced", severity="error", category="driver_cuda", since="0.1")
def compat_misplaced(
    loaded: LoadedLibraries,
    driver: Driver,
    cuda: CudaInit | None,
    gpus: Gpus | None,
    environ: Environ | None,
) -> Iterator[Finding]:
    """A forward-compatibility libcuda is loaded where it cannot work.

    ## Why it matters
    cuInit fails with 803 (the driver is newer than the library) or 804 (not a data-centre GPU),
    and torch says that there is no GPU.

    ## How it decides
    The libcuda.so.1 that the process loads stands in a folder `compat`. It is for drivers older
    than itself, on data-centre GPUs (https://docs.nvidia.com/deploy/cuda-compatibility/): wrong
    when the driver is of the same version or newer, or when a GPU is a GeForce or Titan. What other
    GPUs allow is not judged. Where cuInit was asked its answer counts, and cuda-init-failed tells it.

    ## Fix safety
    Safe where a variable puts it first: it changes the next start only. Else manual.
    """
    if cuda is not None and (cuda.code is not None or cuda.load_error or cuda.end):
        raise NotApplicable("cuInit was asked: cuda-init-failed judges its answer")
    for row in loaded.rows:
        if row.copy.library != "cuda" or COMPAT not in f"{row.path} {row.copy.real}":
            continue
        version = row.copy.version
        if version is None:
            raise Unavailable(f"the version of {row.path} cannot be told")
        names = [gpu.name for gpu in gpus.gpus] if gpus else []
        consumer = [name for name in names if re.search(r"GeForce|TITAN", name, re.I)]
        if release(driver.version) >= release(version):
            because = f"the driver is {driver.version}, which is not older"
        elif consumer:
            because = f"{consumer[0]} is not a data-centre GPU"
        else:
            continue
        yield Finding(
            about="libcuda",
            message=f"libcuda.so.1 is the compat library {version} in "
            f"{posixpath.dirname(row.path)}, by {row.found_by}; {because}",
            confidence="likely",
            evidence=(told(row.copy), driver.evidence, *first_by(row, environ)),
            fixes=(leave_out(row, environ, holds_driver=False),),
        )
