"""`bundle`: what is in it, that it is masked and small, and that it replays."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run, outcomes, until
from secrets_planted import FOUND

from infer_doctor.bundle import NoBundle, Part, pack, read_tail, snapshot_in
from infer_doctor.redact import Redactor


def bundled(run: Run, *words: str) -> tuple[dict[str, bytes], dict[str, Any], str]:
    """The files of a bundle, its manifest, and what was said."""
    path = run.home / "ticket.zip"
    done = run("bundle", "-o", str(path), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return files, json.loads(files["manifest.json"]), done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_what_is_in_it(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("INFO started\n")
    config = tmp_path / "vllm.yaml"
    config.write_text("model: org/m\n")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"\0" * 100)
    files, manifest, said = bundled(
        run, str(log), str(config), str(model), "--", "vllm", "serve", "m"
    )
    assert files.keys() >= {
        "snapshot.json",
        "report.json",
        "report.html",
        "logs/serve.log",
        "configs/vllm.yaml",
        "configs/config.json",
        "manifest.json",
    }
    assert json.loads(files["report.json"])["target"]["launch"] == ["vllm", "serve", "m"]
    assert files["report.html"].startswith(b"<!doctype html>")
    for row in manifest["files"]:
        data = files[row["name"]]
        assert (row["bytes"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert {row["name"] for row in manifest["files"]} | {"manifest.json"} == files.keys()
    assert "logs/serve.log" in said
    assert "look into it before you send it" in said


def test_it_replays_elsewhere(run: Run, tmp_path: Path) -> None:
    files, _, _ = bundled(run)
    done = run("check", "--snapshot", str(tmp_path / "ticket.zip"), "--format", "json")
    assert done.stderr == ""
    replayed = json.loads(done.stdout)
    own = json.loads(files["report.json"])
    assert outcomes(replayed) == outcomes(own)
    assert replayed["facts"] == own["facts"]


def test_no_planted_secret_is_in_it(run: Run, tmp_path: Path) -> None:
    log, config = tmp_path / "serve.log", tmp_path / "all.yaml"
    text = "\n\n".join(row.text for row in FOUND)
    log.write_text(text)
    config.write_text(text + "\napi_key: only-named-in-the-config-1\n")
    log.write_text(text + "\nrefused key only-named-in-the-config-1\n")
    files, manifest, said = bundled(run, str(log), str(config))
    whole = said.encode() + b"\n".join(files.values())
    assert [row for row in FOUND if row.secret.encode() in whole] == []
    assert b"only-named-in-the-config" not in whole
    counts = {row["kind"]: row["count"] for row in manifest["redactions"]}
    assert counts["token"] >= 40


def test_ends_of_logs_are_cut_until_it_is_small_enough(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    chance = random.Random(1)
    lines = [f"{number} {chance.getrandbits(400):0100x}" for number in range(60_000)]
    log.write_text("\n".join(lines) + "\nthe very last line\n")
    files, manifest, _ = bundled(run, str(log), "--max-size", "0.8")
    assert (tmp_path / "ticket.zip").stat().st_size <= 800_000
    assert files["logs/serve.log"].endswith(b"the very last line\n")
    (row,) = [row for row in manifest["files"] if row["name"] == "logs/serve.log"]
    assert row["cut"] is True
    first = files["logs/serve.log"].split(b"\n", 1)[0].decode()
    assert first in lines  # from the start of a line


def test_what_cannot_be_taken_is_said(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "weights.bin").write_bytes(b"\0\1\2")
    (tmp_path / "empty").mkdir()
    (tmp_path / "huge.json").write_text("x" * (2 << 20))
    names = ["pipe", "weights.bin", "empty", "huge.json", "nothing.log"]
    _, manifest, said = bundled(run, *(str(tmp_path / name) for name in names))
    reasons = {Path(row["source"]).name: row["reason"] for row in manifest["left_out"]}
    assert reasons == {
        "pipe": "is no regular file",
        "weights.bin": "is binary",
        "empty": "is a folder without a config.json",
        "huge.json": "is larger than 1,048,576 bytes",
        "nothing.log": "No such file or directory",
    }
    assert said.count("left out: ") == len(names)


def test_a_link_of_a_model_folder_leads_to_nothing_else(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (tmp_path / "shadow").write_text("root:x:19700:0:99999:7:::\n")
    (model / "generation_config.json").symlink_to(tmp_path / "shadow")
    files, manifest, _ = bundled(run, str(model))
    assert "configs/config.json" in files
    assert "configs/generation_config.json" not in files
    assert [row["reason"] for row in manifest["left_out"]] == ["is no JSON"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be another user")
def test_what_a_user_may_not_read_is_not_taken_for_his_command_line(
    run: Run, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("of: root\n")
    secret.chmod(0o600)
    words = ["sh", "-c", "sleep 600", "vllm", "serve", "--config", str(secret)]
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen(words, stdout=nothing, stderr=nothing, user=65534, cwd="/")
    try:
        until(lambda: b"vllm" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
        files, _, _ = bundled(run)
        assert "configs/secret.yaml" not in files
        secret.chmod(0o644)
        files, _, _ = bundled(run)
        assert "configs/secret.yaml" in files
    finally:
        process.kill()
        process.wait()


def test_packed_logs_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "serve.log.1.gz"
    path.write_bytes(gzip.compress(b"a line\n" * 1000 + b"the end\n"))
    data, cut = read_tail(str(path), 100)
    assert (data[-8:], cut) == (b"the end\n", True)
    assert data.startswith(b"a line\n")
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(OSError, match="no gzip file"):
        read_tail(str(path), 100)


def test_the_logs_of_engines_that_run_are_found(run: Run, tmp_path: Path) -> None:
    engine = tmp_path / "vllm"
    engine.write_text("import time\nprint('I am an engine', flush=True)\ntime.sleep(600)\n")
    (tmp_path / "own.yaml").write_text("model: org/m\n")
    output = tmp_path / "output.txt"
    words = [sys.executable, str(engine), "serve", "--config", "own.yaml"]
    with open(output, "w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, cwd=tmp_path)
    try:
        until(lambda: output.read_text())
        files, _, _ = bundled(run)
    finally:
        process.kill()
        process.wait()
    assert files["logs/output.txt"] == b"I am an engine\n"
    assert files["configs/own.yaml"] == b"model: org/m\n"


def test_two_files_of_one_name() -> None:
    parts = [
        Part(name="logs/a.log", source=f"/{number}/a.log", text=str(number)) for number in (1, 2)
    ]
    data, manifest = pack({}, [*parts, parts[0]], [], Redactor([]), 10**6, {})
    assert [row["name"] for row in manifest["files"]] == ["logs/a.log", "logs/a-2.log"]
    assert zipfile.ZipFile(io.BytesIO(data)).read("logs/a-2.log") == b"2"


def zipped(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_json", ".json"), data)
    return target.getvalue()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\x03\x04 nothing", "is no zip that can be read"),
        (b"", "is no zip that can be read"),
        (zipped(other=b"x"), "is a zip without a snapshot.json"),
        (zipped(snapshot_json=b"\0" * (65 << 20)), "too many"),
    ],
)
def test_what_is_no_bundle(data: bytes, words: str, run: Run, tmp_path: Path) -> None:
    with pytest.raises(NoBundle, match=words):
        snapshot_in(data)
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    done = run("check", "--snapshot", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("cut", range(0, 400, 13))
def test_damaged_bundles_are_refused_or_read(cut: int) -> None:
    data = bytearray(zipped(snapshot_json=b"{}" * 200, report_json=b"x" * 300))
    data[cut % len(data)] ^= 0xFF
    with contextlib.suppress(NoBundle):
        assert isinstance(snapshot_in(bytes(data)), str)
