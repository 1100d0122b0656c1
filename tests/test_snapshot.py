"""Recording and replaying: the same report, without what must not leave the machine."""

import copy
import ctypes
import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doctor_process import Run

from infer_doctor.cli import run as command_line
from infer_doctor.examine import Examination
from infer_doctor.live import LiveHost
from infer_doctor.registry import load
from infer_doctor.render.json import render
from infer_doctor.report import build
from infer_doctor.snapshot import write

CLONE_NEWUTS = 0x04000000
HOST = "gpu-node-17.corp.example"

SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrStUvWx",
    "VLLM_API_KEY": "correct-horse-battery",
    "HUGGING_FACE_HUB_TOKEN": "hf_ZyXwVuTsRqPoNmLkJiHgFeDc",
}
PLANTED = {
    **SECRETS,
    "HOME": "/home/alice",
    "HTTPS_PROXY": "http://proxyuser:hunter2secret@proxy.corp.example:3128",
    "HF_HOME": "/home/bobby/models",
    "VLLM_CACHE_ROOT": "/home/alice/cache/vllm",
    "PATH": "/home/carol/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/Users/dorothy/lib",
    "MASTER_ADDR": HOST,
    "VLLM_HOST_IP": "10.77.88.99",
}
HIDDEN = (*SECRETS.values(), "alice", "bobby", "carol", "dorothy", "hunter2secret", "proxyuser")


def masked(report: str) -> str:
    """The report without what differs from run to run."""
    times = r'"(started_at)": "[^"]*"|"(duration_s|duration_ms)": [0-9.e+-]+'
    return re.sub(times, lambda found: f'"{found[1] or found[2]}": 0', report)


def rename_host() -> None:
    """Give the process a host name of its own (root only)."""
    if ctypes.CDLL(None).unshare(CLONE_NEWUTS) != 0:
        os._exit(99)
    socket.sethostname(HOST)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of this machine with planted secrets, taken by the command."""
    folder = tmp_path_factory.mktemp("snapshot")
    hostname = rename_host if os.geteuid() == 0 else None
    ended = Run(folder, PLANTED)("snapshot", "-o", "host.json", preexec_fn=hostname)
    assert ended.returncode == 0, ended.stderr
    return folder / "host.json"


class TestReplay:
    def test_gives_the_report_of_the_live_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One run, reported live and out of its snapshot."""
        registry = load()
        for name, value in PLANTED.items():
            if name not in ("PATH", "LD_LIBRARY_PATH"):
                monkeypatch.setenv(name, value)

        def report(examination: Examination) -> str:
            results = examination.run(registry.checks.values())
            return render(
                build(
                    command="check",
                    version="1",
                    started_at="",
                    duration_s=0.0,
                    subjects=examination.subjects,
                    results=results,
                    fail_on="error",
                    required=(),
                    launch=(),
                    redactor=examination.redactor,
                    redactions=examination.redactions,
                )
            )

        with LiveHost() as host:
            live = Examination.of(registry, host=host)
            said = report(live)
        text = write(live.captures, version="1", created_at="", python=None)
        (tmp_path / "host.json").write_text(text)
        replayed = report(Examination.of(registry, snapshot=str(tmp_path / "host.json")))
        assert masked(replayed) == masked(said)

    def test_is_the_same_on_another_machine(self, recorded: Path, tmp_path: Path) -> None:
        words = ("check", "--snapshot", str(recorded), "--format", "json")
        here = Run(tmp_path, PLANTED)(*words)
        there = Run(tmp_path, {"HF_TOKEN": "hf_another", "CUDA_VISIBLE_DEVICES": "7"})(*words)
        nowhere = Run(tmp_path)(*words, env={})
        assert here.stderr == there.stderr == nowhere.stderr == ""
        assert masked(here.stdout) == masked(there.stdout) == masked(nowhere.stdout)

    def test_holds_what_the_live_check_says(self, tmp_path: Path) -> None:
        """Two live runs may differ in figures that change, not in what they decide."""
        run = Run(tmp_path, PLANTED)
        live = json.loads(run("check", "--format", "json").stdout)
        run("snapshot", "-o", "host.json")
        again = json.loads(run("check", "--snapshot", "host.json", "--format", "json").stdout)

        def decided(report: dict[str, Any]) -> list[Any]:
            return [
                (
                    row["check"],
                    row["outcome"],
                    [finding["fingerprint"] for finding in row["findings"]],
                )
                for row in report["results"]
            ]

        assert decided(again) == decided(live)
        assert again["verdict"] == live["verdict"]
        assert again["target"] == live["target"]
        assert again["redactions"] == live["redactions"]

    def test_answers_no_live_question(self, recorded: Path, tmp_path: Path) -> None:
        """A question that was not asked stays without an answer."""
        document = json.loads(recorded.read_text())
        document["captures"] = []
        (tmp_path / "empty.json").write_text(json.dumps(document))
        ended = Run(tmp_path)("check", "--snapshot", "empty.json", "--format", "json")
        rows = json.loads(ended.stdout)["results"]
        assert {row["outcome"] for row in rows} <= {"blocked", "not_applicable"}
        given = {row["reason"] for row in rows if row["outcome"] == "not_applicable"}
        needs = (need.fact for check in load().checks.values() for need in check.needs)
        told = {getattr(fact, "infer_doctor_given", "no launch was given") for fact in needs}
        assert given <= told


