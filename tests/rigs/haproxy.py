"""A real HAProxy before a server, on a free port; Debian's package haproxy is enough."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nginx import free_port

CONFIG = """
defaults
    mode http
    timeout connect 2s
    timeout client 2s
    timeout http-request 2s
    timeout server {server}
frontend api
    bind 127.0.0.1:{port}
    {more}
    default_backend engine
backend engine
    server one {upstream}
"""


@contextlib.contextmanager
def haproxy(
    folder: Path, upstream: str, server: str = "60s", more: str = ""
) -> Iterator[tuple[int, Path]]:
    """The port and the configuration of one that passes everything to host:port."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        pytest.skip("no haproxy here: apt-get install haproxy")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(CONFIG.format(port=port, upstream=upstream, server=server, more=more))
    with (folder / "haproxy.log").open("w") as log:
        process = subprocess.Popen([program, "-db", "-f", str(config)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, (folder / "haproxy.log").read_text()
            assert time.monotonic() < end, "haproxy does not listen"
            time.sleep(0.02)
        yield port, config
    finally:
        process.terminate()
        process.wait(20)
