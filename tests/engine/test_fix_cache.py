"""For checks of a model's files in the hub's cache: fetched again from a hub on this machine, found no
more, the broken ones put back."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import model_folder
import pytest
from doctor_process import Run

pytestmark = pytest.mark.engine

COMMIT = "a" * 40
SHARD = "model-00002-of-00002.safetensors"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"

Break = Callable[[Path], None]
"""Does it to the snapshot of the cache."""


def cut(snapshot: Path) -> None:
    blob = (snapshot / SHARD).resolve()
    blob.write_bytes(blob.read_bytes()[:-20])


def pointer(snapshot: Path) -> None:
    (snapshot / SHARD).resolve().write_bytes(POINTER)


def gone(snapshot: Path) -> None:
    (snapshot / SHARD).resolve().unlink()
    (snapshot / SHARD).unlink()


def broken_config(snapshot: Path) -> None:
    blob = (snapshot / "config.json").resolve()
    blob.write_bytes(blob.read_bytes()[:30])


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Its address, and the snapshot of org/model in a cache; it serves the whole files."""
    source = model_folder.folder(tmp_path / "source")
    files = {path.name: path.read_bytes() for path in source.iterdir()}

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            data = files.get(self.path.rpartition("/")[2], b"")
            self.send_response(200 if data else 404)
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(files.get(self.path.rpartition("/")[2], b""))

        def log_message(self, *_: object) -> None:
            pass

    snapshot = model_folder.cached(tmp_path / "hf" / "hub", "org/model", source)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", snapshot
    server.shutdown()
    server.server_close()


def listing(at: Path) -> dict[str, tuple[bytes | str, int]]:
    """Every file: bytes or what it links to, mode; without the locks of the library."""
    return {
        str(path.relative_to(at)): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes(),
            path.lstat().st_mode,
        )
        for path in sorted(at.rglob("*"))
        if (path.is_file() or path.is_symlink()) and ".locks" not in path.parts
    }


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("model-weights-broken", cut),
        ("model-weights-broken", pointer),
        ("model-weights-missing", gone),
        ("model-config-missing", broken_config),
    ],
)
def test_fetched_again_and_taken_back(
    check: str, change: Break, hub: tuple[str, Path], engine: Path, tmp_path: Path
) -> None:
    address, snapshot = hub
    change(snapshot)
    home = tmp_path / "home"
    home.mkdir()
    (home / "start.sh").write_text("vllm serve org/model  # ours\n")
    variables = {
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": address,
        "HF_HUB_OFFLINE": "1",  # of the engine; the fix that is asked for may download
        "HF_HUB_DISABLE_XET": "1",
    }
    run = Run(home, variables)
    words = ["start.sh", "--python", f"{engine}/bin/python", "--select", check]
    before = listing(tmp_path / "hf")

    def found() -> tuple[str, int]:
        (row,) = json.loads(run("check", *words, "--format", "json").stdout)["results"]
        return row["outcome"], len(row["findings"])

    assert found() == ("failed", 1)
    done = run("fix", *words, "--apply", "--yes", "--unsafe")
    assert (done.stderr, done.stdout[:7]) == ("", "cured: "), done.stdout
    assert found() == ("passed", 0)
    undone = run("undo", "--yes")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert listing(tmp_path / "hf") == before
