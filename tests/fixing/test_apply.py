"""Apply and undo: whole groups, refusals before anything is written, the difference of three."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fix_driver
import pytest
from fix_driver import group, set_port

from infer_doctor.facts.environment import normal
from infer_doctor.fixing.apply import Applying, Outcome
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import Refused
from infer_doctor.fixing.journal import lock, read, runs
from infer_doctor.fixing.tell import told
from infer_doctor.fixing.undo import ChangedSince, undo
from infer_doctor.model import (
    CheckResult,
    Edit,
    EndProcess,
    Finding,
    RemoveFiles,
    WriteFile,
)

TEXT = "# mine\nvllm serve m --port 8000\n"


class Bench:
    """A folder with one script, and a run of fixes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = str(folder / "state")
        self.file = folder / "work" / "start.sh"
        self.file.parent.mkdir()
        self.file.write_text(TEXT)
        self.applying = Applying(self.state, "2026-01-01T00:00:00Z", [], Drafts())

    def do(self, *actions: Any, name: str = "it") -> Outcome:
        return self.applying.do(group(name, *actions))

    def written(self) -> list[str]:
        """What lies in the folder of the file, and whether a journal was begun."""
        rows = [path.name for path in self.file.parent.iterdir()]
        return sorted(rows) + (["state"] if os.path.exists(self.state) else [])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_bytes_and_mode_come_back(bench: Bench) -> None:
    bench.file.chmod(0o751)
    assert bench.do(set_port(bench.file)).result == "applied"
    bench.applying.end()
    assert bench.file.read_text() == TEXT.replace("8000", "9000")
    assert bench.file.stat().st_mode & 0o777 == 0o751
    assert [line for run in runs(bench.state) for line in told(run)][-1].startswith(
        "        as after the fix: "
    )
    undo(bench.state, "0001")
    assert bench.file.read_text() == TEXT
    assert bench.file.stat().st_mode & 0o777 == 0o751
    assert bench.written() == ["start.sh", "state"]


def test_the_journal_is_for_nobody_else(bench: Bench) -> None:
    bench.do(set_port(bench.file))
    for path in (Path(bench.state), *Path(bench.state).rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def _link(bench: Bench) -> None:
    real = bench.file.with_name("real.sh")
    bench.file.rename(real)
    bench.file.symlink_to(real)


def _second_name(bench: Bench) -> None:
    os.link(bench.file, bench.file.with_name("other.sh"))


def _other_owner(bench: Bench) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(bench.file, 12345, 12345)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "is a symbolic link"),
        (_second_name, "has 2 names"),
        (_other_owner, "belongs to uid 12345"),
        (lambda bench: bench.file.chmod(0o444), "is read-only"),
        (lambda bench: bench.file.unlink(), "is not there"),
        (lambda bench: bench.file.write_bytes(b"\xff\xfe --port 8000\n"), "is not UTF-8"),
        (lambda bench: bench.file.write_text("vllm serve m\n"), "no longer stands"),
        (lambda bench: (bench.file.unlink(), os.mkfifo(bench.file)), "no regular file"),
    ],
)
def test_refused_before_anything_is_written(bench: Bench, spoil: Any, why: str) -> None:
    spoil(bench)
    before = bench.written()
    outcome = bench.do(set_port(bench.file))
    assert outcome.result == "refused"
    assert outcome.why
    assert why in outcome.why
    assert bench.written() == before


