"""Snapshots: the captures of one run in a file, and their replay.

{"schema_version": 1, "kind": "infer-doctor-snapshot", "tool": {...}, "created_at": "...Z",
 "options": {"python": ..., "redact_key"?, "machine"?}, "redactions": [{"kind", "count"}],
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
    key: str | None = None
    """The mark of the --redact-key that its masks are made with: equal marks, comparable masks."""
    machine: str | None = None
    """A mark of the running kernel: two snapshots with one mark are of one machine."""
    created_at: str = ""


def write(
    captures: Iterable[Capture],
    *,
    version: str,
    created_at: str,
    python: str | None,
    key: str | None = None,
    machine: str | None = None,
) -> str:
    """The text of a snapshot file, redacted; with a `key` equal values get equal masks in all files."""
    kept = list(captures)
    redactor = Redactor(kept, key=key)
    options: dict[str, Any] = {"python": redactor.value(python)}
    if key is not None:
        options["redact_key"] = redactor.key_mark
    if machine is not None:
        options["machine"] = machine
    masked = [redactor.capture(capture) for capture in kept]
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "tool": {"name": "infer-doctor", "version": version},
        "created_at": created_at,
        "options": options,
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
        document = json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"it is not valid JSON: {error}") from None
    return from_document(document)


def from_document(document: Any) -> Snapshot:
    """The snapshot of a JSON object; raises BadSnapshot."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise BadSnapshot(f'it is JSON, but no snapshot (no "kind": "{KIND}")')
    found = document.get("schema_version")
    if type(found) is not int or found != SCHEMA_VERSION:
        raise BadSnapshot(
            f"its schema_version is {found!r:.40}; this infer-doctor reads {SCHEMA_VERSION}"
        )
    tool = _field(document, "tool", dict, "the file")
    for key in ("name", "version"):
        _field(tool, key, str, "the tool")
    _field(document, "created_at", str, "the file")
    options = _field(document, "options", dict, "the file")
    rows = _field(document, "captures", list, "the file")
    return Snapshot(
        host=Host(
            [capture_in(row, f"capture {number}") for number, row in enumerate(rows)],
            missing="not in this snapshot",
        ),
        redactions=tuple(
            _redaction_in(row) for row in _field(document, "redactions", list, "the file")
        ),
        python=_field(options, "python", (str, type(None)), "the options"),
        key=_mark(options, "redact_key"),
        machine=_mark(options, "machine"),
        created_at=document["created_at"],
    )


def _mark(options: dict[str, Any], key: str) -> str | None:
    """What newer versions note; a file of before has none."""
    return _field(options, key, str, "the options") if key in options else None


def _field(row: Any, key: str, kinds: type | tuple[type, ...], place: str) -> Any:
    """The value of a key, of the right type; a bool is no number."""
    if not isinstance(row, dict):
        raise BadSnapshot(f"{place} is no object")
    if key not in row:
        raise BadSnapshot(f"{place} has no {key!r}")
    value = row[key]
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise BadSnapshot(f"{place}: {key!r} is of the wrong type ({value!r:.40})")
    return value


def no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _redaction_in(row: Any) -> Redaction:
    kind, count = _field(row, "kind", str, "a redaction"), _field(row, "count", int, "a redaction")
    return Redaction(kind=kind, count=count)


def capture_in(row: Any, place: str) -> Capture:
    """One capture, with every field of the right type."""
    operation = _field(row, "operation", str, place)
    place = f"{place} ({operation:.20})"
    if operation not in VERSIONS:
        raise BadSnapshot(f"{place} is not one that this version reads")
    error = None
    if "error" in row:
        error = {
            key: _field(_field(row, "error", dict, place), key, str, f"the error of {place}")
            for key in ("code", "message")
        }
    return Capture(
        operation=operation,
        arguments=_field(row, "arguments", dict, place),
        version=_field(row, "version", int, place),
        value=None if error else _field(row, "value", dict, place),
        error=error,
        duration_ms=_field(row, "duration_ms", (int, float), place),
    )
