"""The one door to the machine: every file, command and library call goes through a Host.

A host answers questions: an operation of `hands` with JSON arguments. Each answer is kept as a
`Capture`, so the same class records while it is live (`live.py`) and replays a snapshot. Probes
call the named methods, which raise `Unavailable` when there is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.hands import VERSIONS

TEXT_LIMIT = 1 << 20
"""Bytes read of a text file; nothing the doctor reads as text is larger on a healthy machine."""


class Unavailable(Exception):
    """A question that has no answer; `code` is an errno name, "timeout", "died" or "not_captured"."""

    def __init__(self, reason: str, code: str = "failed") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class Absent(Exception):
    """Raised by a probe that has proof that there is nothing to judge, such as no GPU on the bus."""


@frozen
class Capture:
    """One question and its answer: `value`, or `error` with "code" and "message"."""

    operation: str
    arguments: dict[str, Any]
    version: int
    value: dict[str, Any] | None = None
    error: dict[str, str] | None = None
    duration_ms: float = 0.0

    @property
    def key(self) -> str:
        """What a replay looks the capture up by."""
        return key_of(self.operation, self.arguments)


def key_of(operation: str, arguments: Mapping[str, Any]) -> str:
    """The question as text."""
    return f"{operation}:{json.dumps(arguments, sort_keys=True)}"


class Host:
    """Answers out of the captures it has; `LiveHost` asks the machine for those it has not."""

    def __init__(self, captures: Sequence[Capture] = (), *, missing: str = "") -> None:
        self.captures: dict[str, Capture] = {capture.key: capture for capture in captures}
        self._missing = missing or "not in this snapshot"

    def begin(self, operation: str, **arguments: Any) -> None:
        """Say that a question will be asked; only a live host can use the time until then."""

    def ask(self, operation: str, *, limit_s: float | None = None, **arguments: Any) -> Any:
        """The answer as JSON; raises Unavailable."""
        capture = self.captures.get(key_of(operation, arguments))
        if capture is None:
            capture = self._fetch(operation, arguments, limit_s)
            self.captures[capture.key] = capture
        if capture.version != VERSIONS[operation]:
            raise Unavailable("captured in another form by another version of infer-doctor")
        if capture.error is not None:
            raise Unavailable(capture.error["message"], capture.error["code"])
        return capture.value

    def _fetch(self, operation: str, arguments: dict[str, Any], limit_s: float | None) -> Capture:
        raise Unavailable(self._missing, "not_captured")

    def read(self, path: str, limit: int = TEXT_LIMIT) -> str:
        """The text of a regular file; bytes that are not UTF-8 are written as \\xNN."""
        try:
            answer = self.ask("read", path=path, limit=limit)
        except Unavailable as error:
            raise Unavailable(f"{path}: {error.reason}", error.code) from None
        if answer["truncated"]:
            raise Unavailable(f"{path}: larger than {limit:,} bytes", "EFBIG")
        text: str = answer["text"]
        return text

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, sorted."""
        try:
            return tuple(self.ask("list", path=path)["names"])
        except Unavailable as error:
            raise Unavailable(f"{path}: {error.reason}", error.code) from None

    def exists(self, path: str) -> bool:
        """Whether the path leads to something; raises Unavailable when that cannot be known."""
        return self.stat(path) is not None

    def stat(self, path: str) -> dict[str, Any] | None:
        """Kind, mode, owner and size; None when there is nothing."""
        try:
            found: dict[str, Any] = self.ask("stat", path=path)
        except Unavailable as error:
            if error.code in ("ENOENT", "ENOTDIR", "ELOOP"):
                return None
            raise Unavailable(f"{path}: {error.reason}", error.code) from None
        return found

    def real(self, path: str) -> str | None:
        """The path without links; None when it leads nowhere."""
        try:
            found: str = self.ask("real", path=path)["path"]
        except Unavailable as error:
            if error.code in ("ENOENT", "ENOTDIR", "ELOOP"):
                return None
            raise Unavailable(f"{path}: {error.reason}", error.code) from None
        return found

    def which(self, name: str, path: str) -> str | None:
        """The first executable called `name` in the folders of `path`."""
        found: str | None = self.ask("which", name=name, path=path)["path"]
        return found

    def variables(self) -> dict[str, str]:
        """The environment variables that matter to an engine."""
        found: dict[str, str] = self.ask("environ")["variables"]
        return found
