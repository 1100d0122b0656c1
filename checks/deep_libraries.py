"""Checks of CUDA's libraries at work; all need `--deep`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from infer_doctor.checks.deep import LARGEST_DEVIATION
from infer_doctor.facts.deep_libraries import CublasRun, LibraryRun, NvrtcRun
from infer_doctor.facts.libraries import LoadedLibraries
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

NVRTC_BUILTINS = 7
"""NVRTC_ERROR_BUILTIN_OPERATION_FAILURE (https://docs.nvidia.com/cuda/nvrtc/); seen without builtins."""


STEPS = {"compile": "libnvrtc", "multiply": "libcublas"}
"""Step of the probe -> the library that works in it."""


@check("cuda-library-unloadable", severity="error", category="abi_symbol", since="0.1")
def library_unloadable(run: LibraryRun) -> Iterator[Finding]:
    """A CUDA library is there and cannot be loaded.

    ## Why it matters
    The engine's import fails in the same way, or the first use of that library does.

    ## How it decides
    Each copy that the engine's process would load (cuda-library-missing says how that is known) is
    loaded in a child of the engine's interpreter, what it needs before it, and all symbols are
    bound at once, as Python does. What the loader says is the finding; so is the end of the child
    in one of them. Needs `--deep`.

    ## Fix safety
    No fix of its own: the words name a library or a symbol; the checks of versions say whose it is.
    """
    for path, error in run.unloadable.items():
        yield Finding(
            about=posixpath.basename(path),
            message=f"{posixpath.basename(path)} cannot be loaded: {error}",
            category="missing_lib" if "cannot open shared object" in error else None,
            evidence=(Evidence(source=path, excerpt=error),),
        )
    if run.ended_in is not None:
        step, _, library = run.ended_in.partition(" ")
        name = f"lib{library}" if library else STEPS.get(step, step)
        yield Finding(
            about=name,
            message=f"the process died in {name}, in the step {run.ended_in!r}",
            confidence="likely",
            evidence=(Evidence(source=run.source, excerpt=run.ended_in),),
        )


@check("cuda-nvrtc-failed", severity="error", category="cuda_error", since="0.1")
def nvrtc_failed(nvrtc: NvrtcRun, loaded: LoadedLibraries) -> Iterator[Finding]:
    """NVRTC does not compile a kernel for this GPU.

    ## Why it matters
    torch, cuDNN and TensorRT-LLM compile kernels with it at run time; the engine then fails in the
    middle of its start or at a request.

    ## How it decides
    A kernel of one line is compiled with the libnvrtc that the engine's process loads, for the
    compute capability of the first GPU, without a GPU for the newest one that this NVRTC knows.
    nvrtcCompileProgram must return 0. Missing builtins (7) are told by cuda-nvrtc-builtins-missing
    where that is known already. Needs `--deep`.

    ## Fix safety
    No fix of its own: NVRTC's own words say what is wrong.
    """
    if nvrtc.code == 0:
        return
    known = any(row.library == "nvrtc-builtins" for row in loaded.failures)
    if nvrtc.code == NVRTC_BUILTINS and known:
        raise Unavailable("NVRTC has no builtins (cuda-nvrtc-builtins-missing)")
    unknown = nvrtc.arch not in nvrtc.archs
    why = f": it knows up to sm_{max(nvrtc.archs)}" if unknown and nvrtc.archs else ""
    first = nvrtc.log.splitlines()[0] if nvrtc.log else f"code {nvrtc.code}"
    yield Finding(
        about="nvrtc",
        message=f"{posixpath.basename(nvrtc.path)} compiles nothing for sm_{nvrtc.arch}{why}; {first}",
        category="arch_no_kernel" if unknown else None,
        evidence=(Evidence(source=nvrtc.path, excerpt=f"code {nvrtc.code}: {nvrtc.log}"),),
    )


@check("cuda-cublas-failed", severity="error", category="cuda_error", since="0.1")
def cublas_failed(cublas: CublasRun) -> Iterator[Finding]:
    """cuBLAS refuses to work or computes wrong results.

    ## Why it matters
    Every layer of a model is a product of matrices by cuBLAS or a kernel beside it.

    ## How it decides
    A product of two 64 x 64 matrices on each GPU with the libcublas and libcudart that the engine's
    process loads, against the same in double precision on the CPU. cuBLAS must return 0; the
    largest deviation, relative to the largest value, must stay below 2^-9, four times what TF32
    rounding explains. A context that does not start is not judged here (cuda-init-failed,
    cuda-context-failed). Needs `--deep`.

    ## Fix safety
    No fix of its own: wrong results ask for a diagnosis of the GPU.
    """
    undecided = None
    found = False
    for row in cublas.rows:
        if row.error is not None:
            undecided = f"GPU {row.device}: {row.error}"
        elif row.status:
            found = True
            yield Finding(
                about=f"cuda:{row.device}",
                message=f"cuBLAS gives status {row.status} on GPU {row.device}",
                evidence=(Evidence(source=cublas.path, excerpt=f"status {row.status}"),),
            )
        elif row.deviation is not None and not row.deviation < LARGEST_DEVIATION:
            found = True
            yield Finding(
                about=f"cuda:{row.device}",
                message=f"cuBLAS is off by {row.deviation:.1e} in a 64 x 64 product on GPU "
                f"{row.device}; rounding explains {LARGEST_DEVIATION:.1e}",
                category="gpu_health",
                evidence=(Evidence(source=cublas.path, excerpt=f"deviation {row.deviation!r}"),),
            )
    if undecided and not found:
        raise Unavailable(undecided)
