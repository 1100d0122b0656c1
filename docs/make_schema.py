"""Writes docs/report.schema.json out of the types: python docs/make_schema.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from infer_doctor.memory.report import ReportedPlan
from infer_doctor.model import Report

FILE = Path(__file__).with_name("report.schema.json")


def schema() -> dict[str, Any]:
    """The JSON schema of what `--format json` prints.

    A finding on the wire names the fixes of the report by their ids, and the engine has stamped its
    severity and category. All fields are always written; more may come, so unknown ones are allowed.
    """
    made = TypeAdapter(Report).json_schema(mode="serialization")
    plan = TypeAdapter(ReportedPlan).json_schema(mode="serialization")
    made["$defs"] |= plan.pop("$defs")
    made["$defs"]["Plan"] = plan
    made["properties"]["plan"] = {"anyOf": [{"$ref": "#/$defs/Plan"}, {"type": "null"}]}
    for kind in (made, *made["$defs"].values()):
        kind["required"] = list(kind["properties"])
        kind["properties"] = {name: _plain(field) for name, field in kind["properties"].items()}
        del kind["title"]
    finding = made["$defs"]["Finding"]["properties"]
    finding["fixes"] = {"items": {"type": "string"}, "type": "array"}
    for name in ("severity", "category"):
        (finding[name],) = (kind for kind in finding[name]["anyOf"] if kind["type"] != "null")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The report of infer-doctor, version 1",
        **made,
    }


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    """Without the title that repeats the name, and without the default: it is always written."""
    return {key: value for key, value in field.items() if key not in ("title", "default")}


def text() -> str:
    """The file as it is committed."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
