"""No planted secret leaves in any form, and nothing else is masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reports
import secrets_planted
from secrets_planted import FOUND, KEPT, Planted

from infer_doctor import secret_forms
from infer_doctor.commands.common import FORMATS, document
from infer_doctor.engine import Subject, run
from infer_doctor.frozen import frozen
from infer_doctor.host import Capture
from infer_doctor.model import Action, Evidence, Finding, Fix
from infer_doctor.redact import Redactor
from infer_doctor.registry import Registry, check
from infer_doctor.render.text import render as render_text
from infer_doctor.report import build
from infer_doctor.snapshot import write

PIECE = 16
"""Characters of a long secret of which none may be left in a row at its ends."""


@frozen
class Texts:
    """A fact that holds what was planted."""

    texts: tuple[str, ...]
    rows: tuple[dict[str, str], ...]


@check("test-planted", severity="error", category="security", since="0.1")
def planted(texts: Texts) -> Iterator[Finding]:
    """Everything stands in every field.

    ## Why it matters
    ## How it decides
    ## Fix safety
    """
    for number, text in enumerate(texts.texts):
        fix = Fix(
            id=f"fix-{number}",
            title=text,
            safety="manual",
            restarts=False,
            why=text,
            actions=(Action(kind="command", text=text), Action(kind="text", text=text)),
        )
        yield Finding(
            about=text,
            message=text,
            evidence=(Evidence(source=text, line=1, excerpt=text),),
            fixes=(fix,),
        )


def left(output: str, planted: Planted) -> bool:
    """Whether the secret, or an end of a long one, is still there."""
    secret = planted.secret
    parts = {secret}
    if len(secret) >= 2 * PIECE:
        parts |= {secret[:PIECE], secret[-PIECE:]}
    return any(part in output for part in parts)


def captures() -> list[Capture]:
    texts = [row.text for row in FOUND]
    identity = {"hostname": "mephisto-gpu-04.example.org"}
    variables = {"HF_TOKEN": "abc", "USER": "wagner", "HOME": "/home/wagner"}
    command = ["vllm", "serve", "m", "--api-key", "k1-of-a-list", "k2-of-a-list", "--port", "8000"]
    return [
        Capture(operation="identity", arguments={}, version=1, value=identity),
        Capture(operation="environ", arguments={}, version=1, value={"variables": variables}),
        *(
            Capture(operation="read", arguments={"path": "/x"}, version=1, value={"text": text})
            for text in texts
        ),
        Capture(operation="processes", arguments={}, version=1, value={"1": {"command": command}}),
        Capture(
            operation="read",
            arguments={"path": "/all"},
            version=1,
            value={"text": "\n\n".join(texts)},
        ),
    ]


@pytest.fixture(scope="module")
def outputs() -> dict[str, str]:
    """The report in every form, and the snapshot."""
    kept = captures()
    redactor = Redactor(kept)
    rows = (
        {"name": "DB_PASSWORD", "value": "pw-x"},
        {"api_key": "ak-y"},
        {"Serial": "1654922099999"},
    )
    facts = Texts(texts=tuple(row.text for row in FOUND), rows=rows)
    subject = Subject("host", Registry(), host=None, given=[facts])
    results = run([planted.infer_doctor_check], subject)  # type: ignore[attr-defined]
    report = build(
        command="check",
        version="0.1.0",
        started_at="2026-01-02T03:04:05Z",
        duration_s=0.1,
        subjects=[subject],
        results=results,
        fail_on="error",
        required=(),
        launch=None,
        redactor=redactor,
        redactions=redactor.redactions,
    )
    found = {form: document(report, form) for form in FORMATS if form != "text"}
    found["text"] = "\n".join(line.text for line in render_text(report, 1000))
    found["snapshot"] = write(kept, version="0.1.0", created_at="2026-01-02T03:04:05Z", python=None)
    return found


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(FOUND) >= 60
    assert len({row.kind for row in FOUND}) >= 20
    assert len({row.secret for row in FOUND}) == len(FOUND)
    assert all(row.secret in row.text for row in FOUND)


@pytest.mark.parametrize("row", FOUND, ids=lambda row: row.kind.replace(" ", "-"))
def test_a_text_alone_is_masked(row: Planted) -> None:
    masked = secret_forms.mask(row.text, lambda kind, _: f"<{kind}>")
    assert not left(masked, row), masked


@pytest.mark.parametrize("form", [*FORMATS, "snapshot"])
def test_none_survives_in_any_form(form: str, outputs: dict[str, str]) -> None:
    assert [row for row in FOUND if left(outputs[form], row)] == []
    others = ("pw-x", "ak-y", "1654922099999", "mephisto-gpu-04", "wagner", "-of-a-list")
    for secret in others:
        assert secret not in outputs[form], secret


def test_each_kind_is_counted(outputs: dict[str, str]) -> None:
    report = json.loads(outputs["json"])
    counts = {row["kind"]: row["count"] for row in report["redactions"]}
    assert counts.keys() >= {
        "token",
        "credentials",
        "key",
        "user",
        "host",
        "mac",
        "ip",
        "serial",
        "email",
    }
    assert counts["mac"] == 3
    assert counts["serial"] >= 2
    assert counts["key"] >= 3
    assert counts["token"] >= 40


def test_what_stands_only_in_the_report_is_counted_too() -> None:
    redactor = Redactor([])
    subject = Subject(
        "host", Registry(), host=None, given=[Texts(texts=("api_key: purple-1",), rows=())]
    )
    report = build(
        command="check",
        version="0.1.0",
        started_at="2026-01-02T03:04:05Z",
        duration_s=0.1,
        subjects=[subject],
        results=run([planted.infer_doctor_check], subject),  # type: ignore[attr-defined]
        fail_on="error",
        required=(),
        launch=None,
        redactor=redactor,
        redactions=redactor.redactions,
    )
    assert [(row.kind, row.count) for row in report.redactions] == [("token", 1)]


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert secret_forms.mask(text, lambda kind, value: f"<{kind}:{value}>".upper()) in (
        text,
        text.replace("0.0.0.0:8000", "<IP:0.0.0.0>:8000").replace("127.0.0.1", "<IP:127.0.0.1>"),
    )
    assert Redactor([]).text(text) == text


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
            if isinstance(item, str):
                yield f"{key}: {item}"
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


@pytest.mark.parametrize("name", reports.NAMES)
def test_nothing_of_the_captured_machines_is_masked(name: str) -> None:
    """Their snapshots were masked when they were written: whatever goes now goes by mistake."""
    path = reports.CASES[reports.NAMES.index(name)] / "snapshot.json"
    snapshot = json.loads(path.read_text())
    replaced: list[tuple[str, str]] = []

    def note(kind: str, value: str) -> str:
        if not value.startswith(("127.", "0.0.0.0")):
            replaced.append((kind, value))
        return value

    for text in strings(snapshot["captures"]):
        secret_forms.mask(text, note)
    secret_forms.mask("\n".join(strings(snapshot["captures"])), note)
    assert replaced == []


CAPTURES = Path(__file__).parent / "captures"
TEXTS = sorted(path for path in CAPTURES.rglob("*.txt"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captured_outputs_lose_only_serial_numbers_and_hosts(path: Path) -> None:
    """Of the host only the name that stands in front of a line of a log, or user@host of a prompt."""
    text = path.read_text(errors="replace")
    replaced: list[tuple[str, str]] = []

    def note(kind: str, value: str) -> str:
        replaced.append((kind, value))
        return value

    secret_forms.mask(text, note)
    assert {kind for kind, _ in replaced} <= {"serial", "host", "user"}, replaced
    assert {value for kind, value in replaced if kind == "user"} <= {"user"}
    assert all(value in text for _, value in replaced)


def test_as_many_gpus_as_before() -> None:
    text = (CAPTURES / "h200-x2" / "nvidia-smi-q.txt").read_text()
    pattern = r"GPU-[0-9a-f-]{36}"
    masked = Redactor([]).text(text)
    assert re.findall(pattern, masked) == re.findall(pattern, text) != []


def test_masks_are_not_masked_again() -> None:
    redactor = Redactor(captures())
    once = [redactor.text(row.text) for row in FOUND]
    assert [Redactor([]).text(text) for text in once] == once


def test_what_one_file_names_is_masked_in_another() -> None:
    redactor = Redactor([])
    redactor.learn("api_key: purple-monkey-dishwasher")
    assert "purple" not in redactor.text("request with key purple-monkey-dishwasher refused")


def test_a_log_with_a_key_in_each_line_is_masked_in_all_files() -> None:
    keys = [f"purple-monkey-{number}" for number in range(30_000)]
    redactor = Redactor([])
    redactor.learn("".join(f"?api_key={key} 200\n" for key in keys))
    masked = redactor.text("".join(f"refused: {key}\n" for key in keys))
    assert "purple" not in masked
    assert masked.count("<token:") == len(keys)
    assert redactor.redactions[0].count == len(keys)


def test_a_secret_within_another_leaves_nothing_of_it() -> None:
    redactor = Redactor([])
    redactor.learn("password: 'dishwash1'\npassword: 'dishwash1-and-more'\n")
    assert redactor.text("dishwash1-and-more, dishwash1") == "<token:2>, <token:1>"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MASTER_ADDR", "headnode-3.hpc.example.org", "<host:1>"),
        ("HTTPS_PROXY", "http://proxy.corp.example:3128", "http://<host:1>:3128"),
        (
            "NO_PROXY",
            "localhost,127.0.0.1,.corp.example,10.0.0.0/8",
            "localhost,127.0.0.1,.<host:1>,<ip:1.1>/8",
        ),
        ("HF_ENDPOINT", "https://hf-mirror.com", "https://hf-mirror.com"),
        ("VLLM_HOST_IP", "0.0.0.0", "0.0.0.0"),
        ("SLURM_JOB_NODELIST", "gpu[01-04],gpu07", "<host:1>"),
        ("SLURMD_NODENAME", "gpu-07", "<host:1>"),
        ("SLURM_JOB_USER", "wagner", "<user:1>"),
    ],
)
def test_variables_that_name_machines(name: str, value: str, expected: str) -> None:
    capture = Capture(
        operation="environ", arguments={}, version=1, value={"variables": {name: value}}
    )
    redactor = Redactor([capture])
    assert redactor.capture(capture).value == {"variables": {name: expected}}


def test_every_kind_of_the_forms_is_planted() -> None:
    seen: set[str] = set()
    for row in secrets_planted.FOUND:
        secret_forms.mask(row.text, lambda kind, value: seen.add(kind) or value)  # type: ignore[func-returns-value]
    assert seen == {kind for kind, _, _ in secret_forms.FORMS} | {"key", "mac", "ip"}
