"""What stands around the output in a file: colours, line ends, prompts, prefixes, a cut end."""

from __future__ import annotations

import re
from collections.abc import Mapping

Facts = Mapping[type, object]
"""What a file holds, by the type of the fact; a Missing says why one that it names is not known."""


class Unreadable(Exception):
    """The text cannot be used; the words complete "FILE: ...".

    `known`: it is of a kind that is read, but broken.
    """

    def __init__(self, words: str, *, known: bool = True) -> None:
        super().__init__(words)
        self.known = known


ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""What terminals obey (ECMA-48): colours, cursor moves, titles."""

LINE_END = re.compile(r"\r+\n?")


def clean(text: str) -> str:
    """The text without a byte order mark, terminal codes and foreign line ends."""
    return LINE_END.sub("\n", ESCAPE.sub("", text.removeprefix("\ufeff")))


def whole_lines(text: str) -> list[str]:
    """The lines that are surely whole: the last one may be cut when no line end follows."""
    return text.split("\n")[:-1]


def without_prefix(lines: list[str], place: int, column: int) -> list[str]:
    """The lines from `place` on, each without what stands left of `column`.

    Log collectors and quotations put a time or a mark of one width before every line.
    """
    return [line[column:] for line in lines[place:]]


def find_line(lines: list[str], mark: str) -> tuple[int, int] | None:
    """Line and column where the mark stands first."""
    for place, line in enumerate(lines):
        column = line.find(mark)
        if column >= 0:
            return place, column
    return None
