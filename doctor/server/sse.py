"""Server-sent events as they come, each with its time."""

from __future__ import annotations

import json
from typing import Any

EVENT_LIMIT = 1 << 20
"""Bytes of one event: the largest that an engine sends holds the log probabilities of one token."""

MOST_TOKENS = 1 << 32
"""No count of tokens of one answer is larger."""

LINES_LIMIT = 1000
OTHER_LIMIT = 2048
FIELDS = (b":", b"event:", b"id:", b"retry:")


class Events:
    """A sink for the body of a stream: when which token came, how many, and how it ended.

    Only what is needed is decoded: the first events, until one brings a token, and those that hold
    the usage or an error. So one core follows hundreds of streams.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        """Of events that brought tokens."""
        self.done = False
        self.finish = ""
        self.tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.error = ""
        self.other = b""
        """The beginning of what was no event at all."""
        self.bad = 0
        self.example = b""
        """The first event that could not be read."""
        self._rest = b""
        self._lines: list[bytes] = []
        """Of an event that is not complete: WHATWG HTML, section 9.2.6, joins them."""

    def take(self, data: bytes, now: float) -> None:
        """The next part of the body."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > EVENT_LIMIT:
            self.bad += 1
            self._rest = b""
        for line in lines:
            self._line(line, now)

    def end(self, now: float) -> None:
        """The body has ended; the last event may lack its blank line, as openai's client has it."""
        rest, self._rest = self._rest, b""
        if rest:
            self._line(rest, now)
        self._line(b"", now)

    def _line(self, line: bytes, now: float) -> None:
        line = line.rstrip(b"\r")
        if line.startswith(b"data:"):
            if len(self._lines) < LINES_LIMIT:
                self._lines.append(line[5:].strip())
        elif not line:
            if self._lines:
                lines, self._lines = self._lines, []
                self._event(lines[0] if len(lines) == 1 else b"\n".join(lines), now)
        elif len(self.other) < OTHER_LIMIT and not line.startswith(FIELDS):
            self.other += line[:OTHER_LIMIT] + b"\n"

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        first = not self.times
        usage = b'"usage"' in data and b'"usage":null' not in data and b'"usage": null' not in data
        last = b'"finish_reason"' in data and b'"finish_reason":null' not in data
        if not (first or usage or last or b'"error"' in data):
            self.times.append(now)
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            self.bad += 1
            self.example = self.example or data[:OTHER_LIMIT]
            return
        self._decoded(event, first, now)

    def _decoded(self, event: Any, first: bool, now: float) -> None:
        if not isinstance(event, dict):
            self.bad += 1
            return
        if event.get("error"):
            self.error = error_text(event)
            return
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.tokens = _number(usage.get("completion_tokens"))
            self.prompt_tokens = _number(usage.get("prompt_tokens"))
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        delta = choice.get("delta")
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self.finish = reason  # counts, also when all tokens were thoughts that are not shown
        elif first and isinstance(delta, dict) and "role" in delta and not _brings(delta):
            return  # the opening event of a chat
        self.times.append(now)


def _brings(delta: dict[str, Any]) -> bool:
    names = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
    return any(delta.get(name) for name in names)


def _number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def error_text(body: object, limit: int = 300) -> str:
    """What an error body says: OpenAI's, vLLM's, FastAPI's and Triton's forms."""
    if not isinstance(body, dict):
        return ""
    error = body.get("error", body.get("detail", body.get("message")))
    if isinstance(error, dict):
        error = error.get("message") or error.get("msg") or error.get("code") or error.get("detail")
    if isinstance(error, list):
        error = "; ".join(_row(row) for row in error)
    return " ".join(str(error).split())[:limit] if error else ""


def _row(row: object) -> str:
    """One of pydantic's errors: the place in the request and what is wrong there."""
    if not isinstance(row, dict):
        return str(row)
    place = row.get("loc")
    words = [str(row.get("msg", row))]
    if isinstance(place, list):
        words.insert(0, ".".join(str(part) for part in place) + ":")
    return " ".join(words)
