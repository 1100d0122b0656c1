"""Server-sent events as they come, each with its time."""

from __future__ import annotations

import json
from typing import Any

EVENT_LIMIT = 1 << 20
"""Bytes of one event: the largest that an engine sends holds the log probabilities of one token."""


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
        self._rest = b""

    def take(self, data: bytes, now: float) -> None:
        """The next part of the body."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > EVENT_LIMIT:
            self.bad += 1
            self._rest = b""
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)
            elif len(self.other) < 2048 and not line.startswith(
                (b":", b"event:", b"id:", b"retry:")
            ):
                self.other += line + b"\n"

    def end(self) -> None:
        """The body is complete: what is left was no event."""
        self.other += self._rest[:2048]
        self._rest = b""

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
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish = reason
        delta = choice.get("delta")
        if first and isinstance(delta, dict) and "role" in delta and not _brings(delta):
            return  # the opening event of a chat
        self.times.append(now)


def _brings(delta: dict[str, Any]) -> bool:
    names = ("content", "reasoning_content", "reasoning", "tool_calls", "refusal")
    return any(delta.get(name) for name in names)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def error_text(body: object, limit: int = 300) -> str:
    """What an error body says: OpenAI's, vLLM's, FastAPI's and Triton's forms."""
    if not isinstance(body, dict):
        return ""
    error = body.get("error", body.get("detail", body.get("message")))
    if isinstance(error, dict):
        error = error.get("message") or error.get("msg") or error.get("code")
    if isinstance(error, list):
        error = "; ".join(
            str(row.get("msg", row) if isinstance(row, dict) else row) for row in error
        )
    return " ".join(str(error).split())[:limit] if error else ""
