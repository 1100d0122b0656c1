"""TCP between all nodes, two by two; they find each other in a folder that all of them see.

Each node listens on a port that the kernel chooses, writes its addresses into the folder, waits for
the others, connects to each of them and sends bytes to the next one of the ring. Everything has a
deadline, and a node that never comes is a row of its own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
import time
from typing import Any

Json = dict[str, Any]

CONNECT_S = 2.0
"""For one connection: the kernel's second SYN goes out after 1 s."""

STALE_S = 600.0
"""Nodes of one run write within a time limit of each other, by the one clock of the file server."""

SEND_S = 1.0
CHUNK = 1 << 20
HELLO = b"infer-doctor\n"


def links(
    folder: str, name: str, offer: Json, count: int, limit_s: float
) -> tuple[Json, list[Json]]:
    """The rows of this node: for each other the error, the time to connect, bytes a second.

    `offer` is what this node tells the others, its addresses among it; with the rows come the offers
    of all that met, by their numbers.
    """
    ends = time.monotonic() + limit_s
    _forget(
        folder, name, ".link", ".met"
    )  # of a run before; whoever sees the new .link sees no old .met
    with Listener() as listener:
        _write(folder, f"{name}.link", {**offer, "port": listener.port})
        met = _wait(folder, ".link", count, ends - limit_s / 2)
        names = sorted(met)
        own = names.index(name)
        rows = reach([met[other] for other in names], own, ends)
        _write(folder, f"{name}.met", {"done": True})
        _wait(folder, ".met", len(names), ends)  # the others may still want to connect
        _forget(folder, name, ".link")  # a later run must not take it for that of a node of its own
    found = {"own": own, "count": count, "met": len(names), "rows": rows}
    return found, [met[other] for other in names]


def reach(offers: list[Json], own: int, ends: float) -> list[Json]:
    """Connect to all others, and send to the next one of the ring."""
    rows = []
    for index, other in enumerate(offers):
        if index != own:
            follows = index == (own + 1) % len(offers)
            rows.append({"index": index, **_reach(other, ends, send=follows)})
    return rows


class Listener:
    """A port that the kernel chose, where each connection is drained."""

    def __init__(self) -> None:
        self._server = socket.create_server(("0.0.0.0", 0), backlog=256)  # noqa: S104 - for a second
        self._server.settimeout(0.2)
        self._stop = threading.Event()
        threading.Thread(target=_serve, args=(self._server, self._stop), daemon=True).start()
        self.port: int = self._server.getsockname()[1]

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        self._server.close()


def _serve(server: socket.socket, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        threading.Thread(target=_drain, args=(connection,), daemon=True).start()


def _drain(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(SEND_S * 4)
        buffer = bytearray(CHUNK)
        try:
            connection.sendall(HELLO)
            while connection.recv_into(buffer):
                pass
            connection.sendall(b"!")
        except OSError:
            return


def _reach(other: Json, ends: float, *, send: bool) -> Json:
    """By the first of its addresses that answers."""
    failed: OSError | None = None
    for address in other["addresses"]:
        left = min(CONNECT_S, ends - time.monotonic())
        if left <= 0:
            return {"error": "no time was left", "connect_ms": None, "bytes_per_s": None}
        began = time.monotonic()
        try:
            with socket.create_connection((address, other["port"]), timeout=left) as link:
                if link.recv(len(HELLO)) != HELLO:
                    raise ConnectionError(errno.EPROTO, "another program answered")
                took = (time.monotonic() - began) * 1000
                rate = _send(link) if send else None
                return {"error": None, "connect_ms": round(took, 3), "bytes_per_s": rate}
        except OSError as error:
            failed = error
    words = "timed out" if isinstance(failed, TimeoutError) else getattr(failed, "strerror", None)
    return {
        "error": words or (str(failed) if failed else "it has no address"),
        "connect_ms": None,
        "bytes_per_s": None,
    }


def _send(link: socket.socket) -> float | None:
    """For a second, until the other side says that all has come."""
    data = bytes(CHUNK)
    link.settimeout(SEND_S * 4)
    began = time.monotonic()
    sent = 0
    try:
        while time.monotonic() - began < SEND_S:
            link.sendall(data)
            sent += len(data)
        link.shutdown(socket.SHUT_WR)
        link.recv(1)
    except OSError:
        return None
    return sent / (time.monotonic() - began)


def _write(folder: str, name: str, value: Json) -> None:
    part = os.path.join(folder, f"{name}.part")
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(part, os.path.join(folder, name))


def _forget(folder: str, name: str, *suffixes: str) -> None:
    for suffix in suffixes:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f"{name}{suffix}"))


def _wait(folder: str, suffix: str, count: int, ends: float) -> dict[str, Json]:
    """What the nodes have written, once all have or the time is over; not what a killed run left."""
    newest = 0.0
    while True:
        found, times = {}, {}
        for name in os.listdir(folder):
            if name.endswith(suffix):
                with (
                    contextlib.suppress(FileNotFoundError),
                    open(os.path.join(folder, name), encoding="utf-8") as file,
                ):
                    key = name.removesuffix(suffix)
                    times[key] = os.fstat(file.fileno()).st_mtime
                    found[key] = json.load(file)
        newest = max([newest, *times.values()])
        found = {key: row for key, row in found.items() if times[key] > newest - STALE_S}
        if len(found) >= count or time.monotonic() >= ends:
            return found
        time.sleep(0.05)


def unasked() -> Json:
    """For one machine alone there is nobody to reach."""
    raise OSError(errno.ENOTSUP, "only between nodes: snapshot --to DIR --deep on all of them")
