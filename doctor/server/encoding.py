"""What a proxy has compressed on the way, unpacked as it comes and within bounds.

The clients of an engine (httpx, requests, aiohttp) all offer gzip and deflate, and a proxy that
compresses a stream may keep tokens back for it; so the doctor offers the same two.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from infer_doctor.server.message import ENCODINGS, Broken

PIECE = 64 << 10
"""Bytes that are unpacked at a time: 10 GB of zeros are 10 MB of gzip."""

GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
NAMES = ("gzip", "x-gzip", "deflate")


class Unpacker:
    """One body; `name` is the header Content-Encoding, which may name several."""

    def __init__(self, name: str) -> None:
        self._stream = zlib.decompressobj(GZIP_OR_ZLIB)
        self._bare = name == "deflate"
        self._begun = False

    def take(self, data: bytes) -> Iterator[bytes]:
        """The parts that these bytes unpack to; raises Broken."""
        while data and not self._stream.eof:
            try:
                part = self._stream.decompress(data, PIECE)
            except zlib.error as error:
                if self._begun or not self._bare:
                    raise Broken("bad-encoding", str(error)) from None
                self._bare = (
                    False  # some send deflate without the header of zlib (RFC 9110, 8.4.1.2)
                )
                self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
                continue
            self._begun = True
            data = self._stream.unconsumed_tail
            if part:
                yield part


def unpacker(headers: dict[str, str]) -> Unpacker | None:
    """None for a body that is as it is; raises Broken for an encoding that was not offered."""
    name = headers.get("content-encoding", "").strip().lower()
    if name in ("", "identity"):
        return None
    if name not in NAMES:
        raise Broken("bad-encoding", f"Content-Encoding: {name[:40]}, offered was {ENCODINGS}")
    return Unpacker(name)
