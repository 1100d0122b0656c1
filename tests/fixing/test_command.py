"""The commands fix, undo and history as a user calls them."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from doctor_process import COMMAND, Run

SCRIPT = """\
#!/bin/bash
# ours
export VLLM_USE_V1=1   # from long ago
exec vllm serve Qwen/Qwen3-8B \\
    --swap-space 4 \\
    --enable-prefx-caching \\
    --api-key sk-abcdefghijklmnopqrstuvwxyz \\
    --port 8000
"""

CURED = """\
#!/bin/bash
# ours
exec vllm serve Qwen/Qwen3-8B \\
    --enable-prefx-caching \\
    --api-key sk-abcdefghijklmnopqrstuvwxyz \\
    --port 8000
"""

SELECT = ("--select", "launch-argument-*,launch-variable-unread")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "start.sh").write_text(SCRIPT)
    return Run(tmp_path)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_plan_writes_nothing(run: Run) -> None:
    before = files(run.home)
    shown = run("fix", "start.sh", *SELECT)
    assert shown.stderr == ""
    assert shown.returncode == 1
    assert "-    --swap-space 4 \\" in shown.stdout
    assert "+    --enable-prefix-caching \\" in shown.stdout
    assert "[safe, takes a restart]" in shown.stdout
    assert "2 can be applied: infer-doctor fix --apply" in shown.stdout
    assert "1 held back as unsafe: --unsafe releases them" in shown.stdout
    assert "sk-abc" not in shown.stdout
    assert files(run.home) == before
    assert run("history").stdout == "nothing was changed yet\n"
    assert run("undo", "--yes").returncode == 2
    assert files(run.home) == before


def test_steps_in_words_end_at_80_columns(run: Run) -> None:
    """Commands are not broken, so that they can be copied."""
    (run.home / "serve.sh").write_text("vllm serve meta-llama/Llama-3.1-8B\n")
    words = ("fix", "serve.sh", "--select", "launch-hub-token-missing")
    shown = run(*words).stdout
    assert "      licence: https://huggingface.co/meta-llama/Llama-3.1-8B, tokens:\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_apply_history_undo(run: Run) -> None:
    (run.home / "start.sh").chmod(0o750)
    done = run("fix", "start.sh", *SELECT, "--apply", "--yes")
    assert done.stderr == ""
    assert done.stdout.count("cured: ") == 2
    assert "infer-doctor undo 0001 takes this back" in done.stdout
    assert "1 held back as unsafe" in done.stdout
    assert (run.home / "start.sh").read_text() == CURED
    told = run("history").stdout
    assert "Take VLLM_USE_V1 out: cured" in told
    undone = run("undo", "0001", "--yes")
    assert (undone.returncode, undone.stderr) == (0, "")
    assert (run.home / "start.sh").read_text() == SCRIPT
    assert (run.home / "start.sh").stat().st_mode & 0o777 == 0o750
    assert "0001" in run("history").stdout
    assert "taken back" in run("history").stdout
    again = run("undo", "--yes")
    assert (again.returncode, again.stderr) == (2, "infer-doctor: nothing is left to take back\n")


def test_unsafe_is_released(run: Run) -> None:
    done = run("fix", "start.sh", *SELECT, "--apply", "--yes", "--unsafe")
    assert done.stdout.count("cured: ") == 3
    assert done.returncode == 0
    assert "--enable-prefix-caching" in (run.home / "start.sh").read_text()


def test_select_and_ignore(run: Run) -> None:
    run("fix", "start.sh", *SELECT, "--ignore", "launch-argument-*", "--apply", "--yes")
    assert (run.home / "start.sh").read_text() == SCRIPT.replace(
        "export VLLM_USE_V1=1   # from long ago\n", ""
    )


def test_nobody_to_ask(run: Run) -> None:
    ended = run("fix", "start.sh", "--apply")
    assert ended.returncode == 2
    assert "give --yes" in ended.stderr
    assert files(run.home) == {"start.sh": SCRIPT.encode()}


def test_each_group_is_asked_for(run: Run) -> None:
    """On a terminal: the first is declined, the second done."""
    leader, follower = pty.openpty()
    process = run.start("fix", "start.sh", *SELECT, "--apply", stdin=follower)
    os.write(leader, b"n\ny\n")
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    os.close(follower)
    assert out.count("do it?") == 2
    assert "declined: " in out
    assert "cured: " in out
    text = (run.home / "start.sh").read_text()
    assert ("--swap-space" in text) != ("VLLM_USE_V1" in text)


def test_launches_that_a_fix_moves(run: Run) -> None:
    """They are called by their line; the second is looked at again where it stands then."""
    text = "export VLLM_USE_V1=1\nvllm serve a --swap-space 4 &\nvllm serve b --swap-space 4\n"
    (run.home / "two.sh").write_text(text)
    done = run("fix", "two.sh", *SELECT, "--apply", "--yes")
    results = [line.partition(":")[0] for line in done.stdout.splitlines() if ": " in line[:12]]
    assert set(results) == {"cured"}, done.stdout
    assert (run.home / "two.sh").read_text() == "vllm serve a &\nvllm serve b\n"


def test_a_file_that_goes_before_the_second_look(run: Run) -> None:
    """What came of it is told, and the run is closed."""
    leader, follower = pty.openpty()
    process = run.start("fix", "start.sh", *SELECT, "--apply", stdin=follower)
    os.write(leader, b"y\n")
    journal = run.home / ".local/state/infer-doctor/0001/journal.jsonl"
    while not journal.exists() or '"done"' not in journal.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    (run.home / "start.sh").unlink()
    os.write(leader, b"n\n")
    out, _ = process.communicate(timeout=60)
    os.close(leader)
    os.close(follower)
    assert "not cured: " in out
    assert "it stays: " in out
    assert "was stopped" not in run("history").stdout


def test_patch_applies_with_git(run: Run) -> None:
    made = run("fix", "start.sh", *SELECT, "--emit", "patch")
    assert "1 held back as unsafe" in made.stderr
    subprocess.run(["git", "init", "-q", "."], cwd=run.home, check=True)
    apply = ["git", "apply", "-"]
    subprocess.run(apply, cwd=run.home, input=made.stdout, text=True, check=True)
    assert (run.home / "start.sh").read_text() == CURED


def test_script_does_the_same(run: Run) -> None:
    made = run("fix", "start.sh", *SELECT, "--emit", "sh", "--output", "cure.sh")
    assert made.stdout == ""
    checked = subprocess.run(["sh", "cure.sh"], cwd=run.home, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert (run.home / "start.sh").read_text() == CURED


def test_the_corrected_command_line(run: Run) -> None:
    words = ["vllm", "serve", "Qwen/Qwen3-8B", "--swap-space", "4", "--api-key", "sk-0123456789abc"]
    made = run("fix", *SELECT, "--emit", "command", "--", *words)
    assert made.stdout == "vllm serve Qwen/Qwen3-8B --api-key sk-0123456789abc\n"
    shown = run("fix", *SELECT, "--", *words)
    assert "1 for the next start: --emit command or --emit sh" in shown.stdout
    assert "sk-0123456789abc" not in shown.stdout


def test_the_command_line_of_a_file(run: Run) -> None:
    made = run("fix", "start.sh", *SELECT, "--unsafe", "--emit", "command")
    assert made.stdout == (
        "env -u VLLM_USE_V1 vllm serve Qwen/Qwen3-8B --enable-prefix-caching "
        "--api-key sk-abcdefghijklmnopqrstuvwxyz --port 8000\n"
    )


def test_the_corrected_docker_run(run: Run) -> None:
    (run.home / "run.sh").write_text(
        "# ours\nIMAGE=vllm/vllm-openai:v0.10.2\n"
        "docker run --rm --gpus all -e HF_TOKEN=$HF_TOKEN \\\n"
        "  -p 127.0.0.1:8000:8000 -v hf:/root/.cache/huggingface \\\n"
        "  $IMAGE --model Qwen/Qwen3-8B -tp 2\n"
    )
    made = run("fix", "run.sh", "--select", "manifest-shm-small", "--emit", "command")
    assert made.stdout == (
        "docker run --shm-size 1g --rm --gpus all -e HF_TOKEN=$HF_TOKEN -p 127.0.0.1:8000:8000 "
        "-v hf:/root/.cache/huggingface $IMAGE --model Qwen/Qwen3-8B -tp 2\n"
    )


def test_a_report_names_the_findings(run: Run) -> None:
    report = run("check", "start.sh", "--select", "launch-argument-removed", "--format", "json")
    (run.home / "report.json").write_text(report.stdout)
    shown = run("fix", "report.json")
    assert "--swap-space" in shown.stdout
    assert "VLLM_USE_V1 out" not in shown.stdout
    run("fix", "report.json", "--apply", "--yes")
    assert (run.home / "start.sh").read_text() == SCRIPT.replace("    --swap-space 4 \\\n", "")


def test_nothing_of_a_report_is_carried_out(run: Run) -> None:
    """A report from somewhere, with actions of its own."""
    text = run(
        "check", "start.sh", "--select", "launch-argument-removed", "--format", "json"
    ).stdout
    report = json.loads(text)
    report["fixes"][0]["actions"] = [
        {"kind": "write", "text": "x", "file": str(run.home / "evil"), "content": "x", "mode": 420},
        {"kind": "command", "text": f"touch {run.home}/evil"},
    ]
    (run.home / "report.json").write_text(json.dumps(report))
    run("fix", "report.json", "--apply", "--yes", "--unsafe")
    assert not (run.home / "evil").exists()
    assert "--swap-space" not in (run.home / "start.sh").read_text()


def test_changed_since(run: Run) -> None:
    run("fix", "start.sh", *SELECT, "--apply", "--yes")
    file = run.home / "start.sh"
    file.write_text(file.read_text() + "# later\n")
    refused = run("undo", "--yes")
    assert refused.returncode == 2
    assert "+# later" in refused.stdout
    assert "--swap-space 4" in refused.stdout
    assert "was changed after the fix" in refused.stderr
    assert file.read_text().endswith("# later\n")


def test_a_later_run_changed_the_same(run: Run) -> None:
    run("fix", "start.sh", *SELECT, "--ignore", "launch-argument-*", "--apply", "--yes")
    run("fix", "start.sh", *SELECT, "--apply", "--yes")
    refused = run("undo", "1", "--yes")
    assert refused.returncode == 2
    assert refused.stderr.endswith("; take back first what came later: run 0002\n")
    assert run("undo", "--yes").returncode == 0
    assert run("undo", "--yes").returncode == 0
    assert (run.home / "start.sh").read_text() == SCRIPT


def test_a_report_of_another_time(run: Run) -> None:
    report = run("check", "start.sh", "--select", "launch-argument-removed", "--format", "json")
    (run.home / "report.json").write_text(report.stdout)
    (run.home / "start.sh").write_text(CURED)
    for words in (("--apply", "--yes"), ()):
        done = run("fix", "report.json", *words)
        assert done.stdout.startswith("none of what the report found is there now\n")
    assert (run.home / "start.sh").read_text() == CURED


def test_a_link_is_refused(run: Run) -> None:
    real = run.home / "real.sh"
    (run.home / "start.sh").rename(real)
    (run.home / "start.sh").symlink_to(real)
    done = run("fix", "start.sh", *SELECT, "--apply", "--yes")
    assert "is a symbolic link to" in " ".join(done.stdout.split())
    assert real.read_text() == SCRIPT
    assert run("history").stdout == "nothing was changed yet\n"


def test_two_at_once(run: Run) -> None:
    state = run.home / ".local" / "state" / "infer-doctor"
    state.mkdir(parents=True)
    with (state / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for words in (("fix", "start.sh", *SELECT, "--apply", "--yes"),):
            ended = run(*words)
            assert ended.returncode == 2
            assert "another infer-doctor" in ended.stderr
        shown = run("fix", "start.sh", *SELECT)  # looking needs no lock
        assert shown.returncode == 1
    assert (run.home / "start.sh").read_text() == SCRIPT


def test_a_run_that_was_killed_is_told(run: Run) -> None:
    """strace ends it at its second rename: the first file is new by then."""
    (run.home / "b.sh").write_text(SCRIPT)
    trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=rename"]
    inject = ["-e", "inject=rename:signal=KILL:when=4"]
    words = [*trace, *inject, COMMAND, "fix", "start.sh", "b.sh", *SELECT, "--apply", "--yes"]
    quiet = {**run.environment(), "PYTHONDONTWRITEBYTECODE": "1"}  # Python renames its own
    try:
        subprocess.run(words, env=quiet, cwd=run.home, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs strace")
    told = run("fix", "start.sh", "b.sh", *SELECT)
    assert "was stopped before its end; found now:" in told.stderr
    assert "`infer-doctor undo 0001` brings back what was before" in told.stderr
    run("undo", "--yes")
    assert (run.home / "start.sh").read_text() == SCRIPT
    assert (run.home / "b.sh").read_text() == SCRIPT
    assert "was stopped" not in run("fix", "start.sh", *SELECT).stderr


def test_files_that_a_launch_names(run: Run) -> None:
    """They lie beside the launch, wherever the command is called."""
    folder = run.home / "sub"
    folder.mkdir()
    (folder / "start.sh").write_text("vllm serve Qwen/Qwen3-8B --config conf.yaml\n")
    conf = "# engine\nport: 8000\nswap-space: 4   # old\n"
    (folder / "conf.yaml").write_text(conf)
    done = run("fix", "sub/start.sh", "--select", "launch-argument-*", "--apply", "--yes")
    assert done.stdout.startswith("cured: "), done.stdout
    assert (folder / "conf.yaml").read_text() == "# engine\nport: 8000\n"
    assert f"{folder}/conf.yaml" in run("history").stdout
    run("undo", "--yes")
    assert (folder / "conf.yaml").read_text() == conf


def test_unsafe_ones_of_a_command_line_are_held_back_too(run: Run) -> None:
    words = ["--", "vllm", "serve", "Qwen/Qwen3-8B", "--enable-prefx-caching"]
    made = run("fix", *SELECT, "--emit", "command", *words)
    assert made.stdout == "vllm serve Qwen/Qwen3-8B --enable-prefx-caching\n"
    assert "1 held back as unsafe: --unsafe releases them" in made.stderr
    made = run("fix", *SELECT, "--unsafe", "--emit", "command", *words)
    assert made.stdout == "vllm serve Qwen/Qwen3-8B --enable-prefix-caching\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("null", "holds a line that is none of a journal"),
        (
            '{"event": "step", "n": 2, "kind": "other", "text": "", "fix": "", "title": ""}',
            "none of",
        ),
        ('{"event": "done"}', "none of a journal (done)"),
    ],
)
def test_a_damaged_journal(line: str, words: str, run: Run) -> None:
    """It is told, blocks no other run and is not carried out."""
    assert "cured" in run("fix", "start.sh", *SELECT, "--apply", "--yes").stdout
    before = (run.home / "start.sh").read_text()
    journal = run.home / ".local/state/infer-doctor/0001/journal.jsonl"
    journal.write_text(f"{journal.read_text()}{line}\n")
    shown = run("history")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "run 0001: its journal holds a line" in shown.stdout
    assert words in shown.stdout
    refused = run("undo", "--yes")
    assert refused.returncode == 2
    assert "cannot be taken back from here" in refused.stderr
    assert (run.home / "start.sh").read_text() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace('"version": 1', '"version": 9'), "has version 9"),
        (lambda text: text.partition("\n")[2], "has lost its first line"),
    ],
)
def test_a_journal_of_another_kind(change: Callable[[str], str], words: str, run: Run) -> None:
    run("fix", "start.sh", *SELECT, "--apply", "--yes")
    journal = run.home / ".local/state/infer-doctor/0001/journal.jsonl"
    journal.write_text(change(journal.read_text()))
    assert words in run("undo", "--yes").stderr


def test_closed_standard_input(run: Run) -> None:
    closed = ["sh", "-c", f"exec {COMMAND} fix start.sh --apply <&-"]
    done = subprocess.run(
        closed, env=run.environment(), cwd=run.home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "nobody can answer here: give --yes" in done.stderr


def test_a_script_from_another_folder(run: Run, tmp_path: Path) -> None:
    """Blanks in names, CRLF, files elsewhere; what is for people is a comment."""
    folder = run.home / "a b"
    folder.mkdir()
    text = SCRIPT.replace("\n", "\r\n")
    (folder / "start it.sh").write_bytes(text.encode())
    made = run("fix", "a b/start it.sh", *SELECT, "--emit", "sh", "--output", "cure.sh")
    assert "hold keys: show it to nobody" in made.stderr
    words = ["sh", "-eu", str(run.home / "cure.sh")]
    done = subprocess.run(words, cwd="/", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "start it.sh").read_bytes() == CURED.replace("\n", "\r\n").encode()
    other = run("fix", "a b/start it.sh", "--select", "launch-gpus-too-few,engine-not-installed",
                "--emit", "sh")  # fmt: skip
    live = [row for row in other.stdout.splitlines() if row and not row.startswith("#")]
    assert [row.split()[0] for row in live] == ["set", "cd"]


def test_interrupted_at_the_second_question(run: Run) -> None:
    """What was done before is looked at, and the run is closed."""
    control, terminal = pty.openpty()
    words = ("fix", "start.sh", *SELECT, "--apply", "--unsafe")
    process = run.start(*words, stdin=terminal, preexec_fn=lambda: _leads(terminal))
    os.write(control, b"y\n")
    out = b""
    assert process.stdout is not None
    while out.count(b"do it?") < 2:
        part = os.read(process.stdout.fileno(), 4096)
        assert part, out
        out += part
    while not _reads(process.pid):  # before, Python may lose the signal while it flushes
        assert process.poll() is None
    os.write(control, b"\x03")
    rest, _ = process.communicate()
    assert process.returncode == 130
    assert "cured: " in rest
    assert "infer-doctor undo 0001 takes this back" in rest
    assert "was stopped" not in run("history").stdout
    os.close(control)
    os.close(terminal)


def _reads(pid: int) -> bool:
    """Whether it waits in read(2) of its standard input: 0 of x86-64, 63 of arm64."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    return call[0] in ("0", "63") and call[1] == "0x0"


def _leads(terminal: int) -> None:
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
