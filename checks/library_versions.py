"""CUDA's shared libraries that are older than what the engine was built with."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from infer_doctor.catalog.libraries import (
    CUDNN_PARTS,
    DRIVER,
    OLD_CUDNN_PARTS,
    family_of,
    older,
)
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.libraries import (
    LibraryCopies,
    LibraryCopy,
    LibraryPin,
    LibraryPins,
    LoadedLibraries,
    LoadedLibrary,
)
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.libraries import install_pinned, leave_out
from infer_doctor.host import Unavailable
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.versions import release

NCCL_PATH = "VLLM_NCCL_SO_PATH"

PARTS = (*CUDNN_PARTS, *OLD_CUDNN_PARTS)

MINOR = 2
"""torch refuses a cuDNN whose major differs or whose minor is below the one it was compiled with
(torch/backends/cudnn/__init__.py, _init, 2.11); the other libraries add functions in minor versions."""


@check("cuda-library-shadowed", severity="error", category="kernel_lib_version", since="0.1")
def library_shadowed(
    loaded: LoadedLibraries,
    copies: LibraryCopies,
    torch: TorchBuild,
    interpreter: Interpreter,
    environ: Environ | None,
) -> Iterator[Finding]:
    """An older copy of a CUDA library is loaded in place of the engine's own.

    ## Why it matters
    "undefined symbol: __nvJitLinkComplete_12_4" or "cuDNN version incompatibility" at the import,
    or wrong algorithms and crashes later: torch was compiled with the newer one.

    ## How it decides
    Which copy the process loads is played as in cuda-library-missing. The environment itself has
    a newer one of the same soname: of an nvidia wheel, beside torch's own libraries, or in the
    environment's prefix. Versions stand in the file's name, in the file, or in the wheel's
    metadata. An error when major or minor are older, since libraries add functions in minor
    versions; else a warning. A newer copy, or one that nobody loads, is no finding.

    ## Fix safety
    Safe where a variable puts it first: it changes the next start only. Else manual.
    """
    mixed = len(cudnn_versions(loaded)) > 1
    groups: dict[tuple[str, str], list[tuple[LoadedLibrary, LibraryCopy]]] = {}
    unknown: list[str] = []
    for row in loaded.rows:
        if row.copy.library in DRIVER or row.found_by == NCCL_PATH or _came_with(row.copy, torch):
            continue  # the driver's own; what the user names; the engine's own
        if mixed and row.copy.library in PARTS:
            continue  # cuda-cudnn-parts-mixed names them
        others = list(_own(row, copies.rows, torch, interpreter))
        own = _newer(row, others)
        if own is not None:
            key = (family_of(row.copy.library), posixpath.dirname(row.path))
            groups.setdefault(key, []).append((row, own))
        elif any(copy.version is None for copy in (row.copy, *others)) and others:
            unknown.append(row.path)
    for (family, folder), pairs in groups.items():
        row, own = pairs[0]
        wrong = any(older(r.copy.version or "", c.version or "", MINOR) for r, c in pairs)
        names = ", ".join(posixpath.basename(r.path) for r, _ in pairs[:3])
        more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
        verb = "is" if len(pairs) == 1 else "are"
        yield Finding(
            about=family,
            message=f"{names}{more} in {folder} ({row.copy.version}) {verb} loaded before the engine's "
            f"{own.version} in {posixpath.dirname(own.path)}: by {row.found_by}",
            severity=None if wrong else "warning",
            confidence="certain" if wrong and row.copy.library in PARTS else "likely",
            evidence=(told(row.copy), told(own), *first_by(row, environ)),
            fixes=(leave_out(row, environ, holds_driver=driver_in(folder, copies)),),
        )
    if unknown and not groups:
        raise Unavailable(f"the version of {unknown[0]} or of the engine's own copy cannot be told")


def _came_with(copy: LibraryCopy, torch: TorchBuild) -> bool:
    """Whether a wheel brought it, or torch itself."""
    return copy.owner is not None or copy.path.startswith(f"{torch.folder}/")


def _own(
    row: LoadedLibrary, rows: Sequence[LibraryCopy], torch: TorchBuild, interpreter: Interpreter
) -> Iterator[LibraryCopy]:
    """The copies of the environment that could be loaded in place of this one."""
    prefix = f"{interpreter.prefix}/" if interpreter.kind != "system" else None
    for copy in rows:
        own = _came_with(copy, torch) or (prefix is not None and copy.path.startswith(prefix))
        if own and copy.soname == row.copy.soname and copy.real != row.copy.real:
            yield copy


def _newer(row: LoadedLibrary, own: Iterable[LibraryCopy]) -> LibraryCopy | None:
    """The first of the engine's own copies that is newer than the loaded one."""
    version = row.copy.version or ""
    return next((copy for copy in own if older(version, copy.version or "")), None)


