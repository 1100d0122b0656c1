"""The report as SARIF 2.1.0, for code scanning and viewers.

Results are findings only. All checks that ran are rules, with their documentation as help. What is
undecided or crashed is a notification of the run. Every result has a physical location, because
GitHub shows none without; a source that is no file stands there under its own name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from infer_doctor.explain import markdown
from infer_doctor.model import EXIT, CheckResult, Evidence, Finding, Report
from infer_doctor.registry import Check
from infer_doctor.render import words
from infer_doctor.render.plain import plain

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

LEVELS = {"error": "error", "warning": "warning", "info": "note"}

Json = dict[str, Any]


def render(report: Report, checks: Mapping[str, Check]) -> str:
    """The report as indented JSON; `checks` are those of the registry, for the rules."""
    ids = list(dict.fromkeys(row.check for row in report.results))
    run: Json = {
        "tool": {
            "driver": {
                "name": report.tool.name,
                "version": report.tool.version,
                "semanticVersion": report.tool.version,
                "rules": [_rule(id, checks.get(id)) for id in ids],
            }
        },
        "invocations": [_invocation(report, ids)],
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, ids)
            for finding in (*words.findings(report), *words.suppressed(report))
        ],
        "properties": {
            "verdict": report.verdict,
            **{name: plain(value) for name, value in words.versions(report) if value},
        },
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2) + "\n"


def _rule(id: str, check: Check | None) -> Json:
    if check is None:  # of a report that another version wrote
        return {"id": id}
    text = markdown(check)
    return {
        "id": id,
        "shortDescription": {"text": check.title},
        "fullDescription": {"text": _why(text) or check.title},
        "help": {"text": text, "markdown": text},
        "defaultConfiguration": {"level": LEVELS[check.severity]},
        "properties": {"tags": [check.category], "since": check.since},
    }


def _why(text: str) -> str:
    """The paragraph under "Why it matters"."""
    found = re.search(r"## Why it matters\n(.+?)(?:\n\n|$)", text, re.S)
    return " ".join(found[1].split()) if found else ""


def _invocation(report: Report, ids: list[str]) -> Json:
    began = datetime.fromisoformat(report.started_at.replace("Z", "+00:00"))
    ended = began + timedelta(seconds=report.duration_s)
    crashed = any(row.outcome == "crashed" for row in report.results)
    found: Json = {
        "executionSuccessful": not crashed,
        "exitCode": EXIT[report.verdict],
        "startTimeUtc": report.started_at,
        "endTimeUtc": ended.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "toolExecutionNotifications": [
            _notification(row, ids)
            for row in report.results
            if row.outcome in ("blocked", "crashed")
        ],
    }
    if report.target.launch:
        found["properties"] = {"launch": [plain(word) for word in report.target.launch]}
    return found


def _notification(row: CheckResult, ids: list[str]) -> Json:
    return {
        "level": "error" if row.outcome == "crashed" else "note",
        "message": {"text": plain(f"{row.outcome} in {row.subject}: {row.reason or ''}")},
        "associatedRule": {"id": row.check, "index": ids.index(row.check)},
    }


def _result(finding: Finding, ids: list[str]) -> Json:
    lines = [finding.message, *(f"Fix: {words.title(fix)}" for fix in finding.fixes)]
    evidence = finding.evidence or (Evidence(source=finding.about or finding.check),)
    suppressions = [{"kind": "external", "justification": plain(finding.suppressed or "")}]
    return {
        **({"suppressions": suppressions} if finding.suppressed else {}),
        "ruleId": finding.check,
        "ruleIndex": ids.index(finding.check),
        "level": LEVELS[finding.severity or "info"],
        "message": {"text": plain("\n".join(lines))},
        "locations": [_location(finding, evidence[0])],
        "relatedLocations": [
            {
                "id": number,
                "physicalLocation": _physical(item),
                "message": {"text": plain(item.excerpt or item.source)},
            }
            for number, item in enumerate(evidence, 1)
        ],
        "partialFingerprints": {
            "inferDoctor/v1": f"{finding.fingerprint}:{plain(finding.subject)}"
        },
        "properties": {
            "confidence": finding.confidence,
            "category": finding.category,
            "fixes": [
                {
                    "title": plain(fix.title),
                    "safety": fix.safety,
                    "restarts": fix.restarts,
                    "actions": [plain(words.step(action)[1]) for action in fix.actions],
                }
                for fix in finding.fixes
            ],
        },
    }


def _location(finding: Finding, evidence: Evidence) -> Json:
    return {
        "physicalLocation": _physical(evidence),
        "logicalLocations": [
            {
                "name": plain(finding.about or finding.check),
                "fullyQualifiedName": plain(f"{finding.subject}/{finding.about or finding.check}"),
            }
        ],
    }


def _physical(evidence: Evidence) -> Json:
    """A file by its path; "NVML: GPU 0" and the like as a relative name."""
    region: Json = {"startLine": max(evidence.line or 1, 1)}
    if evidence.excerpt:
        region["snippet"] = {"text": plain(evidence.excerpt)}
    return {"artifactLocation": {"uri": uri(evidence.source)}, "region": region}


def uri(source: str) -> str:
    """The source as a relative reference (RFC 3986); an absolute path as a file URI."""
    try:
        data = source.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a pair, as JSON can hold it
        data = source.encode("utf-8", "backslashreplace")
    name = quote(data, safe="/-._~")
    if source.startswith("/"):
        return f"file:///{name.lstrip('/')}"
    return name or "unknown"
