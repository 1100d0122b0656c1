"""A model's folder or GGUF file: names, sizes, small JSON files and headers, never weights.

Every number in a header is a claim of a file that anybody may have made: what is read is bounded by
constants here and by the size of the file.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from typing import Any

from .files import open_regular, read_bytes

Json = dict[str, Any]

FILES_LIMIT = 20_000
JSON_LIMIT = 16 << 20
"""Bytes of config.json and the like; the largest seen has 3 MB: nvidia/MiniMax-M3-NVFP4 lists every
module in its quantization_config."""

PARTS_LIMIT = 100
"""Keys of an object that is looked into; more are a table, such as one of all tokens."""

VALUE_LIMIT = 32 << 10
"""Characters of one value of such a file that are kept; 256 added tokens have more."""

INDEX_LIMIT = 64 << 20
"""Bytes; that of DeepSeek-V3 with 91,991 tensors has 9 MB."""

HEADER_LIMIT = 100_000_000
"""Bytes of a header that the library takes (MAX_HEADER_SIZE, safetensors/src/tensor.rs, 0.6)."""

READ_LIMIT = 32 << 20
"""Bytes of a header that are read here: some 200,000 tensors in one file."""

LFS = b"version https://git-lfs.github.com/spec/"
"""The first line of a Git LFS pointer (github.com/git-lfs/git-lfs, docs/spec.md)."""

POINTER_LIMIT = 1024
"""Bytes: "Pointer files must be less than 1024 bytes in size" (the same page)."""

CONFIGS = (
    "adapter_config.json",
    "config.json",
    "config_sentence_transformers.json",
    "configuration.json",
    "generation_config.json",
    "hf_quant_config.json",
    "modules.json",
    "params.json",
    "preprocessor_config.json",
    "processor_config.json",
    "quant_config.json",
    "quantize_config.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
)
INDEXES = (
    "model.safetensors.index.json",
    "consolidated.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")

BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
"""Bits of one element (Dtype::bitsize, safetensors/src/tensor.rs, 0.6)."""


class Broken(Exception):
    """A file that is not what its name says; the text completes "FILE ..."."""


def model_files(path: str) -> Json:
    """What a folder with a model holds: see the keys of `found`."""
    found: Json = {
        "files": {},
        "dangling": [],
        "truncated": False,
        "json": {},
        "left_out": {},
        "index": {},
        "tensors": [],
        "broken": {},
        "unreadable": {},
    }
    names = sorted(os.listdir(path))
    found["truncated"] = len(names) > FILES_LIMIT
    for name in (_text(name) for name in names[:FILES_LIMIT]):
        _add_file(found, path, name)
    for name in found["files"]:
        _guarded(found, name, lambda name=name: _peek(found, path, name))
    for name in (name for name in CONFIGS if name in found["files"]):
        _guarded(found, name, lambda name=name: _add_json(found, path, name))
    maps = _read_indexes(found, path)
    main = maps.get("model.safetensors.index.json")
    table = _Table(set(main[0].values()) if main else set())
    for name in (name for name in found["files"] if name.endswith(".safetensors")):
        if name not in found["broken"]:
            _guarded(found, name, lambda name=name: table.add_file(path, name))
    for name, (where, total) in maps.items():
        found["index"][name] = _index(where, total, table.names)
    found["tensors"] = table.rows()
    return found


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _add_file(found: Json, path: str, name: str) -> None:
    place = os.path.join(path, name)
    try:
        if os.path.isdir(place):
            return
        found["files"][name] = os.stat(place).st_size
    except FileNotFoundError:
        found["dangling"].append(name)
    except OSError as error:
        found["unreadable"][name] = error.strerror


def _guarded(found: Json, name: str, read: Any) -> None:
    """Run one reader; what it finds wrong goes to "broken", what cannot be read to "unreadable"."""
    try:
        read()
    except OSError as error:
        found["unreadable"][name] = error.strerror or str(error)
    except Broken as problem:
        found["broken"][name] = str(problem)


def _peek(found: Json, path: str, name: str) -> None:
    """A pointer or an error page instead of a file; the end of a PyTorch file."""
    size = found["files"][name]
    weights = name.endswith(WEIGHTS)
    if not weights and not name.endswith((".json", ".model", ".txt", ".jinja", ".tiktoken")):
        return
    if size == 0 and (weights or name.endswith(".json")):
        raise Broken("is empty")
    if size >= POINTER_LIMIT and not name.endswith((".bin", ".pt", ".pth")):
        return
    data, _ = read_bytes(os.path.join(path, name), POINTER_LIMIT)
    if data.startswith(LFS):
        raise Broken("is a Git LFS pointer")
    if weights and data.lstrip()[:9].lower() in (b"<!doctype", b"<html><he"):
        raise Broken("is a web page")
    if weights and data.startswith(b"PK\3\4") and not _zip_ends(os.path.join(path, name), size):
        raise Broken(f"ends early: its {size:,} bytes have no directory of the archive at the end")


def _zip_ends(path: str, size: int) -> bool:
    """Whether a ZIP file has its end record (APPNOTE.TXT 4.3.16: at most 65,557 bytes from the end)."""
    descriptor = open_regular(path)
    try:
        tail = os.pread(descriptor, 65_557, max(0, size - 65_557))
    finally:
        os.close(descriptor)
    return b"PK\5\6" in tail


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=str)
    except UnicodeDecodeError:
        raise Broken("is not UTF-8") from None
    except ValueError as error:
        raise Broken(f"is not valid JSON: {error}"[:200]) from None
    except RecursionError:
        raise Broken("is JSON nested too deeply") from None


def _add_json(found: Json, path: str, name: str) -> None:
    data, more = read_bytes(os.path.join(path, name), JSON_LIMIT)
    if more:
        raise OSError(27, f"larger than {JSON_LIMIT:,} bytes")
    if name in found["broken"]:
        return
    value = _parsed(data)
    if name == "modules.json":
        found["json"][name] = {"modules": value} if isinstance(value, list) else {}
        return
    if not isinstance(value, dict):
        raise Broken("holds no JSON object")
    if len(data) > VALUE_LIMIT:
        left_out: list[str] = []
        value = _pruned(value, "", left_out)
        found["left_out"][name] = left_out
    found["json"][name] = value


def _pruned(value: Json, place: str, left_out: list[str]) -> Json:
    """The object without values that are too long; objects inside lose only theirs."""
    kept: Json = {}
    for key, item in value.items():
        if len(json.dumps(item)) > VALUE_LIMIT:
            if isinstance(item, dict) and len(item) < PARTS_LIMIT:
                item = _pruned(item, f"{place}{key}.", left_out)
            else:
                left_out.append(f"{place}{key}"[:200])
                continue
        kept[key] = item
    return kept


def _weight_map(path: str, name: str) -> tuple[dict[str, str], int | None]:
    """The file of each tensor, and the size that the index gives."""
    data, more = read_bytes(os.path.join(path, name), INDEX_LIMIT)
    if more:
        raise OSError(27, f"larger than {INDEX_LIMIT:,} bytes")
    value = _parsed(data)
    where = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(where, dict) or not all(isinstance(file, str) for file in where.values()):
        raise Broken("has no weight_map")
    metadata = value.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return where, total if isinstance(total, int) else None


def _read_indexes(found: Json, path: str) -> dict[str, tuple[dict[str, str], int | None]]:
    maps: dict[str, tuple[dict[str, str], int | None]] = {}
    for name in INDEXES:
        if name in found["files"] and name not in found["broken"]:
            _guarded(found, name, lambda name=name: maps.update({name: _weight_map(path, name)}))
    return maps


def _index(where: dict[str, str], total: int | None, names: dict[str, set[str]]) -> Json:
    """The files that an index names, and how many of its tensors their headers do not have."""
    lacking = [
        tensor for tensor, file in where.items() if file in names and tensor not in names[file]
    ]
    return {
        "files": sorted(set(where.values()))[:FILES_LIMIT],
        "tensors": len(where),
        "total_size": total,
        "lacking": len(lacking),
        "lacking_names": [f"{tensor} ({where[tensor]})"[:200] for tensor in lacking[:3]],
    }


class _Table:
    """The tensors of all files: those that differ only in numbers after the first are one row.

    A row is [pattern, dtype, shape, bytes of one, first file, kind of file, runs]; the kind is
    "indexed" for a file that model.safetensors.index.json names, "consolidated" or "other"; a run
    [first, last, count] says that each of these values of the first number has so many tensors
    ([-1, -1, 1]: no number). A mixture of experts with 90,000 tensors has some forty rows.
    """

    def __init__(self, indexed: set[str]) -> None:
        self._indexed = indexed
        self.names: dict[str, set[str]] = {}
        self._rows: dict[tuple[str, str, tuple[int, ...], int, str], dict[int, int]] = {}
        self._first: dict[tuple[str, str, tuple[int, ...], int, str], str] = {}

    def add_file(self, folder: str, name: str) -> None:
        header = read_header(os.path.join(folder, name))
        self.names[name] = set(header)
        kind = "consolidated" if name.startswith("consolidated") else "other"
        kind = "indexed" if name in self._indexed else kind
        for tensor, (dtype, shape, size) in header.items():
            parts = tensor.split(".")
            first = -1
            if not tensor.isalpha():
                for place, part in enumerate(parts):
                    if part.isdigit() and len(part) < 7:
                        first = int(part) if first < 0 else first
                        parts[place] = "*"
            key = (".".join(parts), dtype, shape, size, kind)
            counts = self._rows.get(key)
            if counts is None:
                counts = self._rows[key] = {}
                self._first[key] = name
            counts[first] = counts.get(first, 0) + 1

    def rows(self) -> list[Any]:
        return [
            [key[0], key[1], list(key[2]), key[3], self._first[key], key[4], _runs(counts)]
            for key, counts in self._rows.items()
        ]


def _runs(counts: dict[int, int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in sorted(counts):
        count = counts[number]
        if runs and runs[-1][1] == number - 1 and runs[-1][2] == count and number > 0:
            runs[-1][1] = number
        else:
            runs.append([number, number, count])
    return runs


def read_header(path: str) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Tensor -> (dtype, shape, bytes); raises Broken for what the library would refuse.

    github.com/huggingface/safetensors, "Format", and validate() of safetensors/src/tensor.rs.
    """
    descriptor = open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        start = os.pread(descriptor, 8, 0)
        if len(start) < 8:
            raise Broken(f"ends after {len(start)} of the 8 bytes that say how long its header is")
        (length,) = struct.unpack("<Q", start)
        if length > HEADER_LIMIT:
            raise Broken(
                f"is no safetensors file: it claims a header of {length:,} bytes, at most "
                f"{HEADER_LIMIT:,} are allowed"
            )
        if length > size - 8:
            raise Broken(f"ends within its header, after {size - 8:,} of {length:,} bytes")
        if length > READ_LIMIT:
            raise OSError(27, f"its header of {length:,} bytes is larger than {READ_LIMIT:,}")
        data = os.pread(descriptor, length, 8)
    finally:
        os.close(descriptor)
    try:
        value = _parsed(data)
    except Broken as problem:
        raise Broken(f"has a header that {problem}") from None
    if not isinstance(value, dict):
        raise Broken("has a header that is no JSON object")
    value.pop("__metadata__", None)
    tensors = {name: _tensor(name, row) for name, row in value.items()}
    _require_whole(value.values(), size - 8 - length)
    return tensors


