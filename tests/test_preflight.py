"""`preflight` becomes the command, or refuses it and says why."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dead_mount import dead_mount, usable
from doctor_process import COMMAND, LIMIT_S, Run, until

from infer_doctor import refusal
from infer_doctor.preflight import decide, skipped

STATE = Path(__file__).parent / "rigs" / "process_state.py"

REFUSING = ("--select", "gpu-none,driver-missing,engine-not-installed", "--fail-on", "warning")
"""On a machine without a GPU; with one these tests are not of the preflight."""


def launch(words: list[str], **more: Any) -> int:
    """Start, wait, return the PID it had."""
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **more)
    assert process.wait(timeout=60) == 0
    return process.pid


def states(folder: Path, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command finds when it is started directly, and through preflight."""
    found = []
    for name, before in (("direct", []), ("preflight", [COMMAND, "preflight", "--"])):
        path = folder / name
        # -I: the interpreter of the command adds nothing of its own to what it was given
        pid = launch([*before, sys.executable, "-I", str(STATE), str(path)], **more)
        state = json.loads(path.read_text())
        assert state.pop("pid") == pid
        assert Path(state["arguments"].pop(0)) == path
        found.append(state)
    return found[0], found[1]


@pytest.mark.parametrize(
    "variables", [{}, {"A": "1", "LC_ALL": "C"}, {"LANG": "xx", "B": "\udcff=\n", "HOME": "/"}]
)
def test_the_command_finds_what_it_would_find_without(
    variables: dict[str, str], tmp_path: Path
) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    kept = os.umask(0o027)
    try:
        direct, through = states(tmp_path, env=variables, cwd=tmp_path, close_fds=False)
    finally:
        os.umask(kept)
        os.close(read)
        os.close(write)
    assert through == direct
    assert direct["umask"] == "0027"


def ignore() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])


def test_ignored_and_blocked_signals_stay_so(tmp_path: Path) -> None:
    direct, through = states(tmp_path, preexec_fn=ignore)
    assert through["signals"] == direct["signals"]
    assert int(through["signals"]["SigIgn"], 16) >> (signal.SIGTERM - 1) & 1
    assert int(through["signals"]["SigBlk"], 16) >> (signal.SIGUSR1 - 1) & 1


def close_streams() -> None:
    os.close(0)
    os.close(2)


def test_closed_streams_stay_closed(tmp_path: Path) -> None:
    direct, through = states(tmp_path, preexec_fn=close_streams)
    assert through["descriptors"].keys() == direct["descriptors"].keys()


def test_a_terminal_stays_the_commands(tmp_path: Path) -> None:
    """In a session of its own with a controlling terminal, as `docker run -it` has it."""
    seen = []
    for name, before in (("direct", []), ("preflight", [COMMAND, "preflight", "--"])):
        path = tmp_path / name
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(*(lambda w: (w[0], w))([*before, sys.executable, "-I", str(STATE), str(path)]))
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while os.read(terminal, 4096):
                pass
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        assert status == 0
        state = json.loads(path.read_text())
        assert (state["pid"], state["terminal"]) == (pid, [True] * 3)
        seen.append({key: state[key] for key in ("foreground", "leader", "signals", "children")})
    assert seen[0] == seen[1]


@pytest.mark.parametrize("status", [0, 1, 42])
def test_the_exit_status_is_the_commands(status: int, tmp_path: Path) -> None:
    assert Run(tmp_path)("preflight", "--", "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_command_ends_by_its_own_signal(number: int, tmp_path: Path) -> None:
    done = Run(tmp_path)("preflight", "--", "sh", "-c", f"kill -{int(number)} $$")
    assert done.returncode == -number


def test_standard_streams_are_only_the_commands() -> None:
    words = [COMMAND, "preflight", "--", "cat"]
    done = subprocess.run(words, input="through\n", capture_output=True, text=True, timeout=60)
    assert done.stdout == "through\n"
    assert done.stderr.startswith("infer-doctor: pass")


@pytest.mark.parametrize(
    ("words", "code"), [(["/no/such"], 127), (["/etc/passwd"], 126), (["no-such-command"], 127)]
)
def test_a_command_that_cannot_be_started(words: list[str], code: int, tmp_path: Path) -> None:
    done = Run(tmp_path)("preflight", "--", *words)
    assert done.returncode == code
    assert f"infer-doctor: {words[0]}: cannot be started" in done.stderr


def test_an_empty_command_cannot_be_started(tmp_path: Path) -> None:
    done = Run(tmp_path)("preflight", "--", "")
    assert done.returncode == 127
    assert "'': cannot be started" in done.stderr


def test_a_refusal_says_why_and_starts_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    done = Run(tmp_path)("preflight", *REFUSING, "--", "touch", str(mark))
    assert (done.returncode, done.stdout, mark.exists()) == (1, "", False)
    first, *rest = done.stderr.splitlines()
    assert first.startswith("infer-doctor: refused: fail")
    assert any("[gpu-none]" in line or "[driver-missing]" in line for line in rest)
    assert any(line.strip().startswith("fix: ") for line in rest)
    assert "INFER_DOCTOR_SKIP=1" in rest[-1]
    assert all(len(line) <= refusal.WIDTH or " " not in line.strip() for line in rest)


@pytest.mark.parametrize(
    "variables", [{"INFER_DOCTOR_WARN_ONLY": "1"}, {"INFER_DOCTOR_SKIP": "now"}]
)
def test_the_environment_lets_it_start_all_the_same(
    variables: dict[str, str], tmp_path: Path
) -> None:
    done = Run(tmp_path, variables)("preflight", *REFUSING, "--", "echo", "started")
    assert (done.returncode, done.stdout) == (0, "started\n")


def test_an_emergency_is_stronger_than_a_wrong_option(tmp_path: Path) -> None:
    wrong = {"INFER_DOCTOR_TIMEOUT": "soon"}
    assert Run(tmp_path, wrong)("preflight", "--", "true").returncode == 2
    emergency = {**wrong, "INFER_DOCTOR_SKIP": "1"}
    assert Run(tmp_path, emergency)("preflight", "--no-such-option", "--", "true").returncode == 0


def test_an_emergency_is_stronger_than_a_broken_settings_file(tmp_path: Path) -> None:
    (tmp_path / "infer-doctor.toml").write_text("x = [")
    words = [COMMAND, "preflight", "--", "true"]
    assert subprocess.run(words, cwd=tmp_path).returncode == 2
    variables = {**os.environ, "INFER_DOCTOR_SKIP": "1"}
    assert subprocess.run(words, cwd=tmp_path, env=variables).returncode == 0


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("x", True), ("0", False), ("", False)]
)
def test_skip(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFER_DOCTOR_SKIP", value)
    assert skipped() is expected


def test_what_is_undecided_stops_only_when_it_is_required(tmp_path: Path) -> None:
    undecided = ("--select", "cuda-context-failed")
    assert Run(tmp_path)("preflight", *undecided, "--", "true").returncode == 0
    done = Run(tmp_path)("preflight", "--require", "cuda-context*", "--", "true")
    assert done.returncode == 3
    assert done.stderr.startswith("infer-doctor: refused: unknown")
    assert "undecided, but required: cuda-context-failed: needs --deep" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--"],
        ["--select", "no-such", "--", "true"],
        ["--require", "no-such", "--", "true"],
        ["--wait", "nan", "--", "true"],
    ],
)
def test_wrong_usage_starts_nothing(words: list[str], tmp_path: Path) -> None:
    assert Run(tmp_path)("preflight", *words).returncode == 2


