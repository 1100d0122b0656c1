"""A port that does one wrong thing: for what a real server cannot be made to do."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator

Handler = Callable[[socket.socket, bytes], None]


def _head(connection: socket.socket) -> bytes:
    """The request up to the end of its headers and the body that they announce."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            wanted = int(line.split(b":")[1])
            while len(body) < wanted:
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def serve(
    handler: Handler, context: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    """Each connection is given to the handler with its request; the port while it runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family)
    ended = threading.Event()

    def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            with connection:
                handler(connection, _head(connection))

    def accept() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A port whose queue of connections is full: the kernel drops every further SYN, as a filter does."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
        fillers.append(filler)
    time.sleep(0.1)
    try:
        yield port
    finally:
        for filler in fillers:
            filler.close()
        listener.close()


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def path_of(request: bytes) -> str:
    """The path of a request."""
    return request.split(b" ", 2)[1].decode() if request.count(b" ") >= 2 else ""


# --- what they do wrong


def endless_headers(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X-More: " + b"a" * 4000 + b"\r\n")


def endless_body(connection: socket.socket, request: bytes) -> None:
    """10 GB, as its length says."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
    while True:
        connection.sendall(b"a" * 65536)


def endless_chunks(connection: socket.socket, request: bytes) -> None:
    """10 GB without a length, each chunk a byte: what is slowest to read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\na\r\n" * 10000)


def endless_until_close(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"a" * 65536)


def drip(connection: socket.socket, request: bytes) -> None:
    """A byte every 50 ms: each read of a client succeeds, and the answer never ends."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"a" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def garbage(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"\x00\xff\xfe garbage \x80\x81\r\n\r\n" * 10)


def greeting(connection: socket.socket, request: bytes) -> None:
    """Another protocol that speaks first would do so; this one answers in its words."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def bad_chunks(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n")


def cut_short(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")


def hang_up(connection: socket.socket, request: bytes) -> None:
    """Takes the request and closes."""


def silence(connection: socket.socket, request: bytes) -> None:
    time.sleep(60)


def packed_bomb(connection: socket.socket, request: bytes) -> None:
    """A thousandth of what it is when it is unpacked: 2 GB of zeros, again and again the same block."""
    block = zlib.compressobj(9, wbits=31)
    head = block.compress(bytes(1 << 20)) + block.flush(zlib.Z_FULL_FLUSH)
    again = zlib.compressobj(9, wbits=-15)
    more = again.compress(bytes(1 << 20)) + again.flush(zlib.Z_FULL_FLUSH)
    connection.sendall(answer("200 OK", head + more * 2000, "Content-Encoding: gzip"))


def bad_utf_eight(connection: socket.socket, request: bytes) -> None:
    body = b'{"object":"list","data":[{"id":"\xff\xfe\x80"}]}'
    connection.sendall(answer("200 OK", body, "Content-Type: application/json"))


def elsewhere(target: str) -> Handler:
    """Sends everybody to another address."""

    def handler(connection: socket.socket, request: bytes) -> None:
        connection.sendall(answer("307 Temporary Redirect", b"", f"Location: {target}"))

    return handler
