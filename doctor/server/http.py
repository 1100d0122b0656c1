"""HTTP/1.1 over asyncio with exact times and bounded memory. Nothing is followed or retried.

The standard library's http.client does not tell when which byte came, and a server that is sick may
send endless headers, a body of 10 GB, or nothing; all of that ends here with a word for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from infer_doctor.server.encoding import Unpacker, unpacker
from infer_doctor.server.message import Broken, content_length, parse_head, shown

HEAD_LIMIT = 64 << 10
"""Bytes of status line and headers; nginx, envoy and uvicorn send at most some KiB."""

BODY_LIMIT = 4 << 20
"""Bytes of an answer; /metrics of vLLM with 16 engines has 1 MB."""

CHUNK_LINE = 1 << 10
HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,16}")
TRAILER_LIMIT = 100

SEGMENTS_AT = 152
"""Bytes before tcpi_data_segs_in in struct tcp_info."""
INTERIM_LIMIT = 8
"""1xx answers before the real one."""

Sink = Callable[[bytes, float], None]
"""Takes a part of the body and the monotonic time at which it came."""


@dataclass
class Answer:
    """What came. Times are of time.monotonic.

    `error`: "" (complete), "refused", "timeout" (no byte), "slow" (bytes, but not the end), "closed"
    (ended without an answer), "reset", "truncated", "not-http", "endless-headers", "too-large",
    "bad-chunks", "bad-encoding", "tls".
    """

    sent: float = 0.0
    first: float | None = None
    end: float | None = None
    status: int | None = None
    reason: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    received: int = 0
    segments: int | None = None
    """TCP segments with data that came for this answer, whenever we were let run to read them; None
    where the kernel does not tell."""
    error: str = ""
    said: str = ""
    reusable: bool = False

    @property
    def first_ms(self) -> float | None:
        """From the request to the first byte of the answer."""
        return None if self.first is None else (self.first - self.sent) * 1000

    @property
    def total_ms(self) -> float | None:
        """From the request to the end of the answer, or to where it was given up."""
        return None if self.end is None else (self.end - self.sent) * 1000


class Wire(asyncio.Protocol):
    """One connection; one request after the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self._data = b""
        self._answer: Answer | None = None
        self._done: asyncio.Future[None] | None = None
        self._state = self._head
        self._left = 0
        self._limit = BODY_LIMIT
        self._parts: list[bytes] = []
        self._unpacker: Unpacker | None = None
        self._unpacked = 0
        self._sink: Sink | None = None
        self._interim = 0
        self._at = 0
        self._trailers = 0
        self._before: int | None = None
        self.late_acks = False
        """Acknowledge as late as the kernel may, as a client that is busy does: what is written in
        small parts without TCP_NODELAY, as nginx does where it buffers, then comes in bursts."""

    # --- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what came, and stop at the first thing that is wrong."""
        now = time.monotonic()
        answer = self._answer
        if answer is None or answer.end is not None:
            self._data = (self._data + data)[:CHUNK_LINE]  # nobody asked: kept as evidence
            return
        if answer.first is None:
            answer.first = now
        answer.received += len(data)
        if self.late_acks:
            self._acknowledge_late()
        self._data = self._data + data if self._data else data
        try:
            while self._state(answer, now):
                pass
        except Broken as error:
            answer.error, answer.said = error.kind, error.said
            self._finish(now)
            self.close()
        self._data, self._at = self._data[self._at :], 0

    def eof_received(self) -> None:
        """The transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection is the end of the answer, or the lack of one."""
        self.lost = True
        answer = self._answer
        if answer is None or answer.end is not None:
            return
        now = time.monotonic()
        if self._state == self._until_close and exc is None:
            pass
        elif answer.first is None:
            answer.error = "reset" if isinstance(exc, ConnectionResetError) else "closed"
            answer.said = str(exc or "the connection was closed without an answer")
            if isinstance(exc, ssl.SSLError):
                answer.error, answer.said = "tls", (exc.reason or "").replace("_", " ").lower()
        elif answer.status is None:
            answer.error, answer.said = "not-http", shown(self._data)
        else:
            answer.error = "truncated"
            answer.said = f"the connection ended after {answer.received:,} bytes"
        self._finish(now)

    # --- what callers call

    async def ask(
        self,
        request: bytes,
        deadline: float,
        *,
        limit: int = BODY_LIMIT,
        sink: Sink | None = None,
        into: Answer | None = None,
    ) -> Answer:
        """Send a request and wait for the whole answer or the deadline (of time.monotonic).

        `into` is filled meanwhile, so that whoever cancels this has what came.
        """
        loop = asyncio.get_running_loop()
        answer = self._answer = into or Answer()
        answer.sent = time.monotonic()
        self._done = loop.create_future()
        self._state, self._parts, self._sink, self._limit = self._head, [], sink, limit
        self._interim = self._trailers = self._unpacked = 0
        if self.lost or self.transport is None:
            answer.error, answer.said = "closed", "the connection was closed before the request"
            answer.end = answer.sent
            self._answer = None
            return answer
        if self._data:  # a greeting of some other protocol
            early, self._data = self._data, b""
            self.data_received(early)
        self._before = self._segments()
        if self.late_acks:
            self._acknowledge_late()
        self.transport.write(request)
        timer = loop.call_at(loop.time() + max(deadline - time.monotonic(), 0), self._expire)
        try:
            await self._done
        finally:
            timer.cancel()
            self._finish(time.monotonic())
            self._answer = None
        return answer

    def _acknowledge_late(self) -> None:
        """TCP_QUICKACK 0 (tcp(7)); it lasts until the kernel thinks otherwise."""
        if self.transport is not None and hasattr(socket, "TCP_QUICKACK"):
            sock = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)

    def _segments(self) -> int | None:
        """tcpi_data_segs_in of the kernel's tcp_info (linux/tcp.h, since 4.6)."""
        if self.transport is None or not hasattr(socket, "TCP_INFO"):
            return None
        sock = self.transport.get_extra_info("socket")
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SEGMENTS_AT + 4)
        except (OSError, AttributeError):
            return None
        return (
            int.from_bytes(info[SEGMENTS_AT:], sys.byteorder) if len(info) > SEGMENTS_AT else None
        )

    def close(self) -> None:
        """Give the connection up at once."""
        if self.transport is not None:
            self.transport.abort()

    # --- how an answer is read

    def _expire(self) -> None:
        answer = self._answer
        if answer is None or answer.end is not None:
            return
        if answer.first is None:
            answer.error, answer.said = "timeout", "no byte of an answer"
        else:
            answer.error = "slow"
            answer.said = f"{answer.received:,} bytes, and not the end"
        self._finish(time.monotonic())
        self.close()

    def _finish(self, now: float) -> None:
        answer = self._answer
        if answer is None or answer.end is not None:
            return
        answer.end = now
        arrived = self._segments()
        if arrived is not None and self._before is not None:
            answer.segments = arrived - self._before
        answer.body = b"".join(self._parts)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def _head(self, answer: Answer, now: float) -> bool:
        data = self._data[self._at :] if self._at else self._data
        if not data[:5] == b"HTTP/"[: len(data)]:
            raise Broken("not-http", shown(data))
        end, skip = data.find(b"\r\n\r\n"), 4
        if end < 0:
            end, skip = data.find(b"\n\n"), 2
        if end > HEAD_LIMIT or (end < 0 and len(data) > HEAD_LIMIT):
            raise Broken("endless-headers", f"more than {HEAD_LIMIT:,} bytes of headers")
        if end < 0:
            return False
        self._at += end + skip
        answer.status, answer.reason, answer.headers = parse_head(data[:end])
        if answer.status < 200:
            self._interim += 1
            if self._interim > INTERIM_LIMIT:
                raise Broken("endless-headers", f"more than {INTERIM_LIMIT} interim answers")
            answer.status = None
            return self._more()
        return self._choose_body(answer, now)

    def _choose_body(self, answer: Answer, now: float) -> bool:
        """RFC 9112, section 6.3."""
        answer.reusable = answer.headers.get("connection", "").lower() != "close"
        self._unpacker = unpacker(answer.headers)
        if answer.status in (204, 304):
            return self._complete(answer, now)
        if "chunked" in answer.headers.get("transfer-encoding", "").lower():
            self._state = self._chunk_size
            return self._more()
        length = content_length(answer.headers)
        if length is None:
            answer.reusable = False
            self._state = self._until_close
            return self._more()
        self._left = length
        if self._left > self._limit:
            raise Broken("too-large", f"Content-Length: {self._left:,} bytes")
        self._state = self._length
        return self._more() if self._left else self._complete(answer, now)

    def _more(self) -> bool:
        return self._at < len(self._data)

    def _complete(self, answer: Answer, now: float) -> bool:
        answer.reusable = answer.reusable and not self._more()
        self._state = self._head
        self._finish(now)
        return False

    def _take(self, size: int, answer: Answer, now: float) -> None:
        """The next bytes of the body; at most `size`."""
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        self._left -= len(part)
        if answer.received > self._limit + HEAD_LIMIT:
            raise Broken("too-large", f"more than {self._limit:,} bytes")
        if self._unpacker is None:
            self._give(part, now)
            return
        for piece in self._unpacker.take(part):
            self._unpacked += len(piece)
            if self._unpacked > self._limit:
                raise Broken("too-large", f"more than {self._limit:,} bytes, unpacked")
            self._give(piece, now)

    def _give(self, part: bytes, now: float) -> None:
        if self._sink is not None:
            self._sink(part, now)
        else:
            self._parts.append(part)

    def _length(self, answer: Answer, now: float) -> bool:
        self._take(self._left, answer, now)
        return self._complete(answer, now) if self._left == 0 else False

    def _until_close(self, answer: Answer, now: float) -> bool:
        self._take(len(self._data), answer, now)
        return False

    def _chunk_size(self, answer: Answer, now: float) -> bool:
        end = self._data.find(b"\n", self._at, self._at + CHUNK_LINE)
        if end < 0:
            if len(self._data) - self._at >= CHUNK_LINE:
                raise Broken("bad-chunks", f"size of a chunk: {shown(self._data[self._at :])}")
            return False
        line = self._data[self._at : end]
        size = line.partition(b";")[0].strip()
        if not HEXADECIMAL.fullmatch(size):
            raise Broken("bad-chunks", f"size of a chunk: {shown(line)}")
        self._at = end + 1
        self._left = int(size, 16)
        self._state = self._chunk if self._left else self._trailer
        return self._more()

    def _chunk(self, answer: Answer, now: float) -> bool:
        if self._left:
            self._take(self._left, answer, now)
        ending = self._data[self._at : self._at + 2]
        if self._left or not ending or ending == b"\r":
            return False
        if ending != b"\r\n" and ending[:1] != b"\n":
            raise Broken("bad-chunks", f"after a chunk: {shown(self._data[self._at :])}")
        self._at += 2 if ending == b"\r\n" else 1
        self._state = self._chunk_size
        return self._more()

    def _trailer(self, answer: Answer, now: float) -> bool:
        end = self._data.find(b"\n", self._at)
        if end < 0 and len(self._data) - self._at <= HEAD_LIMIT:
            return False
        line = self._data[self._at : end].strip()
        self._trailers += 1
        if end < 0 or self._trailers > TRAILER_LIMIT:
            raise Broken("endless-headers", "trailers without an end")
        self._at = end + 1
        return self._more() if line else self._complete(answer, now)


def failed(error: BaseException, sent: float) -> Answer:
    """The answer that stands for a connection which could not be made."""
    kind = "tls" if isinstance(error, ssl.SSLError) else "refused"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)):
        kind = "timeout"
    elif isinstance(error, ConnectionResetError):
        kind = "reset"
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Answer(sent=sent, end=time.monotonic(), error=kind, said=said)
