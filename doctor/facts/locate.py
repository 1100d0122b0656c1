"""Which interpreter is the engine's: `--python`, the command, PATH. Nothing is executed."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from infer_doctor.facts.environment import Question
from infer_doctor.facts.scripts import (
    ENV,
    interpreter_of,
    latest,
    parents,
    pyenv_root,
    pyenv_versions,
)
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.command import ENGINES
from infer_doctor.launch.model import Launch

PROGRAMS = ("vllm", "trtllm-serve")

PYTHON_NAME = re.compile(r"python(?:(3)(?:\.(\d+)(t?))?)?(?:-dbg)?")

SCRIPT_BYTES = 4096
"""Enough of a script for its shebang and the exec line after it."""

MAIN_SYMBOL = "Py_BytesMain"
"""Every CPython since 3.8 defines or imports it (Programs/python.c); it must stay in the dynamic
symbol table, so a stripped executable has the name too."""


class NotAnInterpreter(Exception):
    """Proof that what `--python` names cannot be examined; the text says why."""


@dataclass(frozen=True)
class Located:
    """A path to an interpreter, links not followed, and how it was found."""

    executable: str
    found_by: str


def locate(host: Host, question: Question, launch: Launch | None = None) -> Located:
    """`--python`, else the command's, else that of an engine on PATH, else the doctor's own.

    Raises NotAnInterpreter with proof, Unavailable without.
    """
    if question.python is not None:
        return Located(_checked(host, question.python), "--python")
    program = launch.executable if launch else None
    if program is not None and PYTHON_NAME.fullmatch(posixpath.basename(program)):
        return Located(_checked(host, program), "the command")
    if program is not None and "/" in program and posixpath.basename(program) in ENGINES:
        return Located(_of_script(host, _absolute(host, program)), "the command")
    path = host.variables().get("PATH", "")
    wanted = dict.fromkeys((program, *PROGRAMS) if program in ENGINES else PROGRAMS)
    for name in wanted:
        if name and (script := host.which(name, path)):
            return Located(_of_script(host, script), f"{name} on PATH")
    return Located(host.ask("self")["executable"], "the doctor's own")


def _absolute(host: Host, path: str) -> str:
    """The path from the root; `~` is what masks make of a home folder."""
    if path.startswith(("/", "~")):
        return posixpath.normpath(path)
    folder = host.ask("self")["folder"]
    if folder is None:
        raise Unavailable(f"{path}: the working folder is gone")
    return posixpath.normpath(f"{folder}/{path}")


def _checked(host: Host, name: str) -> str:
    """The interpreter that a name or path of the user means."""
    if "/" in name:
        path = _absolute(host, name)
    else:
        found = host.which(name, host.variables().get("PATH", ""))
        if found is None:
            raise NotAnInterpreter(f"{name}: there is no such program on PATH")
        path = found
    known = host.stat(path)
    if known is None:
        raise NotAnInterpreter(f"{name}: {_why_gone(host, path)}")
    if known["kind"] == "folder":
        inside = f"{path}/bin/python"
        hint = f"; give its interpreter, {inside}" if host.exists(inside) else ""
        raise NotAnInterpreter(f"{name}: is a folder, not a Python interpreter{hint}")
    if known["kind"] != "file":
        raise NotAnInterpreter(f"{name}: is no regular file")
    head = _head(host, path)
    if head.startswith("#!"):
        text = _script(host, path)
        if pyenv_root(text, path) is not None:
            return _unshim(host, path, text)
        starts = interpreter_of(text, posixpath.dirname(path))
        hint = f" (it starts {starts}); name that" if starts else ""
        raise NotAnInterpreter(f"{name}: is a script, not a Python interpreter{hint}")
    if not head.startswith("\x7fELF") or not _is_python(host, path):
        raise NotAnInterpreter(f"{name}: is not a Python interpreter (CPython 3.8 or newer)")
    if not known["executable"]:
        raise NotAnInterpreter(f"{name}: may not be executed")
    return path


def _why_gone(host: Host, path: str) -> str:
    try:
        linked = posixpath.basename(path) in host.list(posixpath.dirname(path))
    except Unavailable:
        linked = False
    return "is a link that leads nowhere" if linked else "no such file"


def _head(host: Host, path: str) -> str:
    try:
        return str(host.ask("read", path=path, limit=4)["text"])
    except Unavailable as error:
        if error.code == "EACCES":
            raise NotAnInterpreter(f"{path}: may not be read") from None
        raise


def _script(host: Host, path: str) -> str:
    return str(host.ask("read", path=path, limit=SCRIPT_BYTES)["text"])


def _is_python(host: Host, path: str) -> bool:
    """By its name and the library beside it, or by the symbol that every CPython has."""
    target = host.real(path) or path
    name = PYTHON_NAME.fullmatch(posixpath.basename(target))
    if name and name[2]:
        prefix = posixpath.dirname(posixpath.dirname(target)).rstrip("/")
        library = f"{prefix}/lib/python3.{name[2]}{name[3]}"
        if host.exists(f"{library}/os.py"):
            return True
    return bool(host.ask("find", path=path, pattern=MAIN_SYMBOL, limit=1)["matches"])


def _of_script(host: Host, script: str) -> str:
    """The interpreter that runs an engine's command."""
    text = _script(host, script)
    if pyenv_root(text, script) is not None:
        return _of_script(host, _unshim(host, script, text))
    found = interpreter_of(text, posixpath.dirname(host.real(script) or script))
    if found is None:
        raise Unavailable(f"{script} names no Python interpreter in its first line; use --python")
    if found.startswith(f"{ENV} "):
        name = found[len(ENV) + 1 :]
        path = host.which(name, host.variables().get("PATH", ""))
        if path is None:
            raise Unavailable(f"{script} needs {name}, which is not on PATH")
        found = path
    if not host.exists(found):
        raise Unavailable(f"{script} names {found}, which does not exist")
    if _head(host, found).startswith("#!"):
        text = _script(host, found)
        if pyenv_root(text, found) is None:
            raise Unavailable(f"{script} names {found}, a script; use --python")
        return _unshim(host, found, text)
    return found


def _unshim(host: Host, shim: str, text: str) -> str:
    """What a shim of pyenv starts: the first of the chosen versions that has the program."""
    root = pyenv_root(text, shim) or ""
    program = posixpath.basename(shim)
    versions = _pyenv_choice(host, root)
    installed = host.list(f"{root}/versions")
    for name in versions:
        if name == "system":
            folders = host.variables().get("PATH", "").split(":")
            rest = ":".join(f for f in folders if posixpath.basename(f.rstrip("/")) != "shims")
            if (path := host.which(program, rest)) is not None:
                return path
        elif (version := latest(name, installed)) is not None:
            path = f"{root}/versions/{version}/bin/{program}"
            if host.exists(path):
                return path
    chosen = ", ".join(versions)
    raise Unavailable(f"{shim}: pyenv's version {chosen} has no {program}; use --python")


def _pyenv_choice(host: Host, root: str) -> list[str]:
    """PYENV_VERSION, else .python-version here or above, else the global file, else the system.

    https://github.com/pyenv/pyenv#understanding-python-version-selection
    """
    if wanted := host.variables().get("PYENV_VERSION"):
        return wanted.split(":")
    here = host.ask("self")["folder"]
    files = [f"{folder}/.python-version" for folder in parents(here)] if here else []
    for path in (*files, f"{root}/version"):
        try:
            names = pyenv_versions(host.read(path))
        except Unavailable as error:
            if error.code not in ("ENOENT", "ENOTDIR"):
                raise
            continue
        if names:
            return names
    return ["system"]
