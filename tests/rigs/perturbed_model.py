"""Copies of a model with its bfloat16 weights perturbed or of fewer bits; the standard library only."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

BF16_MANTISSA = 7


def perturbed(model: Path, target: Path, share: float, seed: int = 1) -> None:
    """Each weight gets a normal error of this share of its own size."""
    chance = random.Random(seed)
    _changed(model, target, lambda values: [v * (1 + chance.gauss(0, share)) for v in values])


def truncated(model: Path, target: Path, bits: int) -> None:
    """The mantissa keeps only so many bits, rounded to nearest."""
    step = 1 << (BF16_MANTISSA - bits)

    def cut(values: list[float]) -> list[float]:
        raw = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
        short = [((number >> 16) + step // 2) // step * step for number in raw]
        return list(
            struct.unpack(
                f"<{len(short)}f", struct.pack(f"<{len(short)}I", *(s << 16 for s in short))
            )
        )

    _changed(model, target, cut)


def _changed(model: Path, target: Path, change: Callable[[list[float]], list[float]]) -> None:
    shutil.copytree(model, target)
    path = target / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    body = bytearray(data[8 + size :])
    for name, row in header.items():
        if name == "__metadata__" or len(row["shape"]) < 2:
            continue
        start, end = row["data_offsets"]
        count = (end - start) // 2
        raw = struct.unpack(f"<{count}H", body[start:end])
        values = struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(r << 16 for r in raw)))
        packed = struct.pack(f"<{count}f", *change(list(values)))
        body[start:end] = b"".join(packed[i + 2 : i + 4] for i in range(0, len(packed), 4))
    path.write_bytes(data[: 8 + size] + bytes(body))
