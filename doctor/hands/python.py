"""Installed distributions, read from disk without importing anything."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from .files import read_bytes

Json = dict[str, Any]

METADATA_LIMIT = 1 << 20
RECORD_LIMIT = 32 << 20
"""Bytes; the largest RECORD seen (a full CUDA toolkit in one wheel) has 3 MB."""

FIELD = re.compile(r"^(Name|Version|Requires-Dist|Requires-Python): *(.*)$", re.M)

OWNED = re.compile(
    r'^"?((?!\.\.)[^/,\n"]+(?:/__init__\.py|\.py|\.so|\.pth))"?,([^,\n]*),(\d*)\r?$', re.M
)
"""Lines of RECORD for what can be imported from the top: modules, packages, .pth files."""


def distributions(folders: list[str]) -> Json:
    """Name, version, requirements and importable files of each distribution, in path order."""
    found, unreadable = [], []
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            if not name.endswith((".dist-info", ".egg-info")):
                continue
            try:
                found.append(_distribution(folder, name))
            except OSError as error:
                unreadable.append({"folder": folder, "name": name, "error": str(error.strerror)})
    return {"distributions": found, "unreadable": unreadable}


def _distribution(folder: str, name: str) -> Json:
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
    return {
        "folder": folder,
        "info": name,
        "name": fields.get("Name", [None])[0],
        "version": fields.get("Version", [None])[0],
        "requires": fields.get("Requires-Dist", []),
        "requires_python": fields.get("Requires-Python", [None])[0],
        "installer": (_optional(os.path.join(place, "INSTALLER"), 200) or "").strip() or None,
        "editable": _editable(_optional(os.path.join(place, "direct_url.json"), 65_536)),
        "record": record is not None,
        "owns": {path: digest for path, digest, _ in OWNED.findall(record or "")},
    }


def _optional(path: str, limit: int) -> str | None:
    try:
        data, _ = read_bytes(path, limit)
    except OSError:
        return None
    return data.decode("utf-8", "backslashreplace")


def _editable(direct_url: str | None) -> bool:
    try:
        return bool(json.loads(direct_url or "{}").get("dir_info", {}).get("editable"))
    except (ValueError, AttributeError):
        return False
