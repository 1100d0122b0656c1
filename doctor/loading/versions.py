"""The version of each copy of a library, and the versions that torch and the engine declare."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from infer_doctor.catalog.libraries import (
    BUILTINS,
    MARKS,
    digits_of,
    libraries_of,
    library_of,
    version_of_mark,
)
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter, normal
from infer_doctor.facts.libraries import LibraryCopy, LibraryPin, LibraryScan
from infer_doctor.facts.machine import Identity
from infer_doctor.host import Host


def copies(host: Host, found: LibraryScan, distributions: Distributions) -> tuple[LibraryCopy, ...]:
    """Name each file; ask for marks in those whose name does not hold the version."""
    rows: dict[str, LibraryCopy] = {}
    site = f"{distributions.source}/"
    shown = {real: link for link, real in found.scan.linked.items() if link.startswith(site)}
    for folder, names in found.scan.folders.items():
        for name, real in names.items():
            library = library_of(name)
            if library is not None and real is not None and real not in rows:
                row = found.scan.files[real]
                owner = _owner(f"{folder}/{name}", row.get("size"), found)
                path = f"{shown.get(folder, folder)}/{name}"
                rows[real] = _copy(library, path, real, row, owner, distributions)
    wanted = [(real, mark) for real, copy in rows.items() if (mark := _mark(copy))]
    if wanted:
        asked = [[real, *mark] for real, mark in wanted]
        marks = host.ask("library_marks", wanted=asked)["marks"]
        for (real, (kind, _)), mark in zip(wanted, marks, strict=True):
            rows[real] = _marked(rows[real], kind, mark)
    return tuple(rows.values())


def _copy(
    library: str,
    path: str,
    real: str,
    row: Mapping[str, Any],
    owner: str | None,
    distributions: Distributions,
) -> LibraryCopy:
    digits, soname = digits_of(posixpath.basename(real)), digits_of(row.get("soname") or "")
    version, source = None, None
    if digits.count(".") > soname.count("."):
        version, source = digits, "its name"
    elif owner is not None:
        version, source = distributions.by_name[owner].version, f"the distribution {owner}"
    elif library == "nvrtc-builtins" and digits:
        version, source = digits, "its name"
    return LibraryCopy(
        library=library,
        path=path,
        real=real,
        soname=row.get("soname"),
        version=version,
        version_from=source,
        owner=owner,
    )


def _owner(path: str, size: int | None, found: LibraryScan) -> str | None:
    """The last of the distributions that list the file with its size; others were written over."""
    owners = found.owned.get(path, ())
    fitting = [name for name, written in owners if written is None or written == size]
    return fitting[-1] if fitting else None


def _mark(copy: LibraryCopy) -> tuple[str, str] | None:
    """What to look for in the file: its own word goes before its distribution's."""
    if copy.version_from == "its name":
        return None
    if copy.library == "nvrtc" and copy.version is None:
        return BUILTINS
    return MARKS.get(copy.library)


def _marked(copy: LibraryCopy, kind: str, mark: object) -> LibraryCopy:
    version = version_of_mark(mark)
    if version is None or f"{copy.version}.".startswith(f"{version}."):
        return copy
    words = "its text" if kind == "texts" else "its symbols"
    return replace(copy, version=version, version_from=words)


def pins(
    distributions: Distributions,
    interpreter: Interpreter,
    identity: Identity,
    engine: EngineFact | None,
) -> tuple[LibraryPin, ...]:
    """What torch and the engine declare; `cuda-toolkit[...]` stands for lines of its own."""
    from infer_doctor.requirements import target

    environment = target(interpreter, identity.machine, identity.kernel)
    names = ["torch", *(row.name for row in (engine.distributions if engine else ()))]
    own = [distributions.by_name[name] for name in names if name in distributions.by_name]
    found = [pin for row in own for pin in _pins(row, ("",), distributions, environment)]
    return tuple(dict.fromkeys(found))


def _pins(
    row: Distribution,
    extras: tuple[str, ...],
    distributions: Distributions,
    environment: Mapping[str, str],
) -> Iterator[LibraryPin]:
    """The least versions that one distribution declares, for the extras that were asked for."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in row.requires:
        if not re.match(r"nvidia|cuda-toolkit|tensorrt", line) or not _speaks(line, extras):
            continue
        try:
            wanted = Requirement(line)
        except InvalidRequirement:
            continue
        if not any(_applies(wanted.marker, environment, extra) for extra in extras):
            continue
        name = normal(wanted.name)
        if wanted.extras and name in distributions.by_name:
            inner = distributions.by_name[name]
            yield from _pins(inner, tuple(sorted(wanted.extras)), distributions, environment)
        for bound in wanted.specifier:
            if bound.operator in ("==", ">=", "~="):
                version = bound.version.removesuffix(".*")
                for library in libraries_of(name):
                    yield LibraryPin(
                        library=library, version=version, line=line, source=row.metadata
                    )


def _speaks(line: str, extras: tuple[str, ...]) -> bool:
    """Whether a line can be for one of the extras: parsing all 80 of cuda-toolkit takes 30 ms."""
    return "extra" not in line or any(extra and extra in line for extra in extras)


def _applies(marker: Any, environment: Mapping[str, str], extra: str) -> bool:
    return marker is None or bool(marker.evaluate({**environment, "extra": extra}))
