"""Patterns that are compiled when they are first needed.

The forms of secrets are seventy large patterns, of which one run meets a few: compiling all would be a
tenth of the time of `check`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property


class Late:
    """As `re.compile(source, flags)`, later."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self.flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.source, self.flags)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str) -> str:
        return self.compiled.sub(new, text)

    def search(self, text: str) -> re.Match[str] | None:
        return self.compiled.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self.compiled.fullmatch(text)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.compiled.match(text, start)

    def split(self, text: str) -> list[str]:
        return self.compiled.split(text)
