"""Which MPI the engine's mpi4py was linked with, and which one mpirun belongs to."""

from __future__ import annotations

import posixpath
import re
from typing import Literal

from infer_doctor.facts.environment import Interpreter
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence
from infer_doctor.registry import probe

Kind = Literal["Open MPI", "MPICH"]

MODULE = re.compile(r"MPI(?:\..+)?\.so")

LINKED = r"lib(?:mpi|mpich)\.so\.[0-9]+"

SONAMES: dict[str, Kind] = {
    "libmpi.so.40": "Open MPI",
    "libmpi.so.20": "Open MPI",
    "libmpi.so.12": "MPICH",
    "libmpich.so.12": "MPICH",
}
"""Open MPI 3 to 5 and 2; MPICH 3.1 to 4.x and Intel MPI, which share one ABI (mpich.org, "ABI
Compatibility Initiative")."""

STARTERS: tuple[tuple[str, Kind, str | None], ...] = (
    ("prterun", "Open MPI", "5"),
    ("orterun", "Open MPI", "4"),
    ("openmpi", "Open MPI", None),
    ("hydra", "MPICH", None),
    ("mpich", "MPICH", None),
)
"""A word in the name that mpirun leads to -> what it is, and the major release where that tells it."""

PROGRAMS = ("mpirun", "mpiexec")


@frozen
class TrtMpi:
    """The MPI of mpi4py and of mpirun."""

    linked: Kind | None
    linked_evidence: Evidence | None
    starter: Kind | None
    starter_release: str | None
    starter_evidence: Evidence | None
    gaps: tuple[str, ...] = ()


@probe
def trt_mpi(launch: Launch, host: Host, interpreter: Interpreter) -> TrtMpi:
    """Absent where mpi4py is not installed beside a launch of TensorRT-LLM on this machine."""
    if launch.engine != "tensorrt-llm":
        raise Absent(f"the launch starts {launch.engine or 'no engine that is known'}")
    if launch.machine != "local":
        raise Unavailable("the MPI of the machine that will run it is not known")
    modules = _modules(host, interpreter)
    if modules is None:
        raise Absent(f"no mpi4py in {interpreter.prefix}")
    linked, source = _linked(host, modules)
    starter, release, path = _starter(host, launch)
    return TrtMpi(
        linked=linked,
        linked_evidence=source,
        starter=starter,
        starter_release=release,
        starter_evidence=path,
        gaps=() if linked else ("which MPI mpi4py was linked with is not known",),
    )


def _modules(host: Host, interpreter: Interpreter) -> tuple[str, ...] | None:
    """The compiled modules of mpi4py; None where it is not installed."""
    for folder in interpreter.folders:
        package = posixpath.join(folder, "mpi4py")
        try:
            names = host.list(package)
        except Unavailable as error:
            if error.code in ("ENOENT", "ENOTDIR"):
                continue
            raise
        return tuple(posixpath.join(package, name) for name in names if MODULE.fullmatch(name))
    return None


def _linked(host: Host, modules: tuple[str, ...]) -> tuple[Kind | None, Evidence | None]:
    """By the library that the module asks for; wheels with a module for each MPI choose at import."""
    if len(modules) != 1:
        return None, None
    asked = host.ask("find", path=modules[0], pattern=LINKED, limit=8)["matches"]
    kinds = {SONAMES[name] for name in asked if name in SONAMES}
    if len(kinds) != 1:
        return None, None
    return kinds.pop(), Evidence(source=modules[0], excerpt=", ".join(dict.fromkeys(asked)))


def _starter(host: Host, launch: Launch) -> tuple[Kind | None, str | None, Evidence | None]:
    """What mpirun of the launch, else of PATH, leads to."""
    words = [word.text for word in launch.program]
    named = next((w for w in words if posixpath.basename(w) in PROGRAMS), PROGRAMS[0])
    path = named if "/" in named else host.which(named, host.variables().get("PATH", ""))
    real = host.real(path) if path else None
    if real is None:
        return None, None, None
    for word, kind, release in STARTERS:
        if word in real:
            return kind, release, Evidence(source=path or named, excerpt=f"-> {real}")
    return None, None, None
