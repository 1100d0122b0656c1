"""A shell script -> the engines that it starts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from infer_doctor.launch.command import Around, launches, with_installs
from infer_doctor.launch.installs import requirements
from infer_doctor.launch.model import Launch, Place, Word

SBATCH = re.compile(r"^#SBATCH\s", re.M)
"""Slurm runs such a script on another machine than the one from which it is submitted."""

LIMIT = 1 << 20
"""Characters; a script that a person wrote is smaller."""


def read(text: str, file: str, beside: Callable[[str], str] | None = None) -> list[Launch]:
    """Each engine that a command of the script starts, in the order written."""
    from infer_doctor.launch.shell import commands

    found: list[Launch] = []
    installs: list[Word] = []
    for command in commands(text, Place(file=file, line=1), read=beside):
        if [word.text for word in command.words[1:2]] in (["="], [":="]):
            continue  # an assignment of another language: Nix, HCL, TOML
        around = Around(
            name=file,
            kind="script",
            machine="another" if SBATCH.search(text) else "local",
            folder=command.folder,
            gaps=command.gaps,
            read=beside,
        )
        installs += requirements(command.words)
        found += [
            with_installs(row, installs)
            for row in launches(command.words, around, command.environment)
            if row.engine is not None
        ]
    return named(found, file)


def named(found: list[Launch], file: str) -> list[Launch]:
    """Names with the line where there are several."""
    if len(found) < 2:
        return found
    return [replace(row, name=f"{file}:{row.place.line}") for row in found]
