"""NVIDIA's shared libraries: every copy on the machine, and the copy that the engine's process loads.

How it is found out stands in `infer_doctor.loading`, which is imported only when a check asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host
from infer_doctor.registry import probe

if TYPE_CHECKING:
    from infer_doctor.loading.loader import Scan


@frozen
class LibraryScan:
    """What was read of every library in every folder that may matter."""

    scan: Scan = field(metadata={"report": False})
    executable: str
    """The interpreter without links: the loader's idea of the running program."""
    folder: str
    """What an empty entry of LD_LIBRARY_PATH stands for."""
    owned: Mapping[str, tuple[tuple[str, int | None], ...]] = field(metadata={"report": False})
    """File in a folder without links -> the distributions whose RECORD lists it, with its size there."""
    gaps: tuple[str, ...] = ()


@frozen
class LibraryCopy:
    """One file. `version` is None when neither the file nor its distribution tells it."""

    library: str
    """Such as "cublasLt", "cudnn_ops"."""
    path: str
    """Its folder without links, except below the site-packages that are examined, and its name."""
    real: str
    """The whole path without links."""
    soname: str | None
    version: str | None
    version_from: str | None
    """"its name", "its symbols", "its text" or the distribution."""
    owner: str | None
    """The distribution whose RECORD lists it with this size."""


@frozen
class LibraryCopies:
    """All copies on the machine."""

    rows: tuple[LibraryCopy, ...]
    gaps: tuple[str, ...] = ()


@frozen
class LibraryPin:
    """The least version of a library that torch or the engine declares."""

    library: str
    version: str
    line: str
    source: str


@frozen
class LibraryPins:
    """The pins of torch, the engine and the toolkit that they name."""

    rows: tuple[LibraryPin, ...]


@frozen
class LoadedLibrary:
    """A library as the process gets it."""

    copy: LibraryCopy
    name: str
    """What was asked for."""
    path: str
    """How the loader found it, without `..`."""
    found_by: str
    """"LD_LIBRARY_PATH", "RPATH of libtorch_cuda.so", "the loader's cache", "torch", ..."""
    needed_by: str
    """The file that asked for it first."""


@frozen
class LoadFailure:
    """A library that the process asks for and does not get."""

    library: str
    name: str
    needed_by: str
    step: str
    """"import torch", "cuDNN", "NVRTC", "the driver", or the module of the engine."""
    tried: tuple[tuple[str, str], ...]
    """Files that the loader met, and what was wrong with each."""
    damaged: bool
    """Whether it gave up at the last of these, a damaged file."""


@frozen
class LoadedLibraries:
    """What the engine's process loads, in order, and what it fails to load."""

    rows: tuple[LoadedLibrary, ...]
    failures: tuple[LoadFailure, ...]
    gaps: tuple[str, ...] = ()


@probe
def library_scan(
    host: Host,
    torch: TorchBuild,
    interpreter: Interpreter,
    distributions: Distributions,
    environ: Environ,
    identity: Identity,
    engine: EngineFact | None,
) -> LibraryScan:
    """Absent when torch is not built for CUDA: then nothing of this is loaded."""
    if torch.kind != "cuda":
        raise Absent(f"torch {torch.version} is not built for CUDA")
    from infer_doctor.loading.question import ask

    variables = environ.variables
    return ask(host, torch, interpreter, distributions, variables, identity.machine, engine)


@probe
def library_copies(host: Host, found: LibraryScan, distributions: Distributions) -> LibraryCopies:
    """Each file once, with its version."""
    from infer_doctor.loading.versions import copies

    return LibraryCopies(rows=copies(host, found, distributions), gaps=found.gaps)


@probe
def library_pins(
    torch: TorchBuild,
    distributions: Distributions,
    interpreter: Interpreter,
    identity: Identity,
    engine: EngineFact | None,
) -> LibraryPins:
    """Requires-Dist of torch and the engine."""
    if torch.kind != "cuda":
        raise Absent(f"torch {torch.version} is not built for CUDA")
    from infer_doctor.loading.versions import pins

    return LibraryPins(rows=pins(distributions, interpreter, identity, engine))


@probe
def loaded_libraries(
    host: Host,
    torch: TorchBuild,
    found: LibraryScan,
    copies: LibraryCopies,
    interpreter: Interpreter,
    environ: Environ,
    identity: Identity,
    engine: EngineFact | None,
) -> LoadedLibraries:
    """Play the start of the engine's process."""
    from infer_doctor.loading.process import play

    return play(host, torch, found, copies, interpreter, environ, identity.machine, engine)
