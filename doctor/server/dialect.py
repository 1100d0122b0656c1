"""What a server wants to be asked otherwise than others, learned from its own refusal.

OpenAI's newer models refuse max_tokens and name max_completion_tokens; Mistral's API and strict
gateways refuse fields that they do not know (stream_options, ignore_eos).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

REFUSALS = (400, 422)
OPTIONAL = ("stream_options", "ignore_eos", "temperature", "tool_choice", "seed")
RENAMED = "max_completion_tokens"


@dataclass
class Dialect:
    """Fields that are left out, and whether the limit of tokens has its newer name."""

    without: set[str] = field(default_factory=set)
    renamed: bool = False

    def learn(self, body: dict[str, Any], status: int | None, said: str) -> bool:
        """Whether this refusal names a field of the request that can be said otherwise."""
        if status not in REFUSALS:
            return False
        words = set(re.findall(r"\w+", said.lower()))
        if RENAMED in words and "max_tokens" in body and not self.renamed:
            self.renamed = True
            return True
        named = {name for name in OPTIONAL if name in words and name in body} - self.without
        self.without |= named
        return bool(named)

    def spoken(self, body: dict[str, Any]) -> dict[str, Any]:
        """The request as this server takes it."""
        return {
            RENAMED if self.renamed and name == "max_tokens" else name: value
            for name, value in body.items()
            if name not in self.without
        }