@pytest.fixture(scope="module")
def texts(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Everything that leaves the machine, by name."""
    folder = tmp_path_factory.mktemp("reports")
    hostname = rename_host if os.geteuid() == 0 else None
    launch = ["--", "vllm", "serve", "/home/alice/m", "--api-key", SECRETS["VLLM_API_KEY"]]
    found = {"snapshot": recorded.read_text()}
    for form in ("text", "json"):
        words = ["check", "--format", form]
        live = Run(folder, PLANTED)(*words, *launch, preexec_fn=hostname)
        replay = Run(folder)(*words, "--snapshot", str(recorded))
        found |= {f"live {form}": live.stdout, f"replay {form}": replay.stdout}
    return found


class TestSecrets:
    @pytest.mark.parametrize("word", HIDDEN)
    def test_planted_words_are_gone(self, word: str, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            assert len(text) > 100, name
            assert word not in text, name

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to rename the host")
    @pytest.mark.parametrize("word", [HOST, "gpu-node-17"])
    def test_host_name_is_gone(self, word: str, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            assert word not in text, name
        assert "<host:1>" in texts["snapshot"]

    def test_address_is_masked_in_the_snapshot(self, texts: dict[str, str]) -> None:
        assert "10.77.88.99" not in texts["snapshot"]

    def test_what_decides_is_kept(self, recorded: Path) -> None:
        """Presence, places under the home folder, the form of the proxy."""
        document = json.loads(recorded.read_text())
        (environ,) = (row for row in document["captures"] if row["operation"] == "environ")
        variables = environ["value"]["variables"]
        assert set(SECRETS) <= variables.keys()
        assert variables["VLLM_CACHE_ROOT"] == "~/cache/vllm"
        assert re.fullmatch(r"http://<credentials:\d+>@\S+:3128", variables["HTTPS_PROXY"])
        assert {"kind": "token", "count": 3} in document["redactions"]


Change = Callable[[bytes], bytes]

BAD: dict[str, tuple[Change, str]] = {
    "empty": (lambda data: b"", "is empty"),
    "blank": (lambda data: b" \n\n", "is empty"),
    "binary": (lambda data: bytes(range(256)) * 4, "is binary"),
    "not JSON": (lambda data: b"infer-doctor 0.1.0 check\n", "not valid JSON"),
    "other JSON": (lambda data: b"[1, 2]", "no snapshot"),
    "report": (lambda data: b'{"schema_version": 1, "command": "check"}', "no snapshot"),
    "deep": (lambda data: b"[" * 1_000_000, "not valid JSON"),
    "not UTF-8": (lambda data: data.replace(b"captures", b"capt\xff\xfe"), "not valid JSON"),
    "older form": (lambda d: d.replace(b'"schema_version": 1', b'"schema_version": 0'), "reads 1"),
    "newer form": (lambda d: d.replace(b'"schema_version": 1', b'"schema_version": 2'), "reads 1"),
    "long number": (
        lambda d: d.replace(b'"schema_version": 1', b'"schema_version": 1' + b"0" * 9999),
        "",
    ),
}


def refused(path: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and one line that names the file."""
    assert command_line(["check", "--snapshot", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith(f"infer-doctor: {path}: ")
    assert words in line
    assert len(line) < 400 + len(str(path))


def test_text_that_is_no_unicode_is_written_all_the_same(recorded: Path, tmp_path: Path) -> None:
    """A lone surrogate, as JSON may hold it."""
    document = json.loads(recorded.read_text())
    (identity,) = (row for row in document["captures"] if row["operation"] == "identity")
    identity["value"]["kernel"] = "6.1\udcff"
    (tmp_path / "odd.json").write_text(json.dumps(document))
    ended = Run(tmp_path)("check", "--snapshot", "odd.json", "--output", "report")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "6.1\\udcff" in (tmp_path / "report").read_text()


class TestBad:
    @pytest.mark.parametrize("name", BAD)
    def test_file_is_refused_in_one_line(
        self, name: str, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        change, words = BAD[name]
        (tmp_path / "bad.json").write_bytes(change(recorded.read_bytes()))
        refused(tmp_path / "bad.json", words, capsys)

    def test_missing_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        refused(tmp_path / "none.json", "No such file", capsys)

    def test_folder(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        refused(tmp_path, "folder", capsys)

    def test_pipe_without_a_writer(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        refused(tmp_path / "pipe", "is a pipe that nobody writes into", capsys)

    def test_device(self, capsys: pytest.CaptureFixture[str]) -> None:
        refused(Path("/dev/zero"), "no regular file", capsys)

    def test_gibibyte_of_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with (tmp_path / "huge.json").open("wb") as file:
            file.truncate(1 << 30)
        refused(tmp_path / "huge.json", "1,073,741,824 bytes are too many", capsys)

    def test_cut_anywhere(
        self, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = recorded.read_bytes().rstrip()
        for part in range(1, 60):
            path = tmp_path / f"{part}.json"
            path.write_bytes(data[: len(data) * part // 60])
            refused(path, "not valid JSON", capsys)
        path.write_bytes(data[:-1])
        refused(path, "not valid JSON", capsys)

    def test_as_a_process(self, tmp_path: Path) -> None:
        (tmp_path / "bad.json").write_text("{")
        ended = Run(tmp_path)("check", "--snapshot", "bad.json")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert len(ended.stderr.splitlines()) == 1


WRONG: tuple[Any, ...] = (None, True, 7, -1.5, "word", [], [1], {}, {"a": 1})


def envelopes(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the file's own form, with a name: the top, the tool, a capture, ..."""
    yield "file", document
    yield "tool", document["tool"]
    yield "options", document["options"]
    yield "redaction", document["redactions"][0]
    answered = next(row for row in document["captures"] if "value" in row)
    failed = next(row for row in document["captures"] if "error" in row)
    yield "capture", answered
    yield "failed capture", failed
    yield "error", failed["error"]


def same_kind(value: Any, other: Any) -> bool:
    """Whether a field that holds `value` may hold `other`."""
    numbers = (int, float)
    if type(value) in numbers:
        return type(other) in numbers
    return type(value) is type(other)


def test_wrong_type_in_every_field(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = json.loads(recorded.read_text())
    path = tmp_path / "bad.json"
    seen = 0
    for name, envelope in list(envelopes(original)):
        for key, value in list(envelope.items()):
            for wrong in WRONG:
                if same_kind(value, wrong) or (name, key) == ("options", "python"):
                    continue
                envelope[key] = wrong
                path.write_text(json.dumps(original))
                refused(path, "", capsys)
                seen += 1
            envelope[key] = value
    assert seen > 100


def test_field_that_is_not_there(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original = json.loads(recorded.read_text())
    path = tmp_path / "bad.json"
    for _, envelope in list(envelopes(original)):
        for key, value in list(envelope.items()):
            if key == "machine":  # added later: older files have none
                continue
            del envelope[key]
            path.write_text(json.dumps(original))
            refused(path, "", capsys)
            envelope[key] = value


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value inside a value."""
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
    if isinstance(value, list):
        for index, item in enumerate(value[:2]):
            yield from leaves(item, (*place, index))


def test_wrong_type_in_every_answer(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer that no child gives: whatever comes of it, no traceback and no false `passed`."""
    original = json.loads(recorded.read_text())
    path = tmp_path / "bad.json"
    for number, row in enumerate(original["captures"]):
        for place in leaves(row.get("value", {})):
            if not place:
                continue
            document = copy.deepcopy(original)
            holder = document["captures"][number]["value"]
            for key in place[:-1]:
                holder = holder[key]
            holder[place[-1]] = {"unexpected": [None]}
            path.write_text(json.dumps(document))
            assert command_line(["check", "--snapshot", str(path)]) in (0, 1)
            captured = capsys.readouterr()
            assert captured.err == ""
            assert "Traceback" not in captured.out
