"""The settings file, suppressions and the baseline: what counts and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import reports
from doctor_process import Run

from infer_doctor.commands.common import FORMATS
from infer_doctor.config import BadConfig, find

SNAPSHOT = str(reports.CASES[reports.NAMES.index("h200-x2-orphan")] / "snapshot.json")
CHECK = ("check", "--snapshot", SNAPSHOT)
HELD = "gpu-memory-held"


def suppression(**fields: str) -> str:
    rows = {"check": f'"{HELD}"', "reason": '"known"', **fields}
    return "[[suppress]]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items() if value)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def write(run: Run, text: str, name: str = "infer-doctor.toml") -> None:
    (run.home / name).write_text(text)


def report_of(run: Run, code: int, *words: str) -> dict[str, Any]:
    done = run(*CHECK, "--format", "json", *words)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_it_the_error_counts(run: Run) -> None:
    report = report_of(run, 1)
    assert report["primary"]["check"] == HELD
    assert report["primary"]["suppressed"] is None


@pytest.mark.parametrize(
    ("name", "table"), [("infer-doctor.toml", ""), ("pyproject.toml", "tool.infer-doctor.")]
)
def test_a_suppressed_finding_does_not_count_and_is_shown(name: str, table: str, run: Run) -> None:
    write(run, suppression().replace("[[suppress", f"[[{table}suppress"), name)
    report = report_of(run, 0)
    assert report["counts"]["error"] == 0
    assert report["primary"]["check"] != HELD
    (finding,) = [f for row in report["results"] for f in row["findings"] if f["check"] == HELD]
    assert finding["suppressed"] == "known"
    text = run(*CHECK).stdout
    assert f"suppressed: {HELD}" in " ".join(text.split())
    assert "FAIL" not in text


@pytest.mark.parametrize("format", FORMATS)
def test_every_form_shows_it_and_has_the_same_exit_code(format: str, run: Run) -> None:
    write(run, suppression(reason='"a known orphan"'))
    done = run(*CHECK, "--format", format)
    assert done.returncode == 0
    assert "a known orphan" in " ".join(done.stdout.split())
    if format == "junit":
        assert 'failures="0"' in done.stdout
    if format == "sarif":
        results = json.loads(done.stdout)["runs"][0]["results"]
        (hidden,) = [row for row in results if row["ruleId"] == HELD]
        assert hidden["suppressions"] == [{"kind": "external", "justification": "a known orphan"}]


def test_by_fingerprint_and_by_glob(run: Run) -> None:
    fingerprint = report_of(run, 1)["primary"]["fingerprint"]
    write(run, suppression(check="", fingerprint=f'"{fingerprint}"'))
    report_of(run, 0)
    write(run, suppression(check='"gpu-*"'))
    report_of(run, 0)
    write(run, suppression(check='"gpu"'))
    report_of(run, 1)


def test_an_expired_one_counts_again_and_is_said(run: Run) -> None:
    write(run, suppression(expires="2020-01-31"))
    done = run(*CHECK)
    assert done.returncode == 1
    assert f"the suppression of {HELD} ended on 2020-01-31" in done.stderr
    write(run, suppression(expires="2999-01-31"))
    done = run(*CHECK)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_what_is_new_counts_with_a_baseline(run: Run) -> None:
    known = run.home / "known.json"
    known.write_text(run(*CHECK, "--format", "json").stdout)
    report = report_of(run, 0, "--baseline", str(known), "--fail-on", "warning")
    assert report["counts"]["error"] == report["counts"]["warning"] == 0
    assert report["primary"] is None
    document = json.loads(known.read_text())
    for row in document["results"]:
        row["findings"] = [f for f in row["findings"] if f["check"] != HELD]
    known.write_text(json.dumps(document))
    report = report_of(run, 1, "--baseline", str(known))
    assert report["counts"]["error"] == 1
    write(run, 'baseline = "known.json"\nfail-on = "error"\n')
    folder = run.home / "deeper"
    folder.mkdir()
    done = run.start(*CHECK, "--format", "json", cwd=folder)
    out, _ = done.communicate(timeout=60)
    assert json.loads(out)["counts"]["error"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"results": [1]}', "no json"])
def test_what_is_no_baseline(text: str, run: Run) -> None:
    (run.home / "x.json").write_text(text)
    done = run(*CHECK, "--baseline", "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no JSON report of infer-doctor" in done.stderr


def test_options_of_the_file_and_what_is_stronger(run: Run) -> None:
    write(
        run, 'select = "gpu-*"\nformat = "json"\nfail-on = "warning"\ntimeout = 9\nmax_size = 3\n'
    )
    done = run(*CHECK)
    report = json.loads(done.stdout)
    assert {row["check"].partition("-")[0] for row in report["results"]} == {"gpu"}
    done = run(*CHECK, "--format", "text", "--select", "driver-*")
    assert "1 error" not in done.stdout
    strong = Run(run.home, {"INFER_DOCTOR_SELECT": "driver-*"})
    report = json.loads(strong(*CHECK).stdout)
    assert {row["check"].partition("-")[0] for row in report["results"]} == {"driver"}


def test_preflight_takes_it_too(run: Run) -> None:
    write(
        run,
        'select = ["gpu-none", "driver-missing", "engine-not-installed"]\nfail-on = "warning"\n',
    )
    assert run("preflight", "--", "true").returncode == 1
    write(run, 'fail-on = "warning"\nselect = ["engine-not-installed"]\nwarn-only = true\n')
    assert run("preflight", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fail-on = ", "Invalid value"),
        ("no-such = 1", "there is no option 'no_such'"),
        ("suppress = 1", "write suppressions as [[suppress]]"),
        (suppression(reason=""), "suppression 1 needs a reason"),
        (suppression(reason='" "'), "reason is no text"),
        (suppression(check=""), "needs either check or fingerprint"),
        (suppression(fingerprint='"0"'), "needs either check or fingerprint"),
        (suppression(expires='"soon"'), "expires is no date"),
        (suppression(until="1"), "has no 'until'"),
    ],
)
def test_mistakes_are_one_sentence(text: str, words: str, run: Run) -> None:
    write(run, text)
    done = run(*CHECK)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_foreign_pyproject_is_left_alone(run: Run) -> None:
    for text in ("not toml [", "[tool.ruff]\n", "tool = 1\n"):
        write(run, text, "pyproject.toml")
        assert run(*CHECK).returncode == 1


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "infer-doctor.toml").write_text("timeout = 5\n")
    found = find(str(inner))
    assert found and found.options == {"timeout": 5}
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.infer-doctor]\ntimeout = 6\n")
    found = find(str(inner))
    assert found and found.options == {"timeout": 6}


def test_a_settings_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "infer-doctor.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(BadConfig, match="too many"):
        find(str(tmp_path))
