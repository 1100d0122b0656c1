"""Model files that the engine's own libraries convert or fetch again; a local server plays the hub."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from doctor_process import Run
from fix_driver import group

from infer_doctor.fixing.apply import Applying
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.undo import undo
from infer_doctor.model import Fetch

pytestmark = pytest.mark.engine

COMMIT = "b" * 40

PICKLE = """
import sys, torch
from safetensors.torch import load_file
torch.save(load_file(sys.argv[1] + "/model.safetensors"), sys.argv[1] + "/pytorch_model.bin")
"""

SAME = """
import sys, torch
from safetensors.torch import load_file
new = load_file(sys.argv[1] + "/model.safetensors")
old = torch.load(sys.argv[1] + "/pytorch_model.bin", weights_only=True)
assert new.keys() == old.keys()
assert all(torch.equal(new[name], old[name]) for name in old)
"""


@pytest.fixture(scope="module")
def python(engine: Path) -> str:
    return f"{engine}/bin/python"


def test_pickled_weights_become_safetensors(python: str, tmp_path: Path) -> None:
    model = tmp_path / "model"
    subprocess.run([python, tiny_model.__file__, str(model)], check=True, capture_output=True)
    subprocess.run([python, "-c", PICKLE, str(model)], check=True)
    (model / "model.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    (tmp_path / "start.sh").write_text(f"vllm serve {model}\n")
    run = Run(tmp_path)
    words = ["start.sh", "--select", "model-weights-pickled", "--python", python]
    done = run("fix", *words, "--apply", "--yes", "--unsafe")
    assert done.stdout.startswith("cured: "), done.stdout + done.stderr
    subprocess.run([python, "-c", SAME, str(model)], check=True)
    assert {path.name for path in model.iterdir()} == {*before, "model.safetensors"}
    assert run("undo", "--yes").returncode == 0
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


class Hub(http.server.BaseHTTPRequestHandler):
    """One repository with one file; `whole` False ends the connection in its middle."""

    data = b"weights" * 1000
    whole = True

    def do_HEAD(self) -> None:
        self._head()

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self.send_error(404)
            return
        self._head()
        self.wfile.write(self.data if self.whole else self.data[:100])
        if not self.whole:
            self.close_connection = True

    def _head(self) -> None:
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(self.data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    Hub.whole = True
    yield Hub
    server.shutdown()
    server.server_close()


def fetched(python: str, folder: Path, state: str) -> tuple[str, str | None]:
    action = Fetch(
        text="hf download",
        python=python,
        repository="org/model",
        revision=None,
        folder=str(folder),
        files=("model.safetensors",),
    )
    applying = Applying(state, "2026-01-01T00:00:00Z", [], Drafts())
    outcome = applying.do(group("fetch", action))
    applying.end()
    return outcome.result, outcome.why


def test_a_broken_file_is_fetched_again(python: str, hub: type[Hub], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    file = folder / "model.safetensors"
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    state = str(tmp_path / "state")
    assert fetched(python, folder, state) == ("applied", None)
    assert file.read_bytes() == hub.data
    undo(state, "0001")
    assert file.read_bytes() == b"version https://git-lfs.github.com/spec/v1\n"
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]


def test_a_download_that_breaks_leaves_the_old_file(
    python: str, hub: type[Hub], tmp_path: Path
) -> None:
    hub.whole = False
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"old")
    result, why = fetched(python, folder, str(tmp_path / "state"))
    assert result == "refused"
    assert why
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "model.safetensors": b"old"
    }


def test_a_file_of_the_cache(python: str, hub: type[Hub], tmp_path: Path) -> None:
    """The blob is replaced; the links of the snapshot stay."""
    repository = tmp_path / "hf" / "hub" / "models--org--model"
    snapshot = repository / "snapshots" / COMMIT
    for part in (snapshot, repository / "blobs", repository / "refs"):
        part.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    blob = repository / "blobs" / hashlib.sha256(hub.data).hexdigest()
    blob.write_bytes(hub.data[:50])
    (snapshot / "model.safetensors").symlink_to(f"../../blobs/{blob.name}")
    action = Fetch(
        text="hf download",
        python=python,
        repository="org/model",
        revision=None,
        folder=None,
        files=("model.safetensors",),
    )
    state = str(tmp_path / "state")
    applying = Applying(state, "2026-01-01T00:00:00Z", [], Drafts())
    outcome = applying.do(group("fetch", action))
    applying.end()
    assert (outcome.result, outcome.why) == ("applied", None)
    assert (snapshot / "model.safetensors").read_bytes() == hub.data
    assert (snapshot / "model.safetensors").is_symlink()
    journal = (Path(state) / "0001" / "journal.jsonl").read_text()
    assert [json.loads(line)["event"] for line in journal.splitlines()][-1] == "end"
    undo(state, "0001")
    assert blob.read_bytes() == hub.data[:50]
    assert [path.name for path in blob.parent.iterdir()] == [blob.name]
