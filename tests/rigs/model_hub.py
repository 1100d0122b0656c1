"""A small hub on this machine: answers HEAD requests as huggingface.co does, and writes them down."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD_TOKEN = "hf_" + "a" * 30


class Handler(BaseHTTPRequestHandler):
    """org/open, org/gated, org/slow, org/old (renamed), org/down; anything else does not exist."""

    def do_HEAD(self) -> None:
        self.server.asked.append((self.command, self.path))  # type: ignore[attr-defined]
        name = self.path.partition("/resolve/")[0].strip("/")
        revision = self.path.partition("/resolve/")[2].partition("/")[0]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if name == "org/old":
            self.answer(307, Location=self.path.replace("/org/old/", "/org/open/"))
        elif name == "org/down":
            self.answer(503)
        elif name == "org/lfs":
            self.answer(302, Location="https://cdn.example.com/x?signature=secret")
        elif token and token != GOOD_TOKEN:
            self.answer(401, **{"X-Error-Message": "Invalid credentials in Authorization header"})
        elif name == "org/gated" and not token:
            self.answer(401, **{"X-Error-Code": "GatedRepo"})
        elif name == "org/closed":
            self.answer(403, **{"X-Error-Code": "GatedRepo"})
        elif name in ("org/open", "org/gated"):
            if revision != "main":
                self.answer(404, **{"X-Error-Code": "RevisionNotFound"})
            else:
                self.answer(200, **{"X-Repo-Commit": "a" * 40})
        else:
            self.answer(401 if not token else 404, **{"X-Error-Code": "RepoNotFound"})

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path))  # type: ignore[attr-defined]
        self.answer(500)

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def hub() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Its address, and the requests so far."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
