"""The distributions of an environment's folders: names, versions, files."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Sequence

from infer_doctor.facts.environment import normal
from infer_doctor.fixing.files import Refused


def versions(folders: Iterable[str], names: Iterable[str]) -> dict[str, str | None]:
    """The versions of these distributions, None for what is not there."""
    found: dict[str, str] = {}
    for own in importlib.metadata.distributions(path=list(folders)):
        name = own.metadata["Name"]
        if name:
            found.setdefault(normal(name), own.version)
    return {normal(name): found.get(normal(name)) for name in names}


def files_of(folders: Sequence[str], names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each distribution, by its own list (RECORD)."""
    wanted = {normal(name) for name in names}
    found: dict[str, list[str]] = {}
    for own in importlib.metadata.distributions(path=list(folders)):
        name = normal(own.metadata["Name"] or "")
        if name in wanted and name not in found:
            if own.files is None:
                raise Refused(f"{name} {own.version}: has no list of its files")
            paths = (os.path.normpath(str(own.locate_file(path))) for path in own.files)
            found[name] = [path for path in paths if os.path.isfile(path)]
    return found


def neighbours(folders: Sequence[str], names: Iterable[str]) -> list[str]:
    """The files of all other distributions that have a list of theirs."""
    touched = {normal(name) for name in names}
    found: dict[str, None] = {}
    for own in importlib.metadata.distributions(path=list(folders)):
        if normal(own.metadata["Name"] or "") not in touched:
            paths = (os.path.normpath(str(own.locate_file(path))) for path in own.files or ())
            found |= dict.fromkeys(path for path in paths if os.path.isfile(path))
    return list(found)
