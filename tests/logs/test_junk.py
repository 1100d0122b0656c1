"""What is no log, or hardly one: every reading ends, stays small, and says what it met."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from infer_doctor.facts.log import EngineLog
from infer_doctor.logs import source
from infer_doctor.logs.read import read
from infer_doctor.logs.source import NotALog, order

CAUSE = "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."


def log_of(*paths: Path) -> EngineLog:
    found = read(order([str(path) for path in paths])[0])[EngineLog]
    assert isinstance(found, EngineLog)
    return found


def category(log: EngineLog) -> str | None:
    return log.cause.category if log.cause else None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (os.urandom(200_000), "is binary"),
        (Path(sys.executable).read_bytes()[:400_000], "is binary"),
        (b"BZh91AY&SY" + b"x" * 50, "packed with bzip2"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 50, "packed with zstd"),
        (b"\x1f\x8b" + b"x" * 50, "no gzip file"),
    ],
)
def test_no_log(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(NotALog, match=says):
        log_of(path)


def test_folder_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="is a folder"):
        log_of(tmp_path)
    with pytest.raises(NotALog, match="No such file"):
        log_of(tmp_path / "none.log")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(f"Start\n{CAUSE}\n".encode(encoding))
    assert category(log_of(path)) == "tp_divisibility"


def test_bytes_that_are_no_text_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"caf\xe9 \xff\xfe\n" + CAUSE.encode() + b" \xc3\n")
    assert category(log_of(path)) == "tp_divisibility"


def test_hole_of_zeros_from_copytruncate(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\0" * 5_000_000 + CAUSE.encode() + b"\n")
    assert category(log_of(path)) == "tp_divisibility"


def test_a_line_of_many_megabytes_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    with path.open("wb") as file:
        for _ in range(60):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + CAUSE.encode() + b"\n")
    tracemalloc.start()
    log = log_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert category(log) == "tp_divisibility"
    assert log.cause
    assert log.cause.evidence[0].line == 2
    assert peak < 40 << 20


def test_a_cause_at_the_end_of_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"y" * (5 << 20) + b" " + CAUSE.encode())
    assert category(log_of(path)) == "tp_divisibility"


def test_gzip_of_several_members_and_cut_off(tmp_path: Path) -> None:
    whole = gzip.compress(b"first\n") + gzip.compress(CAUSE.encode() + b"\n")
    path = tmp_path / "x.log.gz"
    path.write_bytes(whole)
    assert category(log_of(path)) == "tp_divisibility"
    cut = gzip.compress(CAUSE.encode() + b"\n" + os.urandom(50_000).hex().encode())[:-2000]
    path.write_bytes(cut)
    assert category(log_of(path)) == "tp_divisibility"


def test_gzip_bomb_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNPACKED_LIMIT", 8 << 20)
    path = tmp_path / "bomb.gz"
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        file.write(CAUSE.encode() + b"\n")
        for _ in range(64):
            file.write(b"\n" * (1 << 20))
    path.write_bytes(buffer.getvalue())
    log = log_of(path)
    assert category(log) == "tp_divisibility"
    assert "unpacks to more than" in log.gaps[0]


def test_file_that_grows_is_read_to_its_size_at_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("one\n" * 10)
    blocks = source.blocks(source.Piece(path=str(path), name="x"))
    with path.open("a") as file:
        first = next(blocks)
        file.write("more\n" * 1000)
    assert first + b"".join(blocks) == b"one\n" * 10


def test_rotated_files_are_one_log_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "serve.log").write_text("now\n")
    (tmp_path / "serve.log.1").write_text("before\n")
    (tmp_path / "serve.log.2.gz").write_bytes(gzip.compress(CAUSE.encode() + b"\n"))
    paths = [str(tmp_path / name) for name in ("serve.log", "serve.log.1", "serve.log.2.gz")]
    (group,) = order(paths)
    assert [Path(piece.path).name for piece in group] == [
        "serve.log.2.gz",
        "serve.log.1",
        "serve.log",
    ]
    dated = order(["a.log-20261129.gz", "a.log", "a.log-20261130"])
    assert [piece.path for piece in dated[0]] == ["a.log-20261129.gz", "a.log-20261130", "a.log"]
    assert len(order(["a.log", "b.log"])) == 2


def test_standard_input_and_pipes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infer_doctor", "diagnose", "-"],
        input=CAUSE.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b"28 attention heads" in done.stdout
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    child = subprocess.Popen(
        [sys.executable, "-m", "infer_doctor", "diagnose", str(fifo)], stdout=subprocess.PIPE
    )
    with fifo.open("wb") as file:
        file.write(CAUSE.encode())
    output, _ = child.communicate(timeout=60)
    assert child.returncode in (1, 2)
    assert output or child.returncode == 2


def test_closed_standard_input_is_told() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m infer_doctor diagnose - <&-', sys.executable],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == b"infer-doctor: -: standard input is closed\n"


@pytest.mark.parametrize(
    "content", [b"\n\n\n", b"flour\neggs\nmilk\n", b"2024-01-01 backup done\n"]
)
def test_text_of_something_else_is_not_called_healthy(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    assert "send the engine's own output" in (log_of(path).unexplained or "")
