"""The engine's Python environment: its interpreter and what is installed there, read from disk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Host
from infer_doctor.registry import probe


@frozen
class Question:
    """What the user asked to examine: the interpreter of `--python`, or None to look for it."""

    python: str | None


@frozen
class Interpreter:
    """The interpreter whose environment is examined."""

    executable: str
    version: str
    """major.minor, such as "3.12"."""
    full_version: str | None
    """Such as "3.12.3"; None when no file says it."""
    prefix: str
    base_prefix: str
    kind: str
    """"venv", "conda" or "system"."""
    found_by: str
    """"--python", "the command", "vllm on PATH", "trtllm-serve on PATH" or "the doctor's own"."""
    folders: tuple[str, ...]
    """Folders of sys.path that may hold distributions, in import order."""
    site: str
    """The folder where pip puts packages."""
    include: str
    """The folder where Python.h belongs."""
    managed: bool
    """Whether the distribution's EXTERNALLY-MANAGED file makes pip refuse (PEP 668)."""
    python_path: tuple[str, ...] = ()
    """Those of `folders` that PYTHONPATH names."""
    user_site: str | None = None
    """That of `folders` which lies in the user's home (~/.local) or PYTHONUSERBASE."""
    gaps: tuple[str, ...] = ()


@frozen
class Distribution:
    """One installed distribution. `name` is normalised (PEP 503)."""

    name: str
    written_name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str | None
    installer: str | None
    project: str | None
    """The project's folder of an editable install."""
    record: bool
    """Whether it has a list of its files."""
    metadata: str
    """Its .dist-info or .egg-info."""


@frozen
class SharedFile:
    """An importable file that several distributions of one folder list with different hashes."""

    path: str
    owners: tuple[Distribution, ...]


@frozen
class Distributions:
    """All distributions by normalised name; of several with one name the first on the path counts."""

    by_name: Mapping[str, Distribution] = field(metadata={"report": False})
    shadowed: tuple[Distribution, ...] = field(metadata={"report": False})
    shared: tuple[SharedFile, ...] = field(metadata={"report": False})
    source: str
    """The folder that pip fills."""
    gaps: tuple[str, ...] = ()


def package_folder(
    host: Host, interpreter: Interpreter, distributions: Distributions | None, name: str
) -> str | None:
    """Where a package would be imported from: sys.path first, then the editable installs."""
    projects = [
        distribution.project
        for distribution in (distributions.by_name.values() if distributions else ())
        if distribution.project
    ]
    inside = [folder for project in projects for folder in (project, f"{project}/src")]
    for folder in (*interpreter.folders, *inside):
        if host.exists(f"{folder}/{name}/__init__.py"):
            return f"{folder}/{name}"
    return None


def normal(name: str) -> str:
    """A name of a distribution as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@probe
def distributions(host: Host, interpreter: Interpreter) -> Distributions:
    """Read the metadata of every distribution in the interpreter's folders."""
    answer = host.ask("distributions", folders=list(interpreter.folders))
    rows = [_distribution(raw) for raw in answer["distributions"]]
    by_name: dict[str, Distribution] = {}
    shadowed = []
    for row in rows:
        if row is not None and by_name.setdefault(row.name, row) is not row:
            shadowed.append(row)
    return Distributions(
        by_name=by_name,
        shadowed=tuple(shadowed),
        shared=tuple(_shared(answer["shared"], rows)),
        source=interpreter.site,
        gaps=(*interpreter.gaps, *_gaps(answer)),
    )


def _distribution(raw: Mapping[str, Any]) -> Distribution | None:
    if not raw["name"] or not raw["version"]:
        return None
    return Distribution(
        name=normal(raw["name"]),
        written_name=raw["name"],
        version=raw["version"],
        requires=tuple(raw["requires"]),
        requires_python=raw["requires_python"],
        installer=raw["installer"],
        project=raw["project"],
        record=raw["record"],
        metadata=f"{raw['folder']}/{raw['info']}",
    )


def _shared(
    files: list[Mapping[str, Any]], rows: list[Distribution | None]
) -> Iterator[SharedFile]:
    for raw in files:
        owners = tuple(row for index in raw["owners"] if (row := rows[index]) is not None)
        if len(owners) > 1:
            yield SharedFile(path=f"{raw['folder']}/{raw['path']}", owners=owners)


def _gaps(answer: Mapping[str, Any]) -> Iterator[str]:
    for raw in answer["unreadable"]:
        place = f"{raw['folder']}/{raw['name']}" if raw["name"] else raw["folder"]
        yield f"{place}: metadata not readable: {raw['error']}"
    for raw in answer["distributions"]:
        if not raw["name"] or not raw["version"]:
            yield f"{raw['folder']}/{raw['info']}: its metadata has no name or version"
