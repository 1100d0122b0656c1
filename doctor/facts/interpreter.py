"""The engine's interpreter, read off the disk: prefix, version, folders. Nothing is executed.

The rules are CPython's own: Modules/getpath.py for the prefix, Lib/site.py for the folders
(https://docs.python.org/3/library/site.html), and Debian's patch of it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infer_doctor.facts.environment import Interpreter, Question
from infer_doctor.facts.locate import Located, NotAnInterpreter, locate
from infer_doctor.facts.scripts import path_lines, settings
from infer_doctor.host import Host, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.registry import probe

LIBRARY_NAME = re.compile(r"python(3\.\d+)(t?)")
"""Folders in PREFIX/lib; the t marks the free-threaded build."""

NONE = ("ENOENT", "ENOTDIR")


@probe
def interpreter(host: Host, question: Question, launch: Launch | None) -> Interpreter:
    """Find the interpreter, then read its prefix, version and folders."""
    try:
        return read(host, locate(host, question, launch))
    except NotAnInterpreter as error:
        raise Unavailable(str(error)) from None


@dataclass(frozen=True)
class _Place:
    """Where an interpreter lives: `library` is the name of its folder in PREFIX/lib."""

    prefix: str
    base: str
    library: str
    settings: Mapping[str, str]
    kind: str


def read(host: Host, located: Located) -> Interpreter:
    """Everything that the files say about the interpreter; raises Unavailable."""
    place = _venv(host, located.executable) or _base(host, located.executable)
    base = _Place(place.base, place.base, place.library, {}, "system")
    gaps: list[str] = []
    own = list(_sites(host, place))
    open_venv = place.settings.get("include-system-site-packages", "").lower() == "true"
    user = list(_user_site(host, place)) if place.kind != "venv" or open_venv else []
    if place.kind != "venv":
        sites = user + own
    else:
        sites = [*own, *user, *_sites(host, base)] if open_venv else own
    by_variable = tuple(_python_path(host))
    folders = [*by_variable, *_with_path_files(host, sites, gaps)]
    version = place.library.removeprefix("python").rstrip("t")
    managed = f"{place.base}/lib/{place.library}/EXTERNALLY-MANAGED"
    return Interpreter(
        executable=located.executable,
        version=version,
        full_version=_full_version(host, place, version),
        prefix=place.prefix or "/",
        base_prefix=place.base or "/",
        kind=place.kind,
        found_by=located.found_by,
        folders=tuple(dict.fromkeys(folders)),
        site=own[0] if own else f"{place.prefix}/lib/{place.library}/site-packages",
        include=f"{place.base}/include/{place.library}",
        managed=place.kind != "venv" and host.exists(managed),
        python_path=by_variable,
        user_site=user[0] if user else None,
        gaps=tuple(gaps),
    )


def _venv(host: Host, executable: str) -> _Place | None:
    """The virtual environment whose pyvenv.cfg stands beside the interpreter or one folder up."""
    folder = posixpath.dirname(executable)
    for prefix in (folder, posixpath.dirname(folder)):
        try:
            found = settings(host.read(f"{prefix}/pyvenv.cfg"))
        except Unavailable as error:
            if error.code not in NONE:
                raise
            continue
        home = found.get("home", "")
        base = posixpath.dirname(host.real(home) or home) if home else prefix
        version = found.get("version") or found.get("version_info") or ""
        wanted = re.match(r"3\.\d+", version)
        library = _library(host, prefix, wanted[0] if wanted else None)
        return _Place(prefix, base.rstrip("/"), library, found, "venv")
    return None


def _base(host: Host, executable: str) -> _Place:
    """An interpreter of its own: its library stands in PREFIX/lib."""
    target = host.real(executable)
    if target is None:
        raise Unavailable(f"{executable}: is not there")
    prefix = posixpath.dirname(posixpath.dirname(target)).rstrip("/")
    named = re.match(r"python(3\.\d+t?)", posixpath.basename(target))
    library = f"python{named[1]}" if named else ""
    if not named or not host.exists(f"{prefix}/lib/{library}/os.py"):
        library = _library(host, prefix, None)
    kind = "conda" if host.exists(f"{prefix}/conda-meta") else "system"
    return _Place(prefix, prefix, library, {}, kind)


def _library(host: Host, prefix: str, version: str | None) -> str:
    """The name of the library folder in PREFIX/lib: that of the version, else the only one."""
    try:
        names = host.list(f"{prefix}/lib")
    except Unavailable as error:
        raise Unavailable(f"no Python library below {prefix}: {error.reason}", error.code) from None
    found = [name for name in names if LIBRARY_NAME.fullmatch(name)]
    fitting = [name for name in found if name.rstrip("t") == f"python{version}"]
    if len(fitting) == 1:
        return fitting[0]
    if len(found) == 1:
        return found[0]
    few = ", ".join(found) or "none"
    raise Unavailable(f"which Python {prefix} is for cannot be told: {few} in {prefix}/lib")


def _sites(host: Host, place: _Place) -> Iterator[str]:
    """Where pip and the system put packages, in the order of sys.path."""
    root, library = place.prefix, place.library
    names = [f"{root}/lib/{library}/site-packages"]
    if place.kind != "venv" and root == "/usr":  # Debian and Ubuntu
        names = [
            f"/usr/local/lib/{library}/dist-packages",
            "/usr/lib/python3/dist-packages",
            f"/usr/lib/{library}/dist-packages",
            *names,
        ]
    second = f"{root}/lib64/{library}/site-packages"  # Fedora and SUSE; elsewhere a link to lib
    if host.real(second) not in (None, host.real(names[-1])):
        names.insert(0, second)
    yield from (name for name in names if host.exists(name))


def _user_site(host: Host, place: _Place) -> Iterator[str]:
    """~/.local, which every interpreter outside of a closed environment reads."""
    variables = host.variables()
    if variables.get("PYTHONNOUSERSITE"):
        return
    home = variables.get("HOME")
    base = variables.get("PYTHONUSERBASE") or (f"{home}/.local" if home else None)
    folder = f"{base}/lib/{place.library}/site-packages"
    if base and host.exists(folder):
        yield folder


def _python_path(host: Host) -> Iterator[str]:
    """PYTHONPATH, which an engine started from here would inherit."""
    for folder in host.variables().get("PYTHONPATH", "").split(":"):
        if folder.startswith(("/", "~")) and host.exists(folder):
            yield folder.rstrip("/")


def _with_path_files(host: Host, folders: list[str], gaps: list[str]) -> list[str]:
    """Each folder and after it what its .pth files add (editable installs)."""
    found: list[str] = []
    for folder in folders:
        found.append(folder)
        try:
            files = [name for name in host.list(folder) if name.endswith(".pth")]
            texts = [host.read(f"{folder}/{name}") for name in files if name[0] != "."]
        except Unavailable as error:
            gaps.append(error.reason)
            continue
        for line in (line for text in texts for line in path_lines(text)):
            path = posixpath.normpath(posixpath.join(folder, line))
            if host.exists(path):
                found.append(path)
    return found


def _full_version(host: Host, place: _Place, version: str) -> str | None:
    """From pyvenv.cfg, conda's records, or the headers."""
    written = place.settings.get("version") or place.settings.get("version_info") or ""
    found = re.match(rf"{re.escape(version)}\.\d+", written)
    if found:
        return found[0]
    try:
        if place.kind == "conda":
            text = "\n".join(host.list(f"{place.prefix}/conda-meta"))
            found = re.search(rf"^python-({re.escape(version)}\.\d+)-", text, re.M)
        else:
            text = host.read(f"{place.base}/include/{place.library}/patchlevel.h")
            found = re.search(rf'PY_VERSION\s+"({re.escape(version)}\.\d+)', text)
    except Unavailable:
        return None
    return found[1] if found else None
