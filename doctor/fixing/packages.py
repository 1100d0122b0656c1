"""Steps that change the distributions of a Python environment, with its own pip or with uv.

The resolver is asked first (a dry run), then exactly what it answered is installed. The files of every
distribution that will change are kept beside the environment under second names (hard links), so that
they can be put back without a network, whatever happens to the installer.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.facts.environment import normal
from infer_doctor.fixing.distributions import files_of, neighbours, versions
from infer_doctor.fixing.files import Refused, sync_folder
from infer_doctor.fixing.journal import Journal, Record, Run
from infer_doctor.fixing.steps import State
from infer_doctor.frozen import frozen
from infer_doctor.model import Packages

RESOLVE_S = 600
"""Seconds for the resolver: it may download metadata of many wheels."""

INSTALL_S = 3600
"""Seconds for an installation; a torch for CUDA with its libraries has 5 GB."""

STASH = "~"
"""pip renames what it removes to names that begin so (pip/_internal/utils/temp_dir.py)."""

KEPT = ".infer-doctor"
"""The folder in the environment's prefix that holds the second names."""

BROUGHT = "brought.json"
"""Beside the second names: what an undo has begun to remove."""

PLACES = (
    "import json,sys,sysconfig as s;p=s.get_paths();"
    "print(json.dumps([sys.prefix,p['purelib'],p['platlib'],p['stdlib']]))"
)

PINNED = re.compile(r"^ \+ (\S+)==(\S+)$", re.M)
"""A line of `uv pip install --dry-run`."""

Versions = dict[str, str]


@frozen
class Change:
    """What an installer will do in the environment of `python`."""

    action: Packages
    prefix: str
    folders: tuple[str, ...]
    install: tuple[str, ...]
    before: dict[str, str | None]
    text: str

    def record(self, journal: Journal) -> Record:
        place = os.path.join(self.prefix, KEPT, journal.id)
        record = {
            "kind": "packages",
            "text": self.text,
            "python": self.action.python,
            "folders": list(self.folders),
            "before": self.before,
            "names": {folder: sorted(os.listdir(folder)) for folder in self.folders},
        }
        number = 0
        while os.path.exists(f"{place}-{number}"):
            number += 1
        record["kept"] = f"{place}-{number}"
        journal.write({"event": "keeping", "path": record["kept"]})
        _keep(record)
        return record

    def do(self, record: Record) -> Record:
        if versions(self.folders, self.before) != self.before:
            raise Refused(f"{self.prefix}: its packages were changed a moment ago")
        if self.action.remove:
            present = [name for name in self.action.remove if self.before.get(normal(name))]
            if present:
                self._run(*_installer(self.action, "uninstall"), *present)
        if self.install:
            words = [word for word in self.action.options if word != "--no-deps"]
            self._run(*_installer(self.action, "install"), "--no-deps", *words, *self.install)
        return {"after": versions(self.folders, self.before)}

    def _run(self, *command: str) -> None:
        """In a session of its own: it ends its work also when we are killed."""
        ended = _run(command, INSTALL_S)
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip().splitlines()[-3:]
            raise Refused(f"{' '.join(command[:5])} failed: {' '.join(said)}")


def _installer(action: Packages, verb: str) -> list[str]:
    if action.uv:
        return ["uv", "pip", verb, "--python", action.python]
    quiet = ["--disable-pip-version-check", "--no-input"]
    return [action.python, "-m", "pip", verb, *quiet, *(["-y"] if verb == "uninstall" else [])]


