"""The committed schema is that of the types, and real reports keep it."""

import copy
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from doctor_process import Run
from memory_starts import plan_of_start

from infer_doctor.memory.report import wire as wire_of_plan
from infer_doctor.model import (
    Action,
    CheckResult,
    Counts,
    Engine,
    Evidence,
    Finding,
    Fix,
    Redaction,
    Report,
    Target,
    Tool,
)
from infer_doctor.render.json import render, to_wire

DOCS = Path(__file__).parent.parent / "docs"


def make_schema() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_schema", DOCS / "make_schema.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def schema() -> Any:
    """The committed one."""
    found = json.loads((DOCS / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def full_report() -> dict[str, Any]:
    """A report with something in every field."""
    fix = Fix(
        id="update-driver",
        title="Install driver 580",
        safety="manual",
        restarts=True,
        why="because",
        actions=(Action(kind="command", text="apt install"), Action(kind="text", text="reboot")),
    )
    finding = Finding(
        about="driver",
        message="the driver is too old",
        evidence=(Evidence(source="/proc/x", line=1, excerpt="535"), Evidence(source="NVML")),
        fixes=(fix,),
        severity="error",
        confidence="likely",
        category="driver_cuda",
        check="driver-too-old",
        subject="host",
        fingerprint="0123456789abcdef",
    )
    failed = CheckResult(
        check="driver-too-old",
        subject="host",
        outcome="failed",
        reason=None,
        duration_ms=0.1,
        findings=(finding,),
    )
    blocked = CheckResult(
        check="gpu-none", subject="host", outcome="blocked", reason="timeout", duration_ms=0.0
    )
    report = Report(
        tool=Tool(name="infer-doctor", version="0.1.0"),
        command="check",
        started_at="2026-01-01T00:00:00Z",
        duration_s=0.2,
        target=Target(
            host={"hostname": "<host:1>"},
            engine=Engine(name="vllm", version=None),
            launch=("vllm", "serve"),
        ),
        verdict="fail",
        counts=Counts(error=1, failed=1, blocked=1),
        primary=finding,
        results=(failed, blocked),
        fixes=(fix,),
        plan=wire_of_plan(plan_of_start("fit-8b-default")),
        measurements={},
        redactions=(Redaction(kind="token", count=2),),
        facts={"host": {}},
    )
    wire: dict[str, Any] = json.loads(render(report))
    assert wire == json.loads(json.dumps(to_wire(report)))
    return wire


def test_committed_file_is_current() -> None:
    assert (DOCS / "report.schema.json").read_text() == make_schema().text()


def test_full_report_keeps_it(schema: Any) -> None:
    jsonschema.validate(full_report(), schema)


@pytest.mark.parametrize("words", [(), ("--", "vllm", "serve", "model", "-tp", "2")])
def test_report_of_this_machine_keeps_it(
    words: tuple[str, ...], schema: Any, tmp_path: Path
) -> None:
    jsonschema.validate(Run(tmp_path).report(*words), schema)


def test_report_of_a_captured_machine_keeps_it(schema: Any, tmp_path: Path, two_gpus: Path) -> None:
    report = Run(tmp_path, {"LD_LIBRARY_PATH": str(two_gpus)}).report()
    jsonschema.validate(report, schema)


CHANGES: list[tuple[str, Any]] = [
    ("schema_version", 2),
    ("verdict", "maybe"),
    ("counts", {}),
    ("primary", {}),
    ("results", [{}]),
    ("fixes", ["update-driver"]),
    ("tool", None),
    ("duration_s", "0.2"),
]


@pytest.mark.parametrize(("key", "value"), CHANGES)
def test_what_breaks_the_contract_is_refused(key: str, value: Any, schema: Any) -> None:
    report = full_report()
    report[key] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)


def test_no_field_may_be_missing(schema: Any) -> None:
    report = full_report()
    for key in report:
        part = copy.deepcopy(report)
        del part[key]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(part, schema)


def test_a_finding_names_fixes_by_their_ids(schema: Any) -> None:
    report = full_report()
    finding = report["results"][0]["findings"][0]
    assert finding["fixes"] == [fix["id"] for fix in report["fixes"]]
    finding["fixes"] = report["fixes"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, schema)
