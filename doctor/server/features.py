"""What is asked beside the usual: structured output and tools, and whether an answer has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infer_doctor.server.address import Address
from infer_doctor.server.ask import parsed


@dataclass(frozen=True)
class Question:
    """What is to be asked beside the usual."""

    model: str | None = None
    structured: bool = False
    tools: bool = False
    timeout_s: float = 10.0
    metrics: Address | None = None
    """Where /metrics is, if it was named as a URL of its own."""


STRUCTURED: dict[str, Any] = {
    "max_tokens": 64,
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "schema": {
                "type": "object",
                "properties": {"answer": {"enum": ["yes", "no"]}},
                "required": ["answer"],
                "additionalProperties": False,
            },
        },
    },
}

TOOLS: dict[str, Any] = {
    "max_tokens": 64,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "add",
                "parameters": {"type": "object", "properties": {"a": {"type": "number"}}},
            },
        }
    ],
    "tool_choice": "auto",
}


def against_schema(answer: Any) -> str:
    """What is wrong with the content that STRUCTURED asked for; "" when nothing is, or it was cut."""
    try:
        choice = answer["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (TypeError, LookupError, AttributeError):
        return "the answer has no content"
    found = parsed(str(content).encode())
    if isinstance(found, dict) and found.get("answer") in ("yes", "no") and len(found) == 1:
        return ""
    return "" if finish == "length" else "the content is not JSON of the schema that was given"