def _run(
    command: Sequence[str], limit_s: float, given: str = ""
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(command),
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise Refused(f"{command[0]}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{' '.join(command[:4])}: no end after {limit_s:,.0f} s") from None


def _named(requirement: str) -> str:
    return normal(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def prepared(action: Packages, removed: Collection[str] = ()) -> Change:
    """The step as the resolver sees it, or Refused; `removed` are gone when it is done."""
    ended = _run([action.python, "-I", "-c", PLACES], 30)
    if ended.returncode:
        raise Refused(f"{action.python}: does not start: {ended.stderr.strip()[-200:]}")
    prefix, *found = json.loads(ended.stdout)
    stdlib = found.pop()
    in_environment = os.path.isfile(os.path.join(prefix, "pyvenv.cfg"))
    if not in_environment and os.path.exists(os.path.join(stdlib, "EXTERNALLY-MANAGED")):
        raise Refused(f"{prefix}: belongs to the operating system (PEP 668)")
    folders = tuple(dict.fromkeys(folder for folder in found if os.path.isdir(folder)))
    for folder in (prefix, *folders):
        if os.stat(folder).st_uid != os.geteuid():
            raise Refused(f"{folder}: belongs to uid {os.stat(folder).st_uid}, not to you")
        if not os.access(folder, os.W_OK):
            raise Refused(f"{folder}: you may not write there")
    gone = set(map(normal, removed))
    if not action.install:
        install: tuple[str, ...] = ()
    elif gone & set(map(_named, action.install)):
        install = _resolved_without(action, gone, folders)
    else:
        install = _resolved(action)
    touched = [*map(normal, action.remove), *map(_named, install)]
    before = versions(folders, touched)
    before |= dict.fromkeys(gone & set(touched))
    if not install and not any(before.values()):
        names = ", ".join((*action.remove, *action.install))
        raise Refused(f"{names}: there is nothing to change any more")
    rows = [
        f"remove {name} {before[normal(name)]}" for name in action.remove if before[normal(name)]
    ]
    rows += [_row(line, before.get(_named(line))) for line in install]
    return Change(
        action=action,
        prefix=prefix,
        folders=folders,
        install=install,
        before=before,
        text=f"{', '.join(rows)} in {prefix}",
    )


def _row(line: str, before: str | None) -> str:
    return f"install {line}" + (f" over {before}" if before else "")


def _resolved(action: Packages, given: str = "") -> tuple[str, ...]:
    """What the installer would install, each with its version; raises Refused when it cannot."""
    command = [*_installer(action, "install"), "--dry-run"]
    if not action.uv:
        command += ["--quiet", "--report", "-"]
    ended = _run([*command, *action.options, *action.install], RESOLVE_S, given)
    if ended.returncode:
        said = [line for line in ended.stderr.strip().splitlines() if line.strip()][-2:]
        raise Refused(f"the resolver finds no answer: {' '.join(said)}")
    if action.uv:
        return tuple(f"{name}=={version}" for name, version in PINNED.findall(ended.stderr))
    rows = json.loads(ended.stdout)["install"]
    return tuple(_pin(row) for row in rows)


def _resolved_without(
    action: Packages, gone: Collection[str], folders: Sequence[str]
) -> tuple[str, ...]:
    """The answer for an environment in which some distributions are no longer there.

    The installer still sees them, so everything is asked for anew, bound to what else is there; of the
    answer only what differs is installed.
    """
    present: Versions = {}
    for own in importlib.metadata.distributions(path=list(folders)):
        if own.metadata["Name"]:
            present.setdefault(normal(own.metadata["Name"]), own.version)
    for name in gone:
        present.pop(name, None)
    bound = "".join(f"{name}=={version}\n" for name, version in present.items())
    anew = ("--reinstall",) if action.uv else ("--force-reinstall",)
    options = tuple(word for word in action.options if word not in anew)
    wanted = replace(action, options=(*anew, "-c", "/dev/stdin", *options))
    rows = _resolved(wanted, bound)
    return tuple(row for row in rows if present.get(_named(row)) != row.partition("==")[2])


def _pin(row: dict[str, Any]) -> str:
    metadata = row["metadata"]
    if row.get("is_direct"):
        return f"{metadata['name']} @ {row['download_info']['url']}"
    return f"{metadata['name']}=={metadata['version']}"


def _keep(record: Record) -> None:
    """Second names for all files of what will change, and the list of them.

    What was not there before may bring files over those of a neighbour: they are kept too.
    """
    place = record["kept"]
    rows: list[str] = []
    others: list[str] = []
    os.makedirs(place)
    try:
        for paths in files_of(record["folders"], record["before"]).values():
            rows += paths
        if not all(record["before"].values()):
            others = neighbours(record["folders"], record["before"])
        for number, path in enumerate((*rows, *others)):
            _link(path, os.path.join(place, str(number)))
        with open(os.path.join(place, "paths.json"), "w", encoding="utf-8") as file:
            json.dump({"own": rows, "others": others}, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(place)
        sync_folder(os.path.dirname(place))
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def _link(path: str, other: str) -> None:
    try:
        os.link(path, other)
    except OSError:
        shutil.copy2(path, other)


def state(run: Run, record: Record) -> State:
    """Versions say what stands there; files that are missing say that an installer was killed."""
    now = versions(record["folders"], record["before"])
    after = record.get("after")
    if os.path.exists(os.path.join(record["kept"], BROUGHT)):
        return "half"  # an undo was killed
    if _stashes(record) or not _whole(record, now):
        return "half"
    if now == record["before"]:
        return "new" if after == now else "old"
    if after is None:
        return "half"  # killed before the new versions were written down
    return "new" if now == after else "changed"


def _whole(record: Record, now: dict[str, str | None]) -> bool:
    for own in importlib.metadata.distributions(path=list(record["folders"])):
        if now.get(normal(own.metadata["Name"] or "")) != own.version:
            continue
        for path in own.files or ():
            if not str(path).endswith(".pyc") and not os.path.exists(str(own.locate_file(path))):
                return False
    return True


def _stashes(record: Record) -> list[str]:
    """What pip put away and did not bring back or delete."""
    return [
        os.path.join(folder, name)
        for folder, names in record["names"].items()
        if os.path.isdir(folder)
        for name in os.listdir(folder)
        if name.startswith(STASH) and name not in names
    ]


def take_back(run: Run, record: Record) -> None:
    """The files of before in the place of those of now. Can be repeated after a kill."""
    place = record["kept"]
    try:
        with open(os.path.join(place, "paths.json"), encoding="utf-8") as file:
            kept: dict[str, list[str]] = json.load(file)
    except FileNotFoundError:
        if state(run, record) == "old":
            return
        raise Refused(f"{place}: the files of before are gone") from None
    brought = _brought(record)
    half = record.get("after") is None  # then the lists may not be whole
    numbers = {path: number for number, path in enumerate((*kept["own"], *kept["others"]))}
    wanted = {path for path in kept["others"] if half or path in brought} | set(kept["own"])
    for path in brought - wanted:
        _unlink(path, record["folders"])
    for path in sorted(wanted, key=numbers.__getitem__):
        second = os.path.join(place, str(numbers[path]))
        if os.path.exists(path) and os.path.samefile(path, second):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.infer-doctor-{run.id}"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        _link(second, temporary)
        os.replace(temporary, path)
    for stash in _stashes(record):
        shutil.rmtree(stash, ignore_errors=True)
        if os.path.lexists(stash) and not os.path.isdir(stash):
            os.unlink(stash)
    os.sync()
    if versions(record["folders"], record["before"]) != record["before"]:
        raise Refused(f"{place}: the versions of before did not come back")


def _brought(record: Record) -> set[str]:
    """The files of what is installed now, written down before the first of them goes.

    The list goes with them, so an undo that goes on after a kill would no longer know the rest.
    """
    path = os.path.join(record["kept"], BROUGHT)
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        return set(json.load(file))
    lists = files_of(record["folders"], record["before"]).values()
    found = {path for paths in lists for path in paths}
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(sorted(found), file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    sync_folder(record["kept"])
    return found


def forget(record: Record) -> None:
    """The second names go when the old files stand in their place again; the lists of them first, so
    that a half of them is never taken for the whole."""
    for name in (BROUGHT, "paths.json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(record["kept"], name))
    shutil.rmtree(record["kept"], ignore_errors=True)
    parent = os.path.dirname(record["kept"])
    if os.path.isdir(parent) and not os.listdir(parent):
        os.rmdir(parent)


def _unlink(path: str, folders: Sequence[str]) -> None:
    """A file, and the folders above it that are empty then."""
    with contextlib.suppress(FileNotFoundError):  # compiled ones go with their folder below
        os.unlink(path)
    folder = os.path.dirname(path)
    while folder not in folders and any(folder.startswith(f"{base}/") for base in folders):
        cache = os.path.join(folder, "__pycache__")
        if os.path.isdir(cache) and os.listdir(folder) == ["__pycache__"]:
            shutil.rmtree(cache)
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = os.path.dirname(folder)


def difference(run: Run, record: Record) -> str:
    """Versions before, after and now."""
    now = versions(record["folders"], record["before"])
    after: dict[str, str | None] = record.get("after") or {}
    rows = ""
    for name, before in record["before"].items():
        if now[name] not in (before, after.get(name)):
            rows += (
                f"{name}: {before or 'not there'} (before), {after.get(name) or 'not there'} "
                f"(after the fix), {now[name] or 'not there'} (now)\n"
            )
    return rows
