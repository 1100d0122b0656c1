"""What a distribution declares against what its environment has, by the rules of pip.

Markers are evaluated for the examined interpreter, never for the doctor's own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infer_doctor.facts.environment import Distribution, Distributions, Interpreter, normal

if TYPE_CHECKING:
    from packaging.requirements import Requirement

UNKNOWN = "unknown"
"""Stands for what no file tells; requirements whose marker asks for it are not judged."""


@dataclass(frozen=True)
class Broken:
    """A declared requirement that the environment does not meet. `found` is None: not installed."""

    name: str
    line: str
    """The requirement as it is written."""
    found: str | None


def target(interpreter: Interpreter, machine: str, kernel: str) -> dict[str, str]:
    """The variables of PEP 508 for the examined interpreter; extras are off."""
    full = interpreter.full_version or UNKNOWN
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": kernel,
        "platform_system": "Linux",
        "platform_version": UNKNOWN,
        "python_full_version": full,
        "python_version": interpreter.version,
        "sys_platform": "linux",
        "extra": "",
    }


def undecidable(distribution: Distribution, environment: Mapping[str, str]) -> list[str]:
    """The requirements whose marker asks for what is not known of the target."""
    unknown = [name for name, value in environment.items() if value == UNKNOWN]
    return [
        line
        for line in distribution.requires
        if any(name in line.partition(";")[2] for name in unknown)
    ]


def broken(
    distribution: Distribution, installed: Distributions, environment: Mapping[str, str]
) -> Iterator[Broken]:
    """Each requirement that applies here and is not met."""
    from packaging.requirements import InvalidRequirement, Requirement

    unknown = undecidable(distribution, environment)
    for line in distribution.requires:
        if line in unknown:
            continue
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue  # pip would not have installed it; older tools wrote such lines
        if wanted.marker is not None and not wanted.marker.evaluate(dict(environment)):
            continue
        found = installed.by_name.get(normal(wanted.name))
        if found is None:
            yield Broken(normal(wanted.name), line, None)
        elif not _satisfies(wanted, found.version):
            yield Broken(normal(wanted.name), line, found.version)


def uncomparable(distribution: Distribution, installed: Distributions) -> list[str]:
    """The requirements of a version whose installed version is none by PEP 440."""
    from packaging.requirements import InvalidRequirement, Requirement

    lines = []
    for line in distribution.requires:
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        found = installed.by_name.get(normal(wanted.name))
        if found is not None and wanted.specifier and not release_of(found.version):
            lines.append(f"{line} ({found.version!r} is installed)")
    return lines


def satisfied_by(line: str, version: str) -> bool:
    """Whether this version meets the requirement; not if the line is none."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return _satisfies(Requirement(line), version)
    except InvalidRequirement:
        return False


def hidden_by(
    name: str, engine: Iterable[Distribution], leading: Collection[str], installed: Distributions
) -> Distribution | None:
    """The distribution that meets what the engine requires and that a copy before it hides.

    `leading` are the folders that a user puts before the environment's own; the copy is in one of
    them and breaks the requirement.
    """
    first = installed.by_name.get(name)
    if first is None or posixpath.dirname(first.metadata) not in leading:
        return None
    lines = [line for own in engine for line in own.requires if _names(line, name)]
    if all(satisfied_by(line, first.version) for line in lines):
        return None
    later = (row for row in installed.shadowed if row.name == name)
    return next(
        (row for row in later if all(satisfied_by(line, row.version) for line in lines)), None
    )


def _names(line: str, name: str) -> bool:
    found = re.match(r"[\w.-]+", line)
    return found is not None and normal(found[0]) == name and "extra" not in line


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a version, (12, 0, 0); empty for one that is not by PEP 440."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version).release
    except InvalidVersion:
        return ()


def _satisfies(wanted: Requirement, version: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return wanted.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True  # not by PEP 440 (a system package): nothing can be said against it


def fits_python(requires_python: str | None, interpreter: Interpreter) -> bool:
    """Whether the interpreter is one that the distribution declares."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    if not requires_python:
        return True
    try:
        wanted = SpecifierSet(requires_python)
    except InvalidSpecifier:
        return True
    if interpreter.full_version:
        return wanted.contains(interpreter.full_version, prereleases=True)
    # any patch release of this minor version that fits will do
    return any(wanted.contains(f"{interpreter.version}.{patch}") for patch in range(30))


def torch_fits(line: str, version: str) -> bool:
    """Whether this torch is the one that a companion declares, builds of one's own included.

    NVIDIA's containers call theirs 2.9.0a0+..., which is no 2.9.0 by PEP 440: the release counts.
    """
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    try:
        wanted = Requirement(line).specifier
        release = Version(version).base_version
        return wanted.contains(version, prereleases=True) or wanted.contains(release)
    except (InvalidRequirement, InvalidVersion):
        return True
