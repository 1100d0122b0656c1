"""JUnit: red exactly when the exit code is not 0, and parseable whatever the texts hold."""

import dataclasses
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import reports

from infer_doctor.model import Report
from infer_doctor.render.junit import render
from infer_doctor.report import verdict_of


def suites(report: Report, **policy: Any) -> ElementTree.Element:
    return ElementTree.fromstring(render(report, **policy))


@pytest.mark.parametrize("fail_on", ["error", "warning"])
@pytest.mark.parametrize("folder", reports.CASES, ids=lambda folder: folder.name)
def test_the_file_is_red_when_the_verdict_is_not_pass(folder: Path, fail_on: Any) -> None:
    report = reports.case(folder)
    for required in ((), {row.check for row in report.results}):
        root = suites(report, fail_on=fail_on, required=required)
        red = int(root.attrib["failures"]) + int(root.attrib["errors"])
        verdict = verdict_of(report.results, fail_on, required)
        assert (red > 0) == (verdict != "pass")


@pytest.mark.parametrize("folder", reports.CASES, ids=lambda folder: folder.name)
def test_the_counts_are_those_of_the_elements(folder: Path) -> None:
    report = reports.case(folder)
    root = suites(report)
    assert int(root.attrib["tests"]) == len(root.findall(".//testcase")) == len(report.results)
    for name, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(root.attrib[name]) == len(root.findall(f".//testcase/{element}"))
        for suite in root.findall("testsuite"):
            assert int(suite.attrib[name]) == len(suite.findall(f"testcase/{element}"))


def test_hostile_text_stays_text() -> None:
    root = suites(reports.hostile())
    assert {element.tag for element in root.iter()} == {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "skipped",
        "system-out",
    }
    (failure,) = root.findall(".//failure")
    assert "<script>window.pwned=1</script>" in str(failure.text)


def test_a_warning_below_the_limit_is_output_of_a_green_case() -> None:
    report = reports.hostile()
    (case,) = suites(report).findall(".//testcase[@name='gpu-none']")
    assert [child.tag for child in case] == ["system-out"]
    (case,) = suites(report, fail_on="warning").findall(".//testcase[@name='gpu-none']")
    assert [child.tag for child in case] == ["failure"]


def test_what_was_required_and_is_undecided_is_an_error() -> None:
    report = dataclasses.replace(reports.hostile(), verdict="unknown")
    (case,) = suites(report, required={"driver-too-old"}).findall(
        ".//testcase[@name='driver-too-old']"
    )
    assert [child.tag for child in case] == ["error"]
