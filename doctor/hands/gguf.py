"""The header of a GGUF file: its keys and the table of its tensors (ggml/docs/gguf.md)."""

from __future__ import annotations

import os
import struct
from typing import Any, BinaryIO

from .files import open_regular
from .model_files import LFS, Broken

Json = dict[str, Any]

MAGIC = b"GGUF"
HEADER_LIMIT = 128 << 20
"""Bytes of keys and tensor table that are read; a tokenizer of 262,144 tokens has some 8 MB."""

KEYS_LIMIT = 10_000
TENSORS_LIMIT = 200_000
TEXT_LIMIT = 2000
"""Characters of a value that are kept."""

DIMENSIONS_LIMIT = 8
"""GGML_MAX_DIMS is 4 (ggml.h); more would be another format."""

SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
STRING, ARRAY = 8, 9
"""enum gguf_metadata_value_type."""


def gguf(path: str) -> Json:
    """{"size", "version", "keys", "arrays", "tensors"} or {"size", "broken"}.

    `keys` are the values that are no arrays; `arrays` the lengths of those that are; `tensors` rows
    [name, type number, shape as written].
    """
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        try:
            return {"size": size, **_Reader(file, size).read()}
        except Broken as problem:
            return {"size": size, "broken": str(problem)}


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._left = min(size, HEADER_LIMIT)

    def _bytes(self, count: int) -> bytes:
        if count > self._left:
            if self._size > HEADER_LIMIT:
                raise Broken(f"its header claims more than {HEADER_LIMIT:,} bytes")
            raise Broken(f"ends within its header, after {self._size:,} bytes")
        self._left -= count
        data = self._file.read(count)
        if len(data) < count:
            raise Broken(f"ends within its header, after {self._size:,} bytes")
        return data

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _string(self) -> str:
        return self._bytes(self._number("<Q")).decode("utf-8", "replace")

    def read(self) -> Json:
        start = self._bytes(4)
        if start != MAGIC:
            if LFS.startswith(start):
                raise Broken("is a Git LFS pointer")
            raise Broken("is no GGUF file: it does not begin with GGUF")
        version = self._number("<I")
        if version not in (2, 3):
            raise Broken(f"is GGUF of version {version}; 2 and 3 are known")
        tensors, keys = self._number("<Q"), self._number("<Q")
        if tensors > TENSORS_LIMIT or keys > KEYS_LIMIT:
            raise Broken(f"claims {tensors:,} tensors and {keys:,} keys")
        values: Json = {}
        arrays: Json = {}
        for _ in range(keys):
            name = self._string()
            kind = self._number("<I")
            if kind == ARRAY:
                arrays[name] = self._skip_array()
            else:
                values[name] = self._value(kind)
        return {
            "version": version,
            "keys": values,
            "arrays": arrays,
            "tensors": [self._tensor() for _ in range(tensors)],
        }

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()[:TEXT_LIMIT]
        if kind not in SCALARS:
            raise Broken(f"has a value of the unknown type {kind}")
        value = self._number(SCALARS[kind])
        # JSON has no infinity
        return value if value == value and abs(value) != float("inf") else str(value)

    def _skip_array(self) -> int:
        kind, length = self._number("<I"), self._number("<Q")
        if kind in SCALARS:
            self._bytes(struct.calcsize(SCALARS[kind]) * length)
        elif kind == STRING:
            for _ in range(length):
                self._bytes(self._number("<Q"))
        else:
            raise Broken("has an array of arrays")
        return int(length)

    def _tensor(self) -> list[Any]:
        name = self._string()
        dimensions = self._number("<I")
        if dimensions > DIMENSIONS_LIMIT:
            raise Broken(f"has a tensor of {dimensions} dimensions")
        shape = [self._number("<Q") for _ in range(dimensions)]
        kind = self._number("<I")
        self._number("<Q")  # where its data begin
        return [name[:200], kind, shape]
