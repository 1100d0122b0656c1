"""The report as JSON, version 1 (`docs/report.schema.json`)."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from infer_doctor.model import Finding, Report


def to_wire(value: Any) -> Any:
    """Plain JSON; the fixes of a finding are the ids of the report's fixes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        wire = {f.name: to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Finding):
            wire["fixes"] = [fix.id for fix in value.fixes]
        return wire
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such numbers
    return value


def render(report: Report) -> str:
    """The report as indented JSON with a final line end."""
    return json.dumps(to_wire(report), indent=2, allow_nan=False) + "\n"