def test_reports_in_a_folder_have_the_pods_name_and_the_time(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    run = Run(tmp_path, {"POD_NAME": "llm-0"})
    for words in ((), REFUSING):
        run("preflight", "--report", str(folder), *words, "--", "true")
        (path,) = folder.iterdir()
        assert path.name.startswith("llm-0-") and path.suffix == ".json"
        report = json.loads(path.read_text())
        assert report["command"] == "preflight"
        assert report["target"]["launch"] == ["true"]
        path.unlink()


def test_a_report_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    done = Run(tmp_path)("preflight", "--report", "/no/such/folder/x.json", "--", "true")
    assert done.returncode == 0
    assert "the report was not written" in done.stderr


def test_secrets_of_the_command_are_not_said(tmp_path: Path) -> None:
    done = Run(tmp_path)("preflight", *REFUSING, "--", "x", "--api-key", "correct-horse")
    assert "correct-horse" not in done.stderr
    assert "--api-key <token>" in done.stderr


def test_a_fault_of_the_doctor_starts_the_command() -> None:
    def crash() -> int:
        raise RuntimeError("a fault")

    found = decide(crash, 30)
    assert found.code == 0
    assert found.fault and found.fault.startswith("RuntimeError: a fault")


def test_an_examination_that_dies_or_hangs_starts_the_command() -> None:
    assert decide(lambda: os.kill(os.getpid(), signal.SIGKILL) or 1, 30).fault == (
        "the examination died"
    )
    assert decide(lambda: time.sleep(600) or 1, 0.2).fault == "no decision within 0.2 s"


@pytest.mark.skipif(not usable(), reason="needs root and FUSE")
def test_what_hangs_in_the_kernel_is_no_child_of_the_command(tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    run = Run(tmp_path, {"HF_HOME": str(dead / "hub"), "VLLM_CACHE_ROOT": str(dead / "v")})
    with dead_mount(dead):
        path = tmp_path / "state"
        command = (sys.executable, "-I", str(STATE), str(path))
        done = run("preflight", "--timeout", str(LIMIT_S), "--", *command)
        assert done.returncode == 0, done.stderr
        assert "D" in run.living().values()  # it does hang
        assert json.loads(path.read_text())["children"] == []
    until(lambda: not run.living())


@pytest.mark.skipif(not usable(), reason="needs root and FUSE")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_examination(number: int, tmp_path: Path) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    run = Run(tmp_path, {"HF_HOME": str(dead / "hub"), "VLLM_CACHE_ROOT": str(dead / "v")})
    with dead_mount(dead):
        process = run.start("preflight", "--timeout", "60", "--", "true")
        until(lambda: "D" in run.living().values())
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == 128 + number
        until(lambda: set(run.living().values()) <= {"D"})
    until(lambda: not run.living())


def test_the_termination_message_is_cut_to_what_kubernetes_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "termination-log"
    monkeypatch.setattr(refusal, "TERMINATION_LOG", str(path))
    refusal.leave_message("nothing is made where there is no such file")
    assert not path.exists()
    path.write_text("x" * 9000)
    refusal.leave_message("infer-doctor: refused\n" + "ä" * 4000)
    data = path.read_bytes()
    assert refusal.TERMINATION_LIMIT - 8 < len(data) <= refusal.TERMINATION_LIMIT
    assert data.decode().startswith("infer-doctor: refused\nää")
