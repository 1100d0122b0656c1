"""Installed distributions, read from disk without importing anything."""

from __future__ import annotations

import errno
import json
import os
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from .files import read_bytes

Json = dict[str, Any]

METADATA_LIMIT = 1 << 20
RECORD_LIMIT = 32 << 20
"""Bytes; the largest RECORD seen (a full CUDA toolkit in one wheel) has 3 MB."""

SHARED_LIMIT = 1000

FIELD = re.compile(r"^(Name|Version|Requires-Dist|Requires-Python): *(.*)$", re.M)

LOADED = re.compile(rb"\.(?:py|so(?:\.\d+)*)$")
"""Files of RECORD that Python or the loader takes: modules, extensions, shared libraries."""

BLOCK = re.compile(rb"^([^/,\n]+)(?:/.*(?:\n\1/.*)*|,.*)", re.M)
"""Lines of RECORD in a row that begin with the same folder, or one line of a file at the top."""

GONE = (errno.ENOENT, errno.ENOTDIR)


def distributions(folders: list[str]) -> Json:
    """Name, version and requirements of each distribution, in path order, and the files of several.

    `shared`: each importable file that RECORDs of one folder list with different hashes, and the
    indexes of the distributions that do; at most SHARED_LIMIT.
    """
    found: list[Json] = []
    records: list[bytes | None] = []
    unreadable = []
    for folder in folders:
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            if error.errno not in GONE:
                unreadable.append({"folder": folder, "name": None, "error": error.strerror})
            continue
        for name in names:
            # pip renames what it is about to delete to ~name; importlib.metadata skips nothing else
            if not name.endswith((".dist-info", ".egg-info")) or name.startswith("~"):
                continue
            try:
                row, record = _distribution(folder, name)
            except OSError as error:
                unreadable.append({"folder": folder, "name": name, "error": error.strerror})
                continue
            found.append(row)
            records.append(record)
    return {"distributions": found, "unreadable": unreadable, "shared": _shared(found, records)}


def _distribution(folder: str, name: str) -> tuple[Json, bytes | None]:
    place = os.path.join(folder, name)
    if os.path.isfile(place):  # a distutils egg-info file
        metadata, _ = read_bytes(place, METADATA_LIMIT)
    else:
        form = "METADATA" if name.endswith(".dist-info") else "PKG-INFO"
        metadata, _ = read_bytes(os.path.join(place, form), METADATA_LIMIT)
    header = re.split(r"\r?\n\r?\n", metadata.decode("utf-8", "backslashreplace"), maxsplit=1)[0]
    unfolded = re.sub(r"\r?\n[ \t]+", " ", header)
    fields: dict[str, list[str]] = {}
    for key, value in FIELD.findall(unfolded):
        fields.setdefault(key, []).append(value.strip())
    record = _optional(os.path.join(place, "RECORD"), RECORD_LIMIT)
    installer = _optional(os.path.join(place, "INSTALLER"), 200) or b""
    row = {
        "folder": folder,
        "info": name,
        "name": fields.get("Name", [None])[0],
        "version": fields.get("Version", [None])[0],
        "requires": fields.get("Requires-Dist", []),
        "requires_python": fields.get("Requires-Python", [None])[0],
        "installer": installer.decode("utf-8", "backslashreplace").strip() or None,
        "project": _project(_optional(os.path.join(place, "direct_url.json"), 65_536)),
        "record": record is not None,
    }
    return row, record


def _optional(path: str, limit: int) -> bytes | None:
    try:
        data, _ = read_bytes(path, limit)
    except OSError:
        return None
    return data


def _project(direct_url: bytes | None) -> str | None:
    """The folder of an editable install (PEP 610)."""
    try:
        found = json.loads(direct_url or b"{}")
        if not found.get("dir_info", {}).get("editable"):
            return None
        address = urlsplit(found["url"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return None
    return unquote(address.path) if address.scheme == "file" else None


def _shared(found: list[Json], records: list[bytes | None]) -> list[Json]:
    """Only what stands below a name that several distributions use is compared line by line."""
    blocks = [_blocks(record or b"") for record in records]
    seen: set[bytes] = set()
    several: set[bytes] = set()
    for block in blocks:
        several |= seen & block.keys()
        seen |= block.keys()
    owners: dict[tuple[str, bytes], dict[int, str]] = {}
    for index, block in enumerate(blocks):
        folder = found[index]["folder"]
        for line in b"\n".join(block[top] for top in block.keys() & several).split(b"\n"):
            path, _, rest = line.partition(b",")
            if LOADED.search(path):
                digest = rest.partition(b",")[0].decode("ascii", "replace")
                owners.setdefault((folder, path), {})[index] = digest
    return [
        {
            "folder": folder,
            "path": path.decode("utf-8", "backslashreplace"),
            "owners": sorted(rows),
        }
        for (folder, path), rows in sorted(owners.items())
        if len(set(rows.values())) > 1
    ][:SHARED_LIMIT]


def _blocks(record: bytes) -> dict[bytes, bytes]:
    """The lines of RECORD by the first part of their path."""
    blocks: dict[bytes, bytes] = {}
    for match in BLOCK.finditer(record):
        top = match[1]
        if top not in (b"..", b"__pycache__"):
            blocks[top] = blocks[top] + b"\n" + match[0] if top in blocks else match[0]
    return blocks
