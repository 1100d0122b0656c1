"""Snapshots: the captures of one run in a file, and their replay.

{"schema_version": 1, "kind": "infer-doctor-snapshot", "tool": {...}, "created_at": "...Z",
 "options": {"python": ...}, "redactions": [{"kind", "count"}],
 "captures": [{"operation", "arguments", "version", "value" | "error", "duration_ms"}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host
from infer_doctor.model import Redaction
from infer_doctor.redact import Redactor

SCHEMA_VERSION = 1
KIND = "infer-doctor-snapshot"


class BadSnapshot(Exception):
    """The file is no snapshot that this version reads; the text says why."""


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot file holds."""

    host: Host
    redactions: tuple[Redaction, ...]
    python: str | None


def write(captures: Iterable[Capture], *, version: str, created_at: str, python: str | None) -> str:
    """The text of a snapshot file, redacted."""
    kept = list(captures)
    redactor = Redactor(kept)
    masked = [redactor.capture(capture) for capture in kept]
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "tool": {"name": "infer-doctor", "version": version},
        "created_at": created_at,
        "options": {"python": redactor.value(python)},
        "redactions": [{"kind": row.kind, "count": row.count} for row in redactor.redactions],
        "captures": [_capture_out(capture) for capture in masked],
    }
    return json.dumps(document, indent=1) + "\n"


def _capture_out(capture: Capture) -> dict[str, Any]:
    answer = "value" if capture.error is None else "error"
    return {
        "operation": capture.operation,
        "arguments": capture.arguments,
        "version": capture.version,
        answer: capture.value if capture.error is None else capture.error,
        "duration_ms": capture.duration_ms,
    }


def read(text: str) -> Snapshot:
    """Parse and check a snapshot; raises BadSnapshot."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"it is not valid JSON: {error}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadSnapshot(f'it is JSON, but no snapshot (no "kind": "{KIND}")')
    found = document.get("schema_version")
    if found != SCHEMA_VERSION:
        raise BadSnapshot(
            f"its schema_version is {found!r}; this infer-doctor reads {SCHEMA_VERSION}"
        )
    rows = document.get("captures")
    if not isinstance(rows, list):
        raise BadSnapshot('it has no list "captures"')
    captures = [_capture_in(row, number) for number, row in enumerate(rows)]
    options = document.get("options")
    python = options.get("python") if isinstance(options, dict) else None
    return Snapshot(
        host=Host(captures, missing="not in this snapshot"),
        redactions=tuple(_redaction_in(row) for row in document.get("redactions") or []),
        python=python if isinstance(python, str) else None,
    )


def _redaction_in(row: Any) -> Redaction:
    if (
        isinstance(row, dict)
        and isinstance(row.get("kind"), str)
        and isinstance(row.get("count"), int)
    ):
        return Redaction(kind=row["kind"], count=row["count"])
    raise BadSnapshot('a row of "redactions" has no "kind" and "count"')


def _capture_in(row: Any, number: int) -> Capture:
    """One capture, with every field of the right type."""
    if not isinstance(row, dict):
        raise BadSnapshot(f"capture {number} is no object")
    operation, arguments, version = (
        row.get("operation"),
        row.get("arguments"),
        row.get("version"),
    )
    if operation not in VERSIONS or not isinstance(arguments, dict) or type(version) is not int:
        raise BadSnapshot(f"capture {number} ({operation!r}) is not one that this version reads")
    value, error = row.get("value"), row.get("error")
    if error is not None and not (
        isinstance(error, dict) and {type(error.get("code")), type(error.get("message"))} == {str}
    ):
        raise BadSnapshot(f"capture {number} ({operation}): its error has no code and message")
    if error is None and not isinstance(value, dict):
        raise BadSnapshot(f"capture {number} ({operation}) has neither a value nor an error")
    duration = row.get("duration_ms")
    return Capture(
        operation=operation,
        arguments=arguments,
        version=version,
        value=value,
        error=error,
        duration_ms=float(duration) if isinstance(duration, (int, float)) else 0.0,
    )