def _tensor(name: str, row: Any) -> tuple[str, tuple[int, ...], int]:
    try:
        dtype, shape, (begin, end) = row["dtype"], row["shape"], row["data_offsets"]
        elements = 1
        for side in shape:
            if type(side) is not int or side < 0:
                raise Broken(f"has a wrong entry: {name[:80]} with a side of {side!r:.40}")
            elements *= side
        if type(begin) is not int or type(end) is not int or not isinstance(dtype, str):
            raise TypeError
    except (TypeError, KeyError, ValueError):
        raise Broken(f"has a wrong entry: {name[:80]}") from None
    if not 0 <= begin <= end:
        raise Broken(f"has a wrong entry: {name[:80]} from byte {begin} to {end}")
    bits = BITS.get(dtype)
    if bits is not None and elements * bits != (end - begin) * 8:
        raise Broken(
            f"has a wrong entry: {name[:80]}, {dtype} {list(shape)}, needs "
            f"{elements * bits // 8:,} bytes and has {end - begin:,}"
        )
    return dtype, tuple(shape), end - begin


def _require_whole(rows: Iterable[Json], size: int) -> None:
    """The data of the tensors lie one after the other and fill the file."""
    place = 0
    for begin, end in sorted(tuple(row["data_offsets"]) for row in rows):
        if begin != place:
            problem = "overlap" if begin < place else "leave a hole"
            raise Broken(f"has tensors that {problem} at byte {begin:,}")
        place = end
    if place > size:
        raise Broken(
            f"ends early: its header speaks of {place:,} bytes of data, {size:,} are there"
        )
    if place < size:
        raise Broken(f"has {size - place:,} bytes that its header does not name")
