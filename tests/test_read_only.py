"""Reading commands read: no write, no network, no signal, no program, seen from the kernel."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from doctor_process import COMMAND, Run

import infer_doctor
import infer_doctor.checks
import infer_doctor.fixes

READING = frozenset(
    [
        "access",
        "execve",
        "faccessat",
        "faccessat2",
        "getcwd",
        "lstat",
        "newfstatat",
        "open",
        "openat",
        "readlink",
        "readlinkat",
        "stat",
        "statfs",
        "statx",
    ]
)
"""The calls with a path that change nothing; open and execve are looked at more closely."""

PROCESS = frozenset(
    [
        "clone",
        "clone3",
        "exit",
        "exit_group",
        "fork",
        "rt_sigaction",
        "rt_sigprocmask",
        "rt_sigreturn",
        "sigaltstack",
        "vfork",
        "wait4",
        "waitid",
        "pause",
        "alarm",
        "kill",
        "tgkill",
    ]
)
"""Starting, ending and waiting; kill is looked at more closely."""

LOOKING = ("check", "snapshot", "fix", "bundle", "plan", "diagnose")
"""Commands that look at this machine."""

LOG = """\
INFO 12-01 03:00:00 [api_server.py:1] vLLM API server version 0.20.0
ERROR 12-01 03:00:09 [core.py:1] ValueError: Free memory on device cuda:0 (9.1/79.1 GiB) on startup is \
less than desired GPU memory utilization (0.9, 71.2 GiB).
"""

WRITING = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")


def calls(trace: Path) -> Iterator[tuple[str, str]]:
    """Name and arguments with result; calls that were cut in two by others are put together."""
    begun: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, _, text = line.partition(" ")
        text = text.strip()
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", text):
            text = begun.pop(pid) + resumed[1]
        elif text.endswith("<unfinished ...>"):
            begun[pid] = text.removesuffix("<unfinished ...>")
            continue
        if found := re.match(r"(\w+)\((.*)", text):
            yield found[1], found[2]
    for text in begun.values():  # it ended in the middle of the call
        name, _, rest = text.partition("(")
        if name.isidentifier():  # strace writes ??? for one that it could not read any more
            yield name, rest


def watch(run: Run, words: Sequence[str], trace: Path) -> list[tuple[str, str]]:
    """Everything the command did with files, processes, signals and the network."""
    kinds = "%file,%process,%network,%signal,fchmod,fchown,fsetxattr,ftruncate,fallocate"
    strace = ["strace", "-f", "-qq", "-e", f"trace={kinds}", "-e", "signal=none", "-o", str(trace)]
    command = [*strace, COMMAND, *words]
    ended = subprocess.run(
        command, env=run.environment(), cwd=run.home, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode in (0, 1, 3), ended.stderr
    return list(calls(trace))


def traceable() -> bool:
    """Whether strace is there and may trace."""
    try:
        words = ["strace", "-o", "/dev/null", "true"]
        return subprocess.run(words, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not traceable(), reason="needs strace and the right to trace")
@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "--format", "json", "--output", "out"],
        ["check", "--python", sys.executable, "--", "vllm", "serve", "model", "-tp", "8"],
        ["snapshot", "-o", "out"],
        ["bundle", "serve.log", "-o", "out"],
        ["plan", "start.sh", "--gpu", "H200"],
        ["diagnose", "serve.log"],
        ["fix", "--unsafe"],
        ["fix", "--unsafe", "--emit", "sh", "--output", "out"],
        ["fix", "start.sh", "--emit", "patch"],
        ["fix", "--emit", "command", "--", "vllm", "serve", "model", "--swap-space", "4"],
        ["history"],
        ["list"],
        ["explain", "driver-missing"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_nothing_is_changed(words: list[str], tmp_path: Path, two_gpus: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "start.sh").write_text("vllm serve model --swap-space 4\n")
    (home / "serve.log").write_text(LOG)
    run = Run(home, {"LD_LIBRARY_PATH": str(two_gpus)})
    run(*words)  # what was not compiled when it was installed is now
    (home / "out").unlink(missing_ok=True)
    seen = watch(run, words, tmp_path / "trace")
    (started, *programs) = [rest for name, rest in seen if name == "execve"]
    assert started.startswith(f'"{COMMAND}"')
    assert bool(programs) == (words[0] in LOOKING)  # its own children
    own = f'"{Path(sys.executable).parent}/python'  # under whichever of its names
    assert all(rest.startswith(own) for rest in programs), programs
    children = {rest.rpartition("= ")[2] for name, rest in seen if name in ("clone3", "vfork")}
    for name, rest in seen:
        assert name in READING | PROCESS, f"{name}({rest}"
        if name in ("open", "openat") and WRITING.search(rest):
            path = re.findall(r'"([^"]*)"', rest)[0]
            assert path == "/dev/null" or (path == "out" and "out" in words), rest
        if name in ("kill", "tgkill"):
            target = rest.partition(",")[0].removeprefix("-")
            assert target in children, f"{name}({rest}"
    assert {path.name for path in home.iterdir()} == {
        "start.sh",
        "serve.log",
        *({"out"} & set(words)),
    }


@pytest.fixture
def uncompiled(tmp_path: Path) -> Path:
    """A copy of the package that Python has not compiled yet, in a folder for PYTHONPATH."""
    for package in (infer_doctor, infer_doctor.checks, infer_doctor.fixes):
        source = Path(package.__path__[0])
        target = tmp_path / "copy" / Path(*package.__name__.split("."))
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    return tmp_path / "copy"


def written(folder: Path, variables: dict[str, str]) -> set[str]:
    """Names of the folders that a first run of this copy makes."""
    before = set(folder.rglob("*"))
    subprocess.run(
        [sys.executable, "-m", "infer_doctor", "check"],
        env={**Run(folder).environment(), "PYTHONPATH": str(folder), **variables},
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return {path.name for path in set(folder.rglob("*")) - before if path.is_dir()}


def test_first_run_writes_nothing_but_pythons_own_cache(uncompiled: Path) -> None:
    assert written(uncompiled, {}) == {"__pycache__"}


def test_not_even_that_when_python_is_told_so(uncompiled: Path) -> None:
    assert written(uncompiled, {"PYTHONDONTWRITEBYTECODE": "1"}) == set()
