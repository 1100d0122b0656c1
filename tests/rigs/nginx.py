"""A real nginx before a server, on a free port; Debian's package nginx-light is enough."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

TEMPLATE = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
{locations}
    }}
}}
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def nginx(
    folder: Path, locations: str, certificate: tuple[str, str] | None = None
) -> Iterator[int]:
    """The port of an nginx with these locations, with TLS when a certificate and key are given."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if program is None:
        pytest.skip("no nginx here: apt-get install nginx-light")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)  # its worker is another user
    port = free_port()
    config = folder / "nginx.conf"
    tls = ""
    if certificate is not None:
        tls = f" ssl; ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]}"
    text = TEMPLATE.format(folder=folder, port=port, locations=locations, tls=tls)
    config.write_text(text)
    with (folder / "start.log").open("w") as log:
        process = subprocess.Popen([program, "-c", str(config)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, (folder / "start.log").read_text()
            assert time.monotonic() < end, "nginx does not listen"
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(20)
