"""SARIF: valid by the official schema, and what GitHub needs to show it."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
import reports

from infer_doctor.model import Report
from infer_doctor.registry import load
from infer_doctor.render.sarif import render, uri

SCHEMA = json.loads(
    (Path(__file__).parents[1] / "schemas" / "sarif-2.1.0.json").read_text(encoding="utf-8-sig")
)


def run_of(report: Report) -> dict[str, Any]:
    """The run, after the schema was kept."""
    document = json.loads(render(report, load().checks))
    jsonschema.Draft202012Validator(
        SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    ).validate(document)
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


@pytest.mark.parametrize("folder", reports.CASES, ids=lambda folder: folder.name)
def test_a_captured_machine(folder: Path) -> None:
    report = reports.case(folder)
    run = run_of(report)
    findings = [finding for row in report.results for finding in row.findings]
    assert len(run["results"]) == len(findings)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [row.check for row in report.results]
    for rule in rules:
        assert "## How it decides" in rule["help"]["markdown"]
    undecided = [row for row in report.results if row.outcome in ("blocked", "crashed")]
    (invocation,) = run["invocations"]
    assert len(invocation["toolExecutionNotifications"]) == len(undecided)
    assert invocation["exitCode"] == {"pass": 0, "fail": 1, "unknown": 3}[report.verdict]


@pytest.mark.parametrize("name", ["hostile", *reports.NAMES])
def test_every_result_has_a_place_and_its_rule(name: str) -> None:
    run = run_of(reports.named(name))
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert urlsplit(physical["artifactLocation"]["uri"]).path
        assert physical["region"]["startLine"] >= 1
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["partialFingerprints"]


def test_a_crash_is_an_error_of_the_run() -> None:
    (invocation,) = run_of(reports.hostile())["invocations"]
    assert invocation["executionSuccessful"] is False
    levels = [row["level"] for row in invocation["toolExecutionNotifications"]]
    assert levels == ["note", "error"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/a b/ü%.log", "file:///a%20b/%C3%BC%25.log"),
        ("//server/x", "file:///server/x"),
        ("serve.log", "serve.log"),
        ("NVML: GPU 0", "NVML%3A%20GPU%200"),
        ("", "unknown"),
        ("/m/\udcff", "file:///m/%FF"),
        ("half \ud800", "half%20%5Cud800"),
    ],
)
def test_uris(source: str, expected: str) -> None:
    assert uri(source) == expected


def test_the_schema_refuses_what_is_no_sarif() -> None:
    document = json.loads(render(reports.hostile(), load().checks))
    del document["runs"][0]["tool"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)
