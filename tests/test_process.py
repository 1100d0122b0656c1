"""The command as a process: signals, pipes, odd environments, other users, scarce resources."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from doctor_process import COMMAND, Run, until

NOBODY = 65534

COMMANDS = {
    "version": ["--version"],
    "help": ["--help"],
    "help of a command": ["check", "--help"],
    "list": ["list"],
    "explain": ["explain", "driver-missing"],
    "check": ["check"],
    "json": ["check", "--format", "json"],
}


@pytest.fixture
def hanging(tmp_path: Path, two_gpus: Path) -> Run:
    """Runs that wait for NVML until their time is up."""
    return Run(tmp_path, {"LD_LIBRARY_PATH": str(two_gpus), "FAKE_NVML": "nvmlInitWithFlags=hang"})


@pytest.mark.parametrize("children", [1, 2, 3])
def test_interrupt_is_one_line(children: int, hanging: Run) -> None:
    """While it loads, and while it waits."""
    with hanging.start("check") as process:
        until(lambda: len(hanging.living()) > children)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "infer-doctor: interrupted\n")
    until(lambda: hanging.living() == {})


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_children_of_a_killed_doctor_end(hanging: Run, number: signal.Signals) -> None:
    def as_in_a_terminal() -> None:  # under nohup, SIGHUP is ignored by all that is started
        signal.signal(number, signal.SIG_DFL)

    usual = None if number == signal.SIGKILL else as_in_a_terminal
    with hanging.start("check", preexec_fn=usual) as process:
        until(lambda: len(hanging.living()) >= 2)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == -number
    until(lambda: hanging.living() == {})


@pytest.mark.parametrize("name", COMMANDS)
class TestStreams:
    def test_closed_pipe_is_no_error(self, name: str, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        ended = Run(tmp_path)(*COMMANDS[name], stdout=writer)
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_no_standard_output(self, name: str, tmp_path: Path) -> None:
        words = ["/bin/sh", "-c", 'exec "$@" >&- <&-', "sh", COMMAND, *COMMANDS[name]]
        ended = subprocess.run(
            words, env=Run(tmp_path).environment(), capture_output=True, text=True, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_full_disk_is_one_line(self, name: str, tmp_path: Path) -> None:
        with open("/dev/full", "w") as full:
            ended = Run(tmp_path)(*COMMANDS[name], stdout=full)
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert line == "infer-doctor: standard output: No space left on device"

    @pytest.mark.parametrize(
        "variables",
        [
            {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
            {"PYTHONIOENCODING": "ascii"},
            {"PYTHONIOENCODING": "latin-1"},
        ],
    )
    def test_output_that_is_not_utf_8(
        self, name: str, variables: dict[str, str], tmp_path: Path
    ) -> None:
        home = tmp_path / "höme-\u6f22"
        home.mkdir()
        run = Run(home, {**variables, "HF_HOME": f"{home}/cache"})
        ended = run(*COMMANDS[name], text=False)
        assert (ended.returncode, ended.stderr) == (0, b"")
        ended.stdout.decode("latin-1" if "latin-1" in variables.values() else "ascii")


def test_terminal_gets_no_control_characters_without_colour(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with Run(tmp_path, {"TERM": "dumb", "NO_COLOR": "1"}).start("check", stdout=slave) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:  # EIO: the other end is closed
                break
            shown += part
            if not part:
                break
        process.wait(timeout=60)
    os.close(master)
    assert b"\x1b" not in shown
    assert shown.rstrip().splitlines()[-1].startswith(b"pass: ")


ODD = {
    "no variables at all": {},
    "no PATH": {"HOME": "/tmp"},
    "no HOME": {"PATH": "/usr/bin:/bin"},
    "HOME that is not there": {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
    "empty words": {"HOME": "", "PATH": "", "CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": ""},
    "relative PATH": {"HOME": "/tmp", "PATH": ".:bin:", "XDG_CACHE_HOME": "cache"},
    "not UTF-8": {"HOME": "/tmp/\udcff", "HF_HOME": "/tmp/\udcfe", "PATH": "/usr/bin:/\udcfd"},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_environment(name: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    ended = run("check", "--format", "json", env=ODD[name])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["counts"]["crashed"] == 0


def test_folder_that_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ["/bin/sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", COMMAND, "check", "--format", "json"]
    ended = subprocess.run(
        words, cwd=gone, env=Run(tmp_path).environment(), capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["counts"]["crashed"] == 0


def reachable() -> bool:
    """Whether another user can run this installation at all (it may stand in a private folder)."""
    if os.geteuid() != 0:
        return False
    words = [COMMAND, "--version"]
    try:
        ended = subprocess.run(words, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    except OSError:
        return False
    return ended.returncode == 0


@pytest.mark.skipif(not reachable(), reason="needs root and an installation that all may read")
class TestOtherUser:
    @pytest.fixture
    def home(self) -> Iterator[Path]:
        """A folder of root's that others may read but not write."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            yield folder

    def test_without_rights(self, home: Path) -> None:
        private = home / "private"
        private.mkdir(mode=0o700)
        run = Run(home, {"HOME": str(private), "HF_HOME": f"{private}/hf"}, user=NOBODY)
        ended = run("check", "--format", "json")
        assert (ended.returncode, ended.stderr) == (0, "")
        report = json.loads(ended.stdout)
        assert report["counts"]["crashed"] == 0

    def test_home_that_cannot_be_written(self, home: Path) -> None:
        ended = Run(home, user=NOBODY)("check")
        assert (ended.returncode, ended.stderr) == (0, "")

    def test_output_that_cannot_be_written(self, home: Path) -> None:
        ended = Run(home, user=NOBODY)("check", "--output", f"{home}/report")
        assert ended.returncode == 2
        (line,) = ended.stderr.splitlines()
        assert line.endswith("report: Permission denied")

    def test_no_more_processes(self, home: Path) -> None:
        """Without children nothing is known: everything is blocked, nothing passes."""

        def scarce() -> None:
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        run = Run(home, user=NOBODY)
        ended = run("check", "--format", "json", preexec_fn=scarce)
        assert ended.stderr == ""
        report = json.loads(ended.stdout)
        assert report["counts"]["crashed"] == report["counts"]["passed"] == 0
        reasons = [row["reason"] for row in report["results"] if row["outcome"] == "blocked"]
        assert any("no process could be started" in reason for reason in reasons)


def test_no_command_is_answered_with_the_help(tmp_path: Path) -> None:
    help, alone = Run(tmp_path)("--help"), Run(tmp_path)()
    assert help.stdout.count("\n") > 20
    assert help.stdout in (alone.stdout, alone.stderr)  # click < 8.2 prints it as an answer


def test_a_misspelt_command(tmp_path: Path) -> None:
    ended = Run(tmp_path)("chekc")
    assert ended.returncode == 2
    assert "there is no command 'chekc'; did you mean 'check'?" in ended.stderr
    assert "No such option" in Run(tmp_path)("--bogus").stderr


def test_module_is_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "infer_doctor", "list"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert found.stdout == Run(tmp_path)("list").stdout != ""
