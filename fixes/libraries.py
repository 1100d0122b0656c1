"""Fixes for shared libraries: what is installed, and what is looked at first."""

from __future__ import annotations

import posixpath
import re

from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.libraries import LoadedLibrary
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.environment import install_packages, managed, quoted
from infer_doctor.fixes.variables import set_variable, unset
from infer_doctor.model import Action, Fix


def install_pinned(
    line: str, interpreter: Interpreter | None, distributions: Distributions | None
) -> Fix:
    """Install what torch or the engine declares, over what is there."""
    wanted = re.sub(r"[\s()]+", "", line.partition(";")[0])
    return Fix(
        id=f"install-{re.split(r'[^a-z0-9-]', wanted.lower())[0]}",
        title=f"Install {wanted}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "it replaces the files that are there",
        actions=(
            install_packages(
                interpreter, distributions, wanted, options=("--force-reinstall", "--no-deps")
            ),
        ),
    )


def engine_for_cuda(module: str, found: str, torch: TorchBuild) -> Fix:
    """The engine's own modules are built for another CUDA than torch."""
    engine = posixpath.basename(posixpath.dirname(module))
    return Fix(
        id="install-engine-for-cuda",
        title=f"Install a build of {engine} for CUDA {torch.cuda}, as torch {torch.version} is; "
        f"this one is for CUDA {found}",
        safety="manual",
        restarts=True,
        why="installing the missing runtime would put two CUDA majors into one process",
    )


def put_back(path: str, problem: str) -> Fix:
    """Install again what owned the file."""
    return Fix(
        id=f"put-back-{re.split(r'[.]', posixpath.basename(path))[0].lower().replace('_', '-')}",
        title=f"Install again what brought {path}, or delete it if another copy is meant",
        safety="manual",
        restarts=True,
        why=problem,
        actions=(Action(kind="command", text=f"ls -l {quoted(path)}"),),
    )


def add_folder(folder: str, environ: Environ | None) -> Fix:
    """Let the loader look where the file is."""
    before = environ.variables.get("LD_LIBRARY_PATH") if environ else None
    command = f"export LD_LIBRARY_PATH={quoted(folder)}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    return Fix(
        id="add-library-folder",
        title=f"Start with {folder} in LD_LIBRARY_PATH",
        safety="safe" if environ else "manual",
        restarts=True,
        actions=(
            set_variable("LD_LIBRARY_PATH", f"{folder}:{before}" if before else folder)
            if environ
            else Action(kind="command", text=command),
        ),
    )


def leave_out(row: LoadedLibrary, environ: Environ | None, *, holds_driver: bool) -> Fix:
    """Take away what puts a copy first."""
    folder = posixpath.dirname(row.path)
    value = environ.variables.get(row.found_by, "") if environ else ""
    if row.found_by == "LD_PRELOAD":
        return unset("LD_PRELOAD")
    if row.found_by == "LD_LIBRARY_PATH" and value and not holds_driver:
        kept = [part for part in re.split("[:;]", value) if not _same(part, folder)]
        left = ":".join(kept) if any(kept) else None
        return Fix(
            id="leave-out-library-folder",
            title=f"Start without {folder} in LD_LIBRARY_PATH",
            safety="safe",
            restarts=True,
            actions=(set_variable("LD_LIBRARY_PATH", left),),
        )
    why = "the folder also holds the driver's libraries" if holds_driver else None
    return Fix(
        id="move-library-away",
        title=f"Remove {posixpath.basename(row.path)} from {folder}, where {row.found_by} finds it",
        safety="manual",
        restarts=True,
        why=why,
        actions=(Action(kind="command", text=f"ls -l {quoted(row.path)}"),),
    )


def _same(entry: str, folder: str) -> bool:
    return bool(entry) and posixpath.normpath(entry) == folder


def one_cuda(torch: TorchBuild, other: str, owner: str | None, needed_by: str) -> Fix:
    """Keep the libraries of torch's CUDA."""
    who = owner or posixpath.basename(needed_by)
    return Fix(
        id="keep-one-cuda",
        title=f"Replace {who} (CUDA {other}) by its build for CUDA {torch.cuda}, torch's own",
        safety="manual",
        restarts=True,
        why="torch and the engine must be built for the same CUDA major",
    )
