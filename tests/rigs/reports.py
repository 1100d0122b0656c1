"""Reports to render: of captured machines, and one in which every text is hostile."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from infer_doctor.examine import Examination
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
from infer_doctor.registry import load
from infer_doctor.report import build

CASES = sorted(
    path.parent for path in (Path(__file__).parents[1] / "cases").glob("*/snapshot.json")
)
NAMES = [folder.name for folder in CASES]

GIB = 1 << 30

EVIL = (
    "</pre></script><script>window.pwned=1</script><img src=x onerror=window.pwned=1> ]]> & \"'\n"
    "# head `tick` ```` @everyone [a](javascript:alert) |x| </details> \x1b[31mred \u202eevil \x00\ufffe"
)
"""What a log line of a stranger may hold."""


@cache
def case(folder: Path, command: tuple[str, ...] = ()) -> Report:
    """The report of a captured machine."""
    registry = load()
    snapshot = str(folder / "snapshot.json")
    examination = Examination.of(registry, snapshot=snapshot, command=command)
    results = examination.run(registry.checks.values())
    return build(
        command="check",
        version="0.1.0",
        started_at="2026-01-02T03:04:05Z",
        duration_s=0.25,
        subjects=examination.subjects,
        results=results,
        fail_on="error",
        required=(),
        launch=command,
        redactor=examination.redactor,
        redactions=examination.redactions,
    )


def named(name: str) -> Report:
    """The report of a case by its folder's name, or the hostile one."""
    return hostile() if name == "hostile" else case(CASES[NAMES.index(name)])


def hostile() -> Report:
    """Every text is EVIL, every field is filled."""
    fix = Fix(
        id="fix",
        title=EVIL,
        safety="unsafe",
        restarts=True,
        why=EVIL,
        actions=(Action(kind="command", text=EVIL), Action(kind="text", text=EVIL)),
    )
    finding = Finding(
        about=EVIL,
        message=EVIL,
        evidence=(
            Evidence(source=EVIL, line=3, excerpt=EVIL),
            Evidence(source="/a b/ü%.log", excerpt=EVIL),
            Evidence(source="NVML"),
        ),
        fixes=(fix,),
        severity="error",
        confidence="likely",
        category="environment",
        check="env-requirement-broken",
        subject=EVIL,
        fingerprint="0123456789abcdef",
    )
    warning = dataclasses.replace(finding, severity="warning", fixes=())

    def row(check: str, outcome: Any, *findings: Finding) -> CheckResult:
        reason = None if findings else EVIL
        return CheckResult(
            check=check,
            subject=EVIL,
            outcome=outcome,
            reason=reason,
            duration_ms=1.0,
            findings=findings,
        )

    return Report(
        tool=Tool(name="infer-doctor", version="0.1.0"),
        command="check",
        started_at="2026-01-02T03:04:05Z",
        duration_s=0.25,
        target=Target(
            host={"hostname": EVIL, "os": EVIL, "gpus": [EVIL], "driver": EVIL},
            engine=Engine(name="vllm", version=EVIL),
            launch=("vllm", EVIL),
        ),
        verdict="fail",
        counts=Counts(error=1, warning=1, failed=2, blocked=1, crashed=1, not_applicable=1),
        primary=finding,
        results=(
            row("env-requirement-broken", "failed", finding),
            row("gpu-none", "failed", warning),
            row("driver-too-old", "blocked"),
            row("gpu-lost", "crashed"),
            row("unknown-check", "not_applicable"),
            CheckResult(
                check="host-nofile-low",
                subject=EVIL,
                outcome="passed",
                reason=None,
                duration_ms=0.0,
            ),
        ),
        fixes=(fix,),
        plan={
            "fits": False,
            "reason": EVIL,
            "total_bytes": 140 * GIB,
            "weights_bytes": 90 * GIB,
            "kv_cache_bytes": 60 * GIB,
            "assumptions": [EVIL],
            "changes": [{"title": EVIL, "kv_cache_bytes": 5}],
        },
        measurements={
            EVIL: [{"name": EVIL, "seconds": 2.0}, {"name": "load", "seconds": 4.0}],
            "ttft": [{"le": EVIL, "count": 2}, {"le": 0.5, "count": 1}],
            "cold_start": {
                EVIL: {"seconds_to_ready": 6.0, "phases": [{"name": EVIL, "seconds": 6}]}
            },
            "other": EVIL,
        },
        redactions=(Redaction(kind="token", count=2),),
        facts={EVIL: {"Fact": {EVIL: [EVIL, {"deep": EVIL}]}, "Gpus": {"gpus": ["H200"]}}},
    )