def first_by(row: LoadedLibrary, environ: Environ | None) -> tuple[Evidence, ...]:
    """The variable that puts it first."""
    value = environ.variables.get(row.found_by) if environ else None
    return (Evidence(source="environment", excerpt=f"{row.found_by}={value}"),) if value else ()


def told(copy: LibraryCopy) -> Evidence:
    """The version of a copy and where it stands."""
    return Evidence(source=copy.real, excerpt=f"version {copy.version} by {copy.version_from}")


def driver_in(folder: str, copies: LibraryCopies) -> bool:
    """Whether a folder holds libraries of the driver too."""
    return any(c.library in DRIVER and posixpath.dirname(c.path) == folder for c in copies.rows)


@check("cuda-library-too-old", severity="error", category="kernel_lib_version", since="0.1")
def library_too_old(
    loaded: LoadedLibraries,
    pins: LibraryPins,
    copies: LibraryCopies,
    torch: TorchBuild,
    interpreter: Interpreter,
    distributions: Distributions | None,
) -> Iterator[Finding]:
    """A CUDA library is older than the one torch or the engine was built with.

    ## Why it matters
    torch refuses an older cuDNN ("cuDNN version incompatibility"), an older NCCL, cuBLAS or
    nvJitLink lacks functions: "undefined symbol" at the import.

    ## How it decides
    The copy that the process loads against the least version that the metadata of torch and the
    engine declare (nvidia-cudnn-cu13==9.19.0.56; cuda-toolkit's own lines for what torch takes of
    it). An error when major or minor are older, else a warning. Where a newer copy of the engine's
    own is only not loaded, cuda-library-shadowed names it.

    ## Fix safety
    Unsafe: pip may change other packages.
    """
    groups: dict[str, list[tuple[LoadedLibrary, LibraryPin]]] = {}
    mixed = len(cudnn_versions(loaded)) > 1
    for row in loaded.rows:
        version = row.copy.version
        if version is None or row.found_by == NCCL_PATH:
            continue
        if mixed and row.copy.library in PARTS:
            continue
        bounds = [pin for pin in pins.rows if pin.library == row.copy.library]
        bound = next((pin for pin in bounds if older(version, pin.version)), None)
        shadowed = not _came_with(row.copy, torch) and _newer(
            row, _own(row, copies.rows, torch, interpreter)
        )
        if bound and not shadowed:
            groups.setdefault(family_of(row.copy.library), []).append((row, bound))
    for family, pairs in groups.items():
        row, pin = pairs[0]
        wrong = any(older(r.copy.version or "", p.version, MINOR) for r, p in pairs)
        severity, confidence = _weight(family, wrong)
        yield Finding(
            about=family,
            message=f"{posixpath.basename(row.path)} in {posixpath.dirname(row.path)} is "
            f"{row.copy.version}; {pin.line.partition(';')[0].strip()} is declared",
            severity=severity,
            confidence=confidence,
            evidence=(
                told(row.copy),
                Evidence(source=pin.source, excerpt=f"Requires-Dist: {pin.line}"),
            ),
            fixes=(install_pinned(pin.line, interpreter, distributions),),
        )
    wanted = {pin.library for pin in pins.rows}
    unknown = [r for r in loaded.rows if r.copy.version is None and r.copy.library in wanted]
    if unknown and not groups:
        raise Unavailable(f"the version of {unknown[0].path} cannot be told")


def _weight(family: str, wrong: bool) -> tuple[Severity, Confidence]:
    if not wrong:
        return "warning", "possible"
    return "error", "certain" if family == "nvidia-cudnn" else "likely"


def cudnn_versions(loaded: LoadedLibraries) -> dict[tuple[int, ...], list[LoadedLibrary]]:
    """The loaded parts of cuDNN by the three digits of their version."""
    found: dict[tuple[int, ...], list[LoadedLibrary]] = {}
    for row in loaded.rows:
        if row.copy.library in PARTS and row.copy.version is not None:
            found.setdefault(release(row.copy.version)[:3], []).append(row)
    return found
