"""Runs that go wrong in every way but the engine's own."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import standin_engine
from doctor_process import Run

HANG_S = 60.0
FULL = 4096
"""Bytes of the largest file, in blocks of 1024, that a doctor with a full disk may write."""


def runner(home: Path, **variables: str) -> Run:
    """A doctor whose PATH has the stand-in; its temporary files are in a folder of their own."""
    path = standin_engine.program(home / "bin")
    (home / "tmp").mkdir(exist_ok=True)
    (home / "pids").mkdir(exist_ok=True)
    base = {
        "PATH": f"{path}:/usr/bin:/bin",
        "TMPDIR": str(home / "tmp"),
        "STANDIN_PIDS": str(home / "pids"),
    }
    return Run(home, {**base, **variables})


def until(condition: Any) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < HANG_S
        time.sleep(0.05)


def gone(run: Run) -> bool:
    """No process, and nothing in the temporary folder."""
    return not run.living() and not list((run.home / "tmp").iterdir())


LOAD = ("reproduce", "timeout", "--most", "2", "--tokens", "4")


@pytest.mark.parametrize(
    "options",
    [
        ("--api-key", "sk-own-1234567890", "sk-other-1234567890"),
        ("--port", "0"),
        ("--host", "::1"),
        ("--uds", "/nowhere/vllm.sock"),
        ("--ssl-keyfile", "/nowhere/key.pem"),
    ],
)
def test_wherever_the_launch_listens(options: tuple[str, ...], tmp_path: Path) -> None:
    run = runner(tmp_path, VLLM_API_KEY="sk-of-the-server-123")
    done = run(*LOAD, "--keep", "kept", "--", "vllm", "serve", "m", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert gone(run)


def test_proxies_are_not_asked(tmp_path: Path) -> None:
    """A proxy that leads nowhere would end every request."""
    nowhere = "http://127.0.0.1:9"
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY")
    run = runner(tmp_path, **dict.fromkeys(names, nowhere))
    done = run(*LOAD, "--", "vllm", "serve", "m")
    assert done.returncode == 0, done.stdout + done.stderr


def test_secrets_are_kept_nowhere(tmp_path: Path) -> None:
    """On the command line, in the environment, in a file that starts it, in what the engine prints."""
    secrets = ("sk-own-1234567890", "hf_onthecommandline12", "hf_intheenvironment12")
    run = runner(tmp_path, HF_TOKEN=secrets[2])
    launch = ("vllm", "serve", "m", "--api-key", secrets[0], "--hf-token", secrets[1])
    (tmp_path / "serve.sh").write_text(" ".join(launch) + "\n")
    text = ""
    for number, words in enumerate(
        (
            (*LOAD, "--keep", "kept", "--", *launch),
            ("reproduce", "engine-load", "--keep", "kept-too", "--", *launch),
            ("compare", "serve.sh", "serve.sh", "--keep", "kept-both", "--tokens", "2"),
        )
    ):
        done = run(*words)
        assert done.returncode in (0, 3), done.stdout + done.stderr
        text += done.stdout + done.stderr + run(*words, "--format", "json").stdout
        assert len(list(tmp_path.glob("kept*"))) == number + 1
    logs = list(tmp_path.glob("kept*/*.log"))
    assert len(logs) >= 6 and all("non-default args" in path.read_text() for path in logs)
    text += "".join(path.read_text() for path in tmp_path.glob("kept*/*"))
    assert not [secret for secret in secrets if secret in text]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("silent", ("reproduce", "engine-load", "--", "vllm", "serve", "m")),
        ("silent", ("reproduce", "cold-start", "--", "vllm", "serve", "m")),
        ("slow", (*LOAD[:4], "--tokens", "500", "--", "vllm", "serve", "m")),
        ("slow", ("compare", "serve.sh", "serve.sh", "--tokens", "500")),
    ],
)
def test_ctrl_c_leaves_nothing(kind: str, words: tuple[str, ...], tmp_path: Path) -> None:
    run = runner(tmp_path, STANDIN=kind)
    (tmp_path / "serve.sh").write_text("vllm serve m\n")
    doctor = run.start(*words)
    until(lambda: list((tmp_path / "pids").iterdir()))
    if kind == "slow":
        time.sleep(2.0)  # into the requests
    doctor.send_signal(signal.SIGINT)
    _, said = doctor.communicate(timeout=HANG_S)
    assert doctor.returncode == 130 and "interrupted" in said
    until(lambda: gone(run))


def test_what_was_seen_before_an_interruption_replays(tmp_path: Path) -> None:
    run = runner(tmp_path)
    launch = ("vllm", "serve", "m", "--enforce-eager")
    doctor = run.start("reproduce", "cold-start", "--keep", "kept", "--", *launch)
    until((tmp_path / "kept" / "run.json").is_file)
    doctor.send_signal(signal.SIGINT)
    doctor.communicate(timeout=HANG_S)
    kept = json.loads((tmp_path / "kept" / "run.json").read_text())
    assert kept["starts"][0]["ready"]


def test_a_kept_cold_start_holds_no_caches(tmp_path: Path) -> None:
    run = runner(tmp_path)
    launch = ("vllm", "serve", "m", "--enforce-eager")
    done = run("reproduce", "cold-start", "--keep", "kept", "--", *launch)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"run.json", "01-cold--eager.log", "02-warm--eager.log"}


def test_an_engine_that_says_nothing(tmp_path: Path) -> None:
    run = runner(tmp_path, STANDIN="silent")
    done = run("reproduce", "engine-load", "--idle", "1", "--", "vllm", "serve", "m")
    assert done.returncode == 1 and gone(run)
    assert "ended by the watchdog" in done.stdout and "without a line in the" in done.stdout


def test_a_log_does_not_command_the_terminal(tmp_path: Path) -> None:
    engine = tmp_path / "vllm"
    engine.write_text(
        "#!/bin/sh\nprintf 'ValueError: x \\033]0;title\\007 \\033[2J y\\n'; exit 1\n"
    )
    engine.chmod(0o755)
    (tmp_path / "serve.sh").write_text("vllm serve m\n")
    run = Run(tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    for words in (
        ("reproduce", "engine-load", "--", "vllm", "serve", "m"),
        ("compare", "serve.sh", "serve.sh"),
    ):
        done = run(*words)
        assert "ValueError: x" in done.stderr
        assert not set("\x1b\x07") & set(done.stdout + done.stderr)


def test_nobody_is_asked_how_it_ended(tmp_path: Path) -> None:
    """The doctor started it, and knows."""
    engine = tmp_path / "vllm"
    engine.write_text(
        "#!/bin/sh\necho 'INFO 12-01 01:14:30 [model.py:733] Resolved architecture: X'\n"
    )
    engine.chmod(0o755)
    run = Run(tmp_path, {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    done = run("reproduce", "engine-load", "--", "vllm", "serve", "m")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "its log holds no error; the engine ended with exit code 0" in text
    assert "send the rest" not in text


def test_an_engine_whose_log_has_no_end(tmp_path: Path) -> None:
    run = runner(tmp_path, STANDIN="flood")
    done = run("reproduce", "engine-load", "--keep", "kept", "--", "vllm", "serve", "m")
    assert done.returncode == 1 and not run.living()
    assert "256 MiB of log" in " ".join(done.stdout.split())
    (log,) = (tmp_path / "kept").glob("*.log")
    assert log.stat().st_size < 8 << 20 and "bytes left out" in log.read_text()


@pytest.mark.parametrize(
    "words",
    [
        (*LOAD, "--keep", "kept", "--", "vllm", "serve", "m"),
        ("compare", "serve.sh", "serve.sh", "--tokens", "2", "--keep", "kept"),
    ],
)
def test_what_cannot_be_kept_is_told_and_the_report_stands(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """As on a full disk: a folder stands where each file is to be."""
    run = runner(tmp_path)
    (tmp_path / "serve.sh").write_text("vllm serve m\n")
    for name in ("run.json", "baseline.json", "candidate.json"):
        (tmp_path / "kept" / name).mkdir(parents=True)
    done = run(*words)
    assert done.returncode in (0, 3) and "Is a directory" in done.stderr
    assert " passed" in done.stdout and "fault" not in done.stderr


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """No file may grow: neither the log nor what is kept."""
    run = runner(tmp_path, STANDIN="flood")
    done = subprocess.run(
        [
            *("bash", "-c", 'ulimit -f 64; exec "$0" "$@"', shutil.which("infer-doctor") or ""),
            *("reproduce", "engine-load", "--idle", "5", "--keep", "kept", "--"),
            *("vllm", "serve", "m"),
        ],
        env=run.environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 1 and "fault" not in done.stderr, done.stdout + done.stderr
    until(lambda: not run.living())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "Expecting value"),
        ("[]", "another form"),
        ('{"form": 1, "question": "oom", "words": [], "data": {}, "starts": [{}]}', "holds no run"),
        ('{"form": 1, "question": "oom", "words": 3, "data": [], "starts": []}', "holds no run"),
        ('{"form": 1, "question": "oom", "words": [], "data": {}, "starts": []}', "not started"),
        ("[" * 100_000, "recursion"),
        ('{"form": 1, "question": "oom", "words": [], "data": [], "starts": []}', "holds no run"),
    ],
)
def test_a_kept_run_that_is_none(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    done = Run(tmp_path)("reproduce", "oom", "--replay", ".")
    assert done.returncode == 2 and said in done.stderr and "fault" not in done.stderr


def test_a_kept_run_whose_files_are_gone(tmp_path: Path) -> None:
    """The logs are read anew; without them the starts themselves still stand."""
    run = runner(tmp_path)
    done = run("reproduce", "engine-load", "--keep", "kept", "--", "vllm", "serve", "m")
    assert done.returncode in (0, 3)  # what the stand-in prints is no engine's log
    for log in (tmp_path / "kept").glob("*.log"):
        log.unlink()
    again = run("reproduce", "engine-load", "--replay", "kept")
    assert again.returncode in (0, 3) and "fault" not in again.stderr


def forms(value: Any) -> list[Any]:
    """Values of other forms."""
    return [other for other in ("x", -3, [1], {"a": 1}, True) if type(other) is not type(value)]


def test_kept_values_of_another_form_are_told(tmp_path: Path) -> None:
    """Every value of a kept start and a kept ramp by turns; wrong usage, never a fault of the doctor."""
    run = runner(tmp_path)
    done = run(*LOAD, "--keep", "kept", "--", "vllm", "serve", "m")
    assert done.returncode == 0
    file = tmp_path / "kept" / "run.json"
    whole = json.loads(file.read_text())
    chance = random.Random(1)
    ramp = whole["data"]["ramp"]
    places: list[tuple[dict[str, Any], str]] = []
    for row in (whole["starts"][0], ramp, *ramp["steps"][:1]):
        places += [(row, name) for name in row]
    for row, name in chance.sample(places, 12):
        before = row[name]
        row[name] = chance.choice(forms(before))
        file.write_text(json.dumps(whole))
        done = run("reproduce", "timeout", "--replay", "kept")
        assert "fault" not in done.stderr, (name, row[name], done.stderr)
        row[name] = before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--python", "/nowhere/python"), "/nowhere/python"),
        (("--python", "/etc/hostname"), "/etc/hostname"),
        (("--", "/nowhere/vllm", "serve", "m"), "/nowhere/vllm"),
        (("--", "vllm", "serve", "m", "--headless"), "headless"),
    ],
)
def test_what_cannot_be_started(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = runner(tmp_path)("reproduce", "engine-load", *words)
    assert done.returncode == 2 and said in done.stderr and "fault" not in done.stderr


def test_no_doctor_stays_where_it_is_ended_by_systemd(tmp_path: Path) -> None:
    """SIGTERM to the doctor: its guard ends the engine and removes the folder of the run."""
    run = runner(tmp_path, STANDIN="silent")
    doctor = run.start("reproduce", "engine-load", "--", "vllm", "serve", "m")
    until(lambda: list((tmp_path / "pids").iterdir()))
    os.kill(doctor.pid, signal.SIGTERM)
    doctor.communicate(timeout=HANG_S)
    until(lambda: gone(run))
