"""Packages that Python finds before the installed ones: by PYTHONPATH, in ~/.local, where one starts.

The rules are Python's: https://docs.python.org/3/library/sys_path_init.html. A folder counts as a
package only with its __init__.py: one without is a namespace package, and an installed one wins.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from infer_doctor.facts.engine import VLLM_BUILDS, EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter, normal
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.toolchain import TRITONS
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

IMPORTED = (
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "safetensors",
    "numpy",
    "triton",
    "ray",
    "flashinfer",
    "pydantic",
)
"""What vLLM and TensorRT-LLM import and what people have folders and scripts of that name of; the
package folder of vLLM 0.32 itself holds folders `tokenizers` and `ray`."""


OTHER_NAMES = {"vllm": VLLM_BUILDS, "flashinfer": ("flashinfer-python",), "triton": TRITONS}
"""Package -> the distributions that bring it, where it is not its own name."""


@frozen
class HiddenPackage:
    """A package that is imported from a folder without its metadata, before the installed one."""

    name: str
    path: str
    """Its folder, which is imported."""
    installed: str
    """The folder that would be imported without it."""
    libraries: bool
    """Whether a compiled library lies beside its modules."""


@frozen
class HiddenPackages:
    """Those that PYTHONPATH and the user's own site-packages hide."""

    rows: tuple[HiddenPackage, ...]
    gaps: tuple[str, ...] = ()


@frozen
class LocalCopy:
    """A module in the working folder with the name of one that the engine imports."""

    name: str
    path: str
    """Its folder, or its file NAME.py."""
    libraries: bool


@frozen
class WorkingFolder:
    """The folder the doctor was started in, which is where an engine would be started."""

    folder: str
    copies: tuple[LocalCopy, ...]
    by_variable: bool
    """Whether PYTHONPATH has an empty entry or `.`: then it is searched however Python starts."""


def leading(interpreter: Interpreter) -> tuple[str, ...]:
    """The folders that a user puts before the environment's own."""
    user = (interpreter.user_site,) if interpreter.user_site else ()
    return (*interpreter.python_path, *user)


@probe
def hidden_packages(
    host: Host, interpreter: Interpreter, distributions: Distributions, engine: EngineFact
) -> HiddenPackages:
    """Look for each name in the leading folders, then in those after them."""
    rows: list[HiddenPackage] = []
    for name in (posixpath.basename(engine.package), *IMPORTED):
        for place in leading(interpreter):
            if not host.exists(f"{place}/{name}/__init__.py"):
                continue
            if not _declared(place, name, distributions):
                rows += _hidden(host, interpreter, place, name)
            break
    return HiddenPackages(rows=tuple(rows), gaps=distributions.gaps)


def _hidden(host: Host, interpreter: Interpreter, place: str, name: str) -> Iterator[HiddenPackage]:
    folders = interpreter.folders
    here = host.real(f"{place}/{name}")
    for folder in folders[folders.index(place) + 1 :]:
        path = f"{folder}/{name}"
        if host.exists(f"{path}/__init__.py") and host.real(path) != here:
            yield HiddenPackage(
                name=name,
                path=f"{place}/{name}",
                installed=path,
                libraries=_libraries(host, f"{place}/{name}"),
            )
            return


def _declared(folder: str, package: str, distributions: Distributions) -> bool:
    """Whether metadata beside it, or an editable install, say that this copy is meant."""
    names = OTHER_NAMES.get(package, (normal(package),))
    rows = (*distributions.by_name.values(), *distributions.shadowed)
    return any(
        row.name in names
        and (
            posixpath.dirname(row.metadata) == folder
            or (row.project is not None and folder in (row.project, f"{row.project}/src"))
        )
        for row in rows
    )


def _local(host: Host, folder: str, name: str) -> str | None:
    """The package before the module, as Python's finder takes them."""
    if host.exists(f"{folder}/{name}/__init__.py"):
        return f"{folder}/{name}"
    return f"{folder}/{name}.py" if host.exists(f"{folder}/{name}.py") else None


def _libraries(host: Host, folder: str) -> bool:
    return any(".so" in name for name in host.list(folder))


@probe
def working_folder(
    host: Host,
    interpreter: Interpreter,
    distributions: Distributions,
    engine: EngineFact,
    environ: Environ,
) -> WorkingFolder:
    """Look for the names in the folder itself; nothing else of it is read."""
    found = host.ask("self")["folder"]
    if found is None:
        raise Unavailable("the working folder is gone")
    folder = str(found).rstrip("/")
    real = host.real(found)
    if any(host.real(place) == real for place in interpreter.folders):
        raise Absent(f"{found} is on the environment's own path")
    copies = []
    for name in (posixpath.basename(engine.package), *IMPORTED):
        path = _local(host, folder, name)
        if path is None or path == engine.package or _declared(folder, name, distributions):
            continue
        if any(host.exists(f"{place}/{name}/__init__.py") for place in interpreter.folders):
            libraries = not path.endswith(".py") and _libraries(host, path)
            copies.append(LocalCopy(name=name, path=path, libraries=libraries))
    entries = environ.variables.get("PYTHONPATH", "")
    return WorkingFolder(
        folder=str(found),
        copies=tuple(copies),
        by_variable=bool(entries) and any(part in ("", ".") for part in entries.split(":")),
    )
