"""CUDA's shared libraries that the engine's process asks for and does not get."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator

from infer_doctor.catalog.libraries import DRIVER, digits_of
from infer_doctor.facts.cuda_init import CudaInit
from infer_doctor.facts.driver import KernelModule
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.libraries import LibraryCopies, LibraryPins, LoadedLibraries, LoadFailure
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.libraries import add_folder, engine_for_cuda, install_pinned, put_back
from infer_doctor.fixes.variables import unset
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check

BUILTINS = "nvrtc-builtins"
NCCL_PATH = "VLLM_NCCL_SO_PATH"

SHOWN = 3
"""Files that a message or the evidence names."""


@check("cuda-library-missing", severity="error", category="missing_lib", since="0.1")
def library_missing(
    loaded: LoadedLibraries,
    copies: LibraryCopies,
    torch: TorchBuild,
    pins: LibraryPins | None,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Iterator[Finding]:
    """A CUDA library that the engine's process needs is nowhere where the loader looks.

    ## Why it matters
    The import fails with "cannot open shared object file" (libcudart.so.12 under an engine that is
    built for another CUDA than its torch), or cuDNN and NVRTC fail at their first use.

    ## How it decides
    The start of the process is played on the files as glibc's loader does it (ld.so(8); compared
    with the real loader on random trees and in a CUDA environment): what torch/__init__.py loads,
    the engine's extension modules, cuDNN's parts, NVRTC. A name that no folder of RPATH,
    LD_LIBRARY_PATH, RUNPATH, the loader's cache and the default folders has is missing. Libraries
    of the driver and NVRTC's builtins have checks of their own.

    ## Fix safety
    Unsafe: pip may change other packages. Unsetting a variable is safe.
    """
    parts: list[LoadFailure] = []
    for name, rows in _failures(loaded, lambda row: not row.damaged and not _dangling(row)).items():
        first = rows[0]
        if first.library in (*DRIVER, BUILTINS):
            continue
        if first.step == "cuDNN":
            parts += rows
            continue
        users = _names(row.needed_by for row in rows)
        message = f"{name}, which {users} {'needs' if len(rows) == 1 else 'need'}, is not found"
        fixes = _bring(first, torch, pins, interpreter, distributions)
        if first.step == NCCL_PATH:
            message = f"{NCCL_PATH} names {name}, which is not there"
            fixes = (unset(NCCL_PATH),)
        elsewhere = [copy.path for copy in copies.rows if posixpath.basename(copy.path) == name]
        if elsewhere:
            message += f"; {elsewhere[0]} is not where the loader looks"
        yield Finding(about=name, message=message, evidence=_askers(rows), fixes=fixes)
    if parts:
        names = _names(row.name for row in parts)
        yield Finding(
            about="cudnn",
            message=f"{names}, which {_names(row.needed_by for row in parts)} opens, "
            f"{'is' if len(parts) == 1 else 'are'} not found",
            confidence="likely",
            evidence=_askers(parts),
            fixes=_bring(parts[0], torch, pins, interpreter, distributions),
        )


def _askers(rows: list[LoadFailure]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(source=row.needed_by, excerpt=f"needs {row.name} ({row.step})")
        for row in rows[:SHOWN]
    )


def _bring(
    row: LoadFailure,
    torch: TorchBuild,
    pins: LibraryPins | None,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> tuple[Fix, ...]:
    """The distribution that torch declares; another engine where it is built for another CUDA."""
    wanted = digits_of(posixpath.basename(row.name)).partition(".")[0]
    major = (torch.cuda or "").partition(".")[0]
    if row.step.endswith(".so") and row.library == "cudart" and wanted != major:
        return (engine_for_cuda(row.needed_by, wanted, torch),)
    lines = [pin.line for pin in pins.rows if pin.library == row.library] if pins else []
    return (install_pinned(lines[0], interpreter, distributions),) if lines else ()


@check("cuda-library-dangling", severity="error", category="missing_lib", since="0.1")
def library_dangling(
    loaded: LoadedLibraries, cuda: CudaInit | None, module: KernelModule | None
) -> Iterator[Finding]:
    """A link to a CUDA library leads nowhere, and the loader finds no other copy.

    ## Why it matters
    `ls` shows the library and the loader says that there is none: an update or a layer of an image
    took the file and left its link.

    ## How it decides
    As cuda-library-missing, but a folder that is searched has the name as a link whose target does
    not exist. A dangling link that another copy makes up for is no finding. Libraries of the driver
    count only when a driver is loaded and cuInit was not asked (cuda-init-failed knows better).

    ## Fix safety
    Manual: what the link should lead to must be installed again.
    """
    for name, rows in _failures(loaded, lambda row: not row.damaged and _dangling(row)).items():
        if rows[0].library == BUILTINS or not _counts(rows[0], cuda, module):
            continue
        links = [path for path, problem in rows[0].tried if problem == "leads nowhere"]
        yield Finding(
            about=name,
            message=f"{links[0]} is a link that leads nowhere, and {_names([rows[0].needed_by])} "
            f"needs {name}",
            evidence=tuple(Evidence(source=path, excerpt="leads nowhere") for path in links),
            fixes=(put_back(links[0], "the link leads nowhere"),),
        )


@check("cuda-library-damaged", severity="error", category="missing_lib", since="0.1")
def library_damaged(
    loaded: LoadedLibraries, cuda: CudaInit | None, module: KernelModule | None
) -> Iterator[Finding]:
    """The loader ends its search at a file that is no library.

    ## Why it matters
    It says "file too short" or "invalid ELF header" and does not go on to a good copy. Empty files
    named libcuda.so.1 remain in images that were committed from a container with GPUs; others come
    from a full disk or an unfetched Git LFS file.

    ## How it decides
    As cuda-library-missing; the first file of that name in the loader's order has no ELF header. A
    library for another machine or class is passed over by the loader, and here. Libraries of the
    driver count only when a driver is loaded and cuInit was not asked (cuda-init-failed).

    ## Fix safety
    Manual: the file belongs to what installed it.
    """
    for name, rows in _failures(loaded, lambda row: row.damaged).items():
        if not _counts(rows[0], cuda, module):
            continue
        path, problem = rows[0].tried[-1]
        yield Finding(
            about=name,
            message=f"{path} is no library ({problem}), and {_names([rows[0].needed_by])} loads it",
            evidence=(Evidence(source=path, excerpt=problem),),
            fixes=(put_back(path, problem),),
        )


@check("cuda-nvrtc-builtins-missing", severity="error", category="missing_lib", since="0.1")
def builtins_missing(
    loaded: LoadedLibraries,
    copies: LibraryCopies,
    pins: LibraryPins | None,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
    environ: Environ | None,
) -> Iterator[Finding]:
    """NVRTC does not find its builtins.

    ## Why it matters
    Whatever compiles kernels at run time fails: "nvrtc: error: failed to open
    libnvrtc-builtins.so.13.0" (torch's fused kernels, cuDNN's run-time engines, TensorRT-LLM).

    ## How it decides
    libnvrtc opens the one file of its own version by name, so by the loader's rules: its own
    RUNPATH (the wheels for CUDA 12 have one, those for CUDA 13 have none), LD_LIBRARY_PATH, the
    cache, the default folders, unless torch has loaded it before (2.11 does). The version is that
    of the libnvrtc that the process loads. An error when there is no copy at all; a warning when
    there is one that is not looked at, which is how torch for CUDA 13 came before it loaded it
    (pytorch/TensorRT issue 3893): an engine starts, until something compiles with NVRTC.

    ## Fix safety
    Unsafe: pip may change other packages. A variable of the next start is safe.
    """
    for name, rows in _failures(loaded, lambda row: not row.damaged).items():
        if rows[0].library != BUILTINS:
            continue
        nvrtc = rows[0].needed_by
        found = [copy.path for copy in copies.rows if posixpath.basename(copy.path) == name]
        lines = [pin.line for pin in pins.rows if pin.library == BUILTINS] if pins else []
        fixes: tuple[Fix, ...] = ()
        if found:
            fixes = (add_folder(posixpath.dirname(found[0]), environ),)
        elif lines:
            fixes = (install_pinned(lines[0], interpreter, distributions),)
        where = (
            f"{found[0]} is not where the loader looks" if found else "it is not on this machine"
        )
        yield Finding(
            about=BUILTINS,
            message=f"{nvrtc} does not find {name}: {where}",
            severity="warning" if found else None,
            confidence="likely",
            evidence=(
                Evidence(source=nvrtc, excerpt=f"opens {name}"),
                *(Evidence(source=path, excerpt="not looked at") for path in found[:1]),
            ),
            fixes=fixes,
        )


def _failures(
    loaded: LoadedLibraries, wanted: Callable[[LoadFailure], bool]
) -> dict[str, list[LoadFailure]]:
    """By the name that was asked for."""
    found: dict[str, list[LoadFailure]] = {}
    for row in loaded.failures:
        if wanted(row):
            found.setdefault(row.name, []).append(row)
    return found


def _dangling(row: LoadFailure) -> bool:
    return any(problem == "leads nowhere" for _, problem in row.tried)


def _counts(row: LoadFailure, cuda: CudaInit | None, module: KernelModule | None) -> bool:
    """The driver's libraries are asked for in vain on every machine without one."""
    if row.library not in DRIVER:
        return True
    return cuda is None and module is not None and module.version is not None


def _names(paths: Iterable[str]) -> str:
    """The file names, at most SHOWN."""
    names = list(dict.fromkeys(posixpath.basename(path) for path in paths))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
