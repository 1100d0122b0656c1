"""What compiles kernels at run time: compilers on PATH and the headers of the interpreter."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Host
from infer_doctor.registry import probe

C_NAMES = ("gcc", "clang")
"""Where Triton looks when CC is not set: triton/runtime/build.py (3.6 and 3.9)."""

CXX_NAMES = ("g++",)
"""What inductor runs when CXX is not set: torch/_inductor/config.py, cpp.cxx (2.11 and 2.13)."""


TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton-xpu")
"""Distributions that bring the package triton."""


@frozen
class Compiler:
    """A compiler as its user looks for it. `path` is None when it is not there."""

    wanted: str
    """What is looked for: "CC=/opt/bin/cc" or "gcc or clang on PATH"."""
    path: str | None


@frozen
class Compilers:
    """The C compiler that Triton takes and the C++ compiler that inductor takes."""

    c: Compiler
    cxx: Compiler
    triton: str | None
    """The version of the installed Triton, which needs the C compiler."""


@frozen
class PythonHeaders:
    """Python.h where sysconfig of the examined interpreter says it is."""

    path: str
    present: bool


@probe
def compilers(host: Host, environ: Environ, distributions: Distributions) -> Compilers:
    """Look where Triton and inductor look; an engine started from here has the same PATH."""
    triton = next(
        (distributions.by_name[name] for name in TRITONS if name in distributions.by_name), None
    )
    return Compilers(
        c=_compiler(host, environ.variables, "CC", C_NAMES),
        cxx=_compiler(host, environ.variables, "CXX", CXX_NAMES),
        triton=triton.version if triton else None,
    )


def _compiler(
    host: Host, variables: Mapping[str, str], variable: str, names: tuple[str, ...]
) -> Compiler:
    path = variables.get("PATH", "")
    value = variables.get(variable)
    if value is not None:
        try:
            program = (shlex.split(value) or [""])[0]
        except ValueError:
            program = value
        return Compiler(wanted=f"{variable}={value}", path=_program(host, program, path))
    places = (host.which(name, path) for name in names)
    return Compiler(
        wanted=f"{' or '.join(names)} on PATH", path=next((p for p in places if p), None)
    )


def _program(host: Host, name: str, path: str) -> str | None:
    if "/" in name:
        return name if host.exists(name) else None
    return host.which(name, path) if name else None


@probe
def python_headers(host: Host, interpreter: Interpreter) -> PythonHeaders:
    """Triton's and inductor's C sources include Python.h."""
    path = f"{interpreter.include}/Python.h"
    return PythonHeaders(path=path, present=host.exists(path))