def test_read_only_folder(bench: Bench) -> None:
    """Root may write everywhere, so another user has to try."""
    if os.geteuid():
        bench.file.parent.chmod(0o555)
        outcome = bench.do(set_port(bench.file))
        assert outcome.why
        assert "you may not write there" in outcome.why
        return
    code = (
        "import os, sys\n"
        "from infer_doctor.fixing.files import Refused, require_replaceable\n"
        "os.setuid(12345)\n"
        "try: require_replaceable(sys.argv[1], 0)\n"
        "except Refused as error: print(error)\n"
    )
    for folder in (bench.folder, *bench.folder.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    new = str(bench.file.parent / "new")
    said = subprocess.run([sys.executable, "-c", code, new], capture_output=True, text=True)
    assert said.stdout == f"{bench.file.parent}: you may not write there\n"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of two MiB with a script in it."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_file_that_is_mounted_itself(bench: Bench, tmp_path: Path) -> None:
    """What `docker run -v FILE:FILE` makes: the kernel lets nobody rename over it."""
    file = tmp_path / "work" / "a b.sh"
    file.write_text(TEXT)
    if subprocess.run(["mount", "--bind", str(file), str(file)], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        before = bench.written()
        outcome = bench.do(set_port(file))
        assert outcome.result == "refused"
        assert outcome.why
        assert outcome.why.startswith(f"{file}: is a mount of its own")
        assert bench.written() == before
    finally:
        subprocess.run(["umount", str(file)], check=True)


def test_full_disk(bench: Bench, small: Path) -> None:
    file = small / "start.sh"
    file.write_text(TEXT)
    (small / "rest").write_bytes(bytes(1_200_000))
    outcome = bench.do(set_port(file))
    assert outcome.result == "refused"
    assert outcome.why
    assert "bytes are free" in outcome.why
    assert file.read_text() == TEXT
    assert not os.path.exists(bench.state)


def test_full_disk_of_the_journal(bench: Bench, small: Path) -> None:
    (small / "rest").write_bytes(bytes(1_200_000))
    bench.applying = Applying(str(small / "state"), "now", [], Drafts())
    outcome = bench.do(set_port(bench.file))
    assert outcome.result == "refused"
    assert not (small / "state").exists()
    assert bench.file.read_text() == TEXT


def test_a_group_is_whole_or_not_there(bench: Bench) -> None:
    """The second action fails when the first is done: that one is taken back."""
    new = bench.file.with_name("drop.conf")
    blocked = bench.file.with_name("drop.conf.d") / "x"

    class Late:
        """Makes a file where a folder is wanted, between the look and the deed."""

        text = "late"

        def record(self, journal: Any) -> Any:
            return {"kind": "replace", "text": "late", "path": str(blocked), "before": None,
                    "after": None, "folders": [], "temporary": str(blocked)}  # fmt: skip

        def do(self, record: Any) -> Any:
            raise OSError(28, "No space left on device", str(blocked))

    from infer_doctor.fixing import apply

    real = apply.prepared

    def prepared(*arguments: Any) -> Any:
        steps, texts = real(*arguments)
        return [*steps, Late()], texts

    apply.prepared = prepared
    try:
        outcome = bench.do(set_port(bench.file), WriteFile(text="w", file=str(new), content="a\n"))
    finally:
        apply.prepared = real
    assert outcome.result == "refused"
    assert outcome.why == f"{blocked}: No space left on device"
    assert bench.written() == ["start.sh", "state"]
    assert bench.file.read_text() == TEXT
    assert not read(bench.state, "0001").left


def test_changed_since_shows_all_three(bench: Bench) -> None:
    bench.do(set_port(bench.file))
    bench.applying.end()
    bench.file.write_text(bench.file.read_text() + "# added later\n")
    with pytest.raises(ChangedSince) as refused:
        undo(bench.state, "0001")
    shown = refused.value.difference
    assert "-vllm serve m --port 8000" in shown
    assert "+vllm serve m --port 9000" in shown
    assert "+# added later" in shown
    assert bench.file.read_text().endswith("# added later\n")


def test_a_mode_that_was_changed_since_counts_too(bench: Bench) -> None:
    bench.do(set_port(bench.file))
    bench.file.chmod(0o777)
    with pytest.raises(ChangedSince) as refused:
        undo(bench.state, "0001")
    assert "mode 0644" in refused.value.difference
    assert "mode 0777" in refused.value.difference


def test_what_was_kept_must_be_whole(bench: Bench) -> None:
    bench.do(set_port(bench.file))
    for kept in (Path(bench.state) / "0001" / "kept").iterdir():
        kept.write_text("spoiled")
    with pytest.raises(Refused, match="no longer what was saved"):
        undo(bench.state, "0001")
    assert "9000" in bench.file.read_text()


def test_a_line_of_the_journal_that_was_cut(bench: Bench) -> None:
    bench.do(set_port(bench.file))
    journal = Path(bench.state) / "0001" / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"event": "st')
    undo(bench.state, "0001")
    assert bench.file.read_text() == TEXT
    assert not read(bench.state, "0001").left


def test_two_fixes_of_one_file_and_lines_that_moved(bench: Bench) -> None:
    """Lines count in the file as it was examined, also when an earlier fix added some."""
    bench.file.write_text("#\nvllm serve a --port 8000\nvllm serve b --port 8000\n")

    def edit(line: int, **more: Any) -> Edit:
        settings: dict[str, Any] = {
            "text": "t",
            "file": str(bench.file),
            "format": "shell",
            "what": "option",
            "do": "set",
            "name": "--port",
            "value": "9000",
        }
        return Edit(**{**settings, "line": line, **more})

    added = edit(2, what="variable", name="A", value="1", anchor="a")
    assert bench.do(added, name="one").result == "applied"
    assert bench.do(edit(3), name="two").result == "applied"
    assert bench.file.read_text() == (
        "#\nexport A=1\nvllm serve a --port 8000\nvllm serve b --port 9000\n"
    )
    undo(bench.state, "0001")
    assert bench.file.read_text() == "#\nvllm serve a --port 8000\nvllm serve b --port 8000\n"


def test_changed_between_the_look_and_the_deed(bench: Bench) -> None:
    bench.applying.look(group("it", set_port(bench.file)))
    bench.file.write_text(TEXT + "# new\n")
    outcome = bench.do(set_port(bench.file))
    assert outcome.why
    assert "was changed after it was examined" in outcome.why


def test_new_folders_go_again(bench: Bench) -> None:
    file = bench.file.parent / "a" / "b" / "c.conf"
    bench.do(
        WriteFile(text="w", file=str(file), content="x\n", mode=0o600),
        WriteFile(text="w", file=str(file.with_name("d.conf")), content="y\n"),
    )
    assert file.stat().st_mode & 0o777 == 0o600
    undo(bench.state, "0001")
    assert bench.written() == ["start.sh", "state"]


def test_a_folder_that_others_use_by_now_stays(bench: Bench) -> None:
    file = bench.file.parent / "a" / "c.conf"
    bench.do(WriteFile(text="w", file=str(file), content="x\n"))
    other = file.with_name("other")
    other.touch()
    undo(bench.state, "0001")
    assert other.exists()
    assert not file.exists()


def test_folders_and_large_files_go_aside(bench: Bench) -> None:
    folder = bench.file.parent / "stale.dist-info"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "x").write_text("1")
    assert bench.do(RemoveFiles(text="r", files=(str(folder),))).result == "applied"
    assert not folder.exists()
    undo(bench.state, "0001")
    assert (folder / "inner" / "x").read_text() == "1"
    assert bench.written() == ["stale.dist-info", "start.sh", "state"]


def test_two_at_once(bench: Bench) -> None:
    with lock(bench.state):
        told: list[str] = []

        def second() -> None:
            try:
                with lock(bench.state):
                    told.append("in")
            except Refused as error:
                told.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(told) == 1
    assert f"another infer-doctor (PID {os.getpid()})" in told[0]
    with lock(bench.state):
        pass


def _judged(bench: Bench, left: bool, outcome: str = "failed") -> Outcome:
    applied = bench.do(set_port(bench.file))
    finding = applied.group.findings[0]
    row = CheckResult(
        check=finding.check,
        subject=finding.subject,
        outcome=outcome if left or outcome != "failed" else "passed",  # type: ignore[arg-type]
        reason="timeout",
        duration_ms=0.0,
        findings=(finding,) if left else (),
    )
    return bench.applying.judge(applied, [row])


def test_cured(bench: Bench) -> None:
    assert _judged(bench, left=False).result == "cured"
    assert "9000" in bench.file.read_text()


def test_not_cured_is_taken_back(bench: Bench) -> None:
    assert _judged(bench, left=True).result == "taken back"
    assert bench.file.read_text() == TEXT


def _row(outcome: Outcome, *, left: bool) -> CheckResult:
    (finding,) = outcome.group.findings
    return CheckResult(
        check=finding.check,
        subject=finding.subject,
        outcome="failed" if left else "passed",
        reason=None,
        duration_ms=0.0,
        findings=(finding,) if left else (),
    )


def _variable(file: Path) -> Edit:
    return Edit(text="set A", file=str(file), format="shell", what="variable", do="set",
                name="A", value="1", line=2, anchor="a")  # fmt: skip


def test_what_is_taken_back_goes_from_under_a_later_one(bench: Bench) -> None:
    """Both changed one file; the second stays, at its line."""
    first = bench.do(set_port(bench.file), name="one")
    second = bench.do(_variable(bench.file), name="two")
    assert second.result == "applied"
    assert "9000" in bench.file.read_text()
    assert bench.applying.judge(first, [_row(first, left=True)]).result == "taken back"
    assert bench.applying.judge(second, [_row(second, left=False)]).result == "cured"
    bench.applying.end()
    assert bench.file.read_text() == "# mine\nexport A=1\nvllm serve m --port 8000\n"
    undo(bench.state, "0001")
    assert bench.file.read_text() == TEXT


def test_what_cannot_stand_without_the_one_below_is_not_called_cured(bench: Bench) -> None:
    """The second changed what the first had brought."""
    first = bench.do(_variable(bench.file), name="one")
    change = replace(_variable(bench.file), value="2", old="1", line=2, anchor=None)
    second = bench.do(change, name="two")
    assert second.result == "applied"
    assert bench.applying.judge(first, [_row(first, left=True)]).result == "taken back"
    judged = bench.applying.judge(second, [_row(second, left=False)])
    assert judged.result == "taken back"
    assert judged.why
    assert judged.why.startswith("with one: ")
    assert bench.file.read_text() == TEXT


def test_what_stands_under_more_than_text_stays_and_is_told(bench: Bench) -> None:
    first = bench.do(set_port(bench.file), name="one")
    bench.do(RemoveFiles(text="r", files=(str(bench.file),)), name="two")
    judged = bench.applying.judge(first, [_row(first, left=True)])
    assert judged.result == "not cured"
    assert judged.why
    assert judged.why.endswith("it stays: on top of it stands two")
    undo(bench.state, "0001")
    assert bench.file.read_text() == TEXT


def test_what_somebody_else_changed_meanwhile_is_not_taken_back(bench: Bench) -> None:
    applied = bench.do(set_port(bench.file))
    bench.file.write_text(bench.file.read_text() + "# just now\n")
    judged = bench.applying.judge(applied, [_row(applied, left=True)])
    assert judged.result == "not cured"
    assert judged.why
    assert judged.why.endswith("was changed after the fix")
    assert bench.file.read_text().endswith("9000\n# just now\n")
    assert read(bench.state, "0001").left


def test_a_launch_that_is_gone_comes_back(bench: Bench) -> None:
    applied = bench.do(set_port(bench.file))
    judged = bench.applying.judge(applied, [_row(applied, left=False)], {"host": None})
    assert (judged.result, judged.why) == ("taken back", "host is no longer found")
    assert bench.file.read_text() == TEXT


def test_where_there_is_no_second_look_all_is_as_before(bench: Bench) -> None:
    outcomes = [
        bench.do(set_port(bench.file), name="one"),
        bench.do(_variable(bench.file), name="two"),
    ]
    back = bench.applying.all_back(outcomes, "cannot be read")
    assert [(row.result, row.why) for row in back] == [("taken back", "cannot be read")] * 2
    assert bench.file.read_text() == TEXT
    assert not read(bench.state, "0001").left


def test_undecided_stays(bench: Bench) -> None:
    judged = _judged(bench, left=False, outcome="blocked")
    assert (judged.result, judged.why) == ("undecided", "a-b: timeout")
    assert "9000" in bench.file.read_text()


def test_a_check_that_has_nothing_to_judge_any_more_is_told(bench: Bench) -> None:
    judged = _judged(bench, left=False, outcome="not_applicable")
    assert judged.result == "cured"
    assert judged.why == "a-b has nothing to judge any more: timeout"


def test_partly_cured_stays(bench: Bench) -> None:
    applied = bench.do(set_port(bench.file))
    (finding,) = applied.group.findings
    other = Finding(
        about="x", message="x", evidence=(), check="a-b", subject="host", fingerprint="1"
    )
    both = type(applied.group)(fix=applied.group.fix, findings=(finding, other), state="ready")
    again = Outcome(group=both, result="applied")
    row = CheckResult(
        check="a-b",
        subject="host",
        outcome="failed",
        reason=None,
        duration_ms=0.0,
        findings=(other,),
    )
    assert bench.applying.judge(again, [row]).result == "not cured"
    assert "9000" in bench.file.read_text()


def test_a_process_is_ended_and_only_that_one(bench: Bench) -> None:
    from infer_doctor.fixing.processes import started

    ignores = (
        "import signal,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    )
    for code in ("import time; print(flush=True); time.sleep(99)", ignores):
        victim = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert victim.stdout
        victim.stdout.readline()
        ticks = started(victim.pid)
        assert ticks is not None
        wrong = EndProcess(text="kill", pid=victim.pid, started=ticks - 1)
        outcome = bench.do(wrong)
        assert outcome.why
        assert "is another process now" in outcome.why
        assert victim.poll() is None
        from infer_doctor.fixing import processes

        waited, processes.TERM_S = processes.TERM_S, 0.5
        try:
            assert (
                bench.do(EndProcess(text="kill", pid=victim.pid, started=ticks)).result == "applied"
            )
        finally:
            processes.TERM_S = waited
        assert victim.wait(5) in (-15, -9)
        victim.stdout.close()
    said = undo(bench.state, "0001")
    assert all("cannot be taken back" in line for line in said)
    assert len(said) == 2


def test_names_of_distributions() -> None:
    assert normal("Nvidia_ML.py") == "nvidia-ml-py"


def test_driver_says_what_it_did(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "start-0.sh").write_text("export X=1\nvllm serve m --port 8000\n")
    (work / "old.txt").write_text("old\n")
    fix_driver.main("apply", tmp_path)
    assert (work / "start-0.sh").read_text() == "vllm serve m --port 9000\n"
    fix_driver.main("undo", tmp_path)
    assert (work / "start-0.sh").read_text() == "export X=1\nvllm serve m --port 8000\n"
