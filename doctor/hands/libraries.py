"""Shared libraries in many folders at once, the loader's cache, and what RECORDs say of libraries."""

from __future__ import annotations

import errno
import os
import re
import struct
from typing import Any

from .elf import Elf, NotElf
from .files import open_regular, read_bytes

Json = dict[str, Any]

FOLDERS_LIMIT = 500
"""Folders that are looked at; a CUDA environment beside a toolkit has about 60."""

CACHE_LIMIT = 64 << 20
RECORD_LIMIT = 32 << 20

ORIGIN = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})")

OWNED = re.compile(rb"^([^\n,\"]+\.so[.\d]*),[^,\n]*,(\d*)\r?$", re.M)
"""A line of RECORD (https://packaging.python.org/en/latest/specifications/recording-installed-packages/)."""

GONE = (errno.ENOENT, errno.ENOTDIR)

OLD_CACHE, NEW_CACHE = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"
"""The two headers of /etc/ld.so.cache, the second may follow the first (glibc, dl-cache.h)."""


def libraries(folders: list[str], names: str) -> Json:
    """The files in the folders whose name matches, and what the loader reads of each.

    One part of a folder's path may have a `*`. Folders that a search path of a found library names
    are looked at too. `linked`: folders that are links or stand below one -> the folder without
    links. `folders`: folder without links -> name -> path without links, null where a link leads
    nowhere. `files`: path without links -> the dynamic section, or why there is none.
    """
    wanted = re.compile(names)
    waiting = [found for folder in folders for found in _expand(folder)]
    done: set[str] = set()
    seen: dict[str, dict[str, str | None]] = {}
    files: dict[str, Json] = {}
    linked: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    while waiting and len(done) < FOLDERS_LIMIT:
        folder = _plain(waiting.pop(0))
        if folder in done:
            continue
        done.add(folder)
        base = os.path.realpath(folder)
        try:
            if base not in seen:
                seen[base] = _matching(base, wanted)
        except OSError as error:
            if error.errno not in GONE:
                unreadable[folder] = errno.errorcode.get(error.errno or 0, "EIO")
            continue
        if base != folder:
            linked[folder] = base
        for path in seen[base].values():
            if path is not None and path not in files:
                files[path] = _file(path)
            waiting += _search_path(files.get(path or "", {}), folder)
    return {
        "folders": seen,
        "files": files,
        "linked": linked,
        "unreadable": unreadable,
        "truncated": any(_plain(folder) not in done for folder in waiting),
    }


def _expand(folder: str) -> list[str]:
    """The folders that a path with one `*` stands for, sorted."""
    head, star, tail = folder.partition("*")
    if not star:
        return [folder]
    parent, prefix = os.path.split(head)
    suffix, slash, rest = tail.partition("/")
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return []
    fitting = [name for name in names if name.startswith(prefix) and name.endswith(suffix)]
    return [
        f"{parent}/{name}{slash}{rest}" for name in fitting if len(name) >= len(prefix + suffix)
    ]


def _plain(folder: str) -> str:
    """The folder without `..`; what comes before it is followed through links, as the kernel does."""
    before, up, after = folder.partition("/..")
    return os.path.normpath(os.path.realpath(before) + up + after if up else folder)


def _matching(folder: str, wanted: re.Pattern[str]) -> dict[str, str | None]:
    """Name -> path without links, of the files in a folder that is none."""
    found: dict[str, str | None] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if wanted.fullmatch(entry.name) is None:
                continue
            path: str | None = entry.path
            if entry.is_symlink():
                path = os.path.realpath(entry.path)
                path = path if os.path.exists(path) else None
            found[entry.name] = path
    return dict(sorted(found.items()))


def _search_path(row: Json, folder: str) -> list[str]:
    """The folders that a library found in `folder` makes the loader look at."""
    both = f"{row.get('rpath') or ''}:{row.get('runpath') or ''}"
    places = (ORIGIN.sub(lambda _: folder, part) for part in both.split(":"))
    return [place for place in places if place.startswith("/")]


def _file(path: str) -> Json:
    try:
        descriptor = open_regular(path)
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno or 0, "EIO")}
    try:
        size = os.fstat(descriptor).st_size
        return {"size": size, **Elf(descriptor).dynamic()}
    except NotElf as error:
        return {"size": size, "error": str(error)}
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno or 0, "EIO")}
    finally:
        os.close(descriptor)


def library_marks(wanted: list[list[str]]) -> Json:
    """What files hold that tells their version: rows of path, kind and what to look for.

    Kind "value": the number behind a data symbol; "names": symbols that match; "texts": texts among
    the constants that match. An answer a row, in order; null where it cannot be read.
    """
    return {"marks": [_mark(*row) for row in wanted]}


def _mark(path: str, kind: str, what: str) -> int | list[str] | None:
    try:
        descriptor = open_regular(path)
    except OSError:
        return None
    try:
        elf = Elf(descriptor)
        if kind == "value":
            return elf.value(what)
        return elf.names(what) if kind == "names" else elf.texts(what)
    except (NotElf, OSError):
        return None
    finally:
        os.close(descriptor)


def owned_libraries(records: list[str]) -> Json:
    """The libraries that each metadata folder's RECORD lists: path -> size, null where not written."""
    return {"owned": [_owned(record) for record in records]}


def _owned(metadata: str) -> dict[str, int | None]:
    try:
        data, _ = read_bytes(f"{metadata}/RECORD", RECORD_LIMIT)
    except OSError:
        return {}
    site = os.path.dirname(metadata)
    return {
        os.path.normpath(f"{site}/{path.decode('utf-8', 'replace')}"): int(size) if size else None
        for path, size in OWNED.findall(data)
    }


def loader_cache(path: str, names: str) -> Json:
    """The rows of the loader's cache whose name matches, in its order: [name, path, flags, hwcap]."""
    data, _ = read_bytes(path, CACHE_LIMIT)
    start = data.find(NEW_CACHE) if data.startswith((OLD_CACHE, NEW_CACHE)) else -1
    if start < 0:
        raise ValueError("not a cache of glibc 2.2 or newer")
    wanted = re.compile(names)
    (count,) = struct.unpack_from("<I", data, start + len(NEW_CACHE))
    table = data[start + 48 : start + 48 + 24 * count]
    rows = []
    for flags, key, value, _, hwcap in struct.iter_unpack("<iIIIQ", table[: len(table) // 24 * 24]):
        name = _cached(data, start + key)
        if wanted.fullmatch(name):
            rows.append([name, _cached(data, start + value), flags, hwcap])
    if len(table) < 24 * count:
        raise ValueError("cut off")
    return {"rows": rows}


def _cached(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else None].decode("utf-8", "backslashreplace")
