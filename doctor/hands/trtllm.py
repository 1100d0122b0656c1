"""Folders of TensorRT-LLM and of Triton: names, sizes, small JSON and pbtxt files, heads of plans.

A plan has gigabytes: 28 bytes of each are read. What a file says is a claim of whoever made it, so
everything is bounded here.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from .files import open_regular, read_bytes

Json = dict[str, Any]

FILES_LIMIT = 20_000
RANKS_LIMIT = 4096
JSON_LIMIT = 4 << 20
"""Bytes of config.json; those of public engines have 5 to 60 KB, more with a list of modules."""

PBTXT_LIMIT = 1 << 20
MODELS_LIMIT = 256

HEAD = 28
"""Bytes of a plan up to the version that wrote it (NVIDIA/TensorRT, samples/common/sampleEngines.cpp,
printPlanVersion)."""

CONFIGS = ("config.json", "hf_quant_config.json", "quant_cfg.json")


def trt_folder(path: str) -> Json:
    """What an engine or checkpoint folder holds.

    `files`: name -> size. `json`: name -> object. `heads`: name of a plan -> its first bytes in hex.
    `broken`: name -> why it cannot be used. `truncated`: there were more files.
    """
    names = sorted(os.listdir(path))
    found: Json = {
        "files": {},
        "json": {},
        "heads": {},
        "broken": {},
        "truncated": len(names) > FILES_LIMIT,
    }
    for name in names[:FILES_LIMIT]:
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        try:
            entry = os.stat(os.path.join(path, name))
        except OSError as error:
            found["broken"][text] = error.strerror or "cannot be read"
            continue
        if stat.S_ISREG(entry.st_mode):
            found["files"][text] = entry.st_size
    plans = [name for name in found["files"] if name.endswith(".engine")]
    for name in plans[:RANKS_LIMIT]:
        try:
            found["heads"][name] = _head(os.path.join(path, name)).hex()
        except OSError as error:
            found["broken"][name] = error.strerror or "cannot be read"
    for name in CONFIGS:
        if name in found["files"]:
            _add_json(found, path, name)
    return found


def _head(path: str) -> bytes:
    descriptor = open_regular(path)
    try:
        return os.read(descriptor, HEAD)
    finally:
        os.close(descriptor)


def _add_json(found: Json, path: str, name: str) -> None:
    try:
        data, more = read_bytes(os.path.join(path, name), JSON_LIMIT)
        if more:
            found["broken"][name] = f"has more than {JSON_LIMIT:,} bytes"
            return
        value = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        found["broken"][name] = error.strerror or "cannot be read"
    except (ValueError, RecursionError) as error:
        found["broken"][name] = f"is no JSON: {str(error)[:120]}" if data else "is empty"
    else:
        if isinstance(value, dict):
            found["json"][name] = value
        else:
            found["broken"][name] = "holds no JSON object"


def triton_repository(path: str) -> Json:
    """The models of a repository: `models`: name -> {"config": text or null, "files": names,
    "versions": number -> names of its files, "error": why its configuration cannot be read}."""
    names = sorted(os.listdir(path))
    found: Json = {"models": {}, "truncated": len(names) > MODELS_LIMIT}
    for name in names[:MODELS_LIMIT]:
        folder = os.path.join(path, name)
        if name.startswith(".") or not os.path.isdir(folder):
            continue
        text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        found["models"][text] = _model(folder)
    return found


def _model(folder: str) -> Json:
    row: Json = {"config": None, "files": [], "versions": {}, "error": None}
    try:
        names = sorted(os.listdir(folder))[:FILES_LIMIT]
    except OSError as error:
        row["error"] = error.strerror or "cannot be read"
        return row
    for name in names:
        whole = os.path.join(folder, name)
        if name.isdigit() and os.path.isdir(whole):
            try:
                row["versions"][name] = sorted(os.listdir(whole))[:100]
            except OSError as error:
                row["error"] = f"{name}: {error.strerror}"
        else:
            row["files"].append(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if "config.pbtxt" in row["files"]:
        try:
            data, more = read_bytes(os.path.join(folder, "config.pbtxt"), PBTXT_LIMIT)
        except OSError as error:
            row["error"] = f"config.pbtxt: {error.strerror}"
            return row
        if more:
            row["error"] = f"config.pbtxt: has more than {PBTXT_LIMIT:,} bytes"
        else:
            row["config"] = data.decode("utf-8", "backslashreplace")
    return row
