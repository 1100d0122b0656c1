"""Many patterns against many lines: each has a literal, and each literal a whole word, that a line
must contain before the pattern is tried. Compiling 900 patterns would take 150 ms, so a pattern is
compiled when its literal is first met.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

WORD = re.compile(r"[A-Za-z]+")
NO_LETTERS = bytes(code if chr(code).isalpha() and code < 128 else 32 for code in range(256))
"""For bytes.translate: whatever is no ASCII letter becomes a space."""

CLASSES = frozenset("dDwWsSbBAZ")
SPECIAL = frozenset(".^$*+?{}[]()|")
SHORTEST = 3
COMMON = frozenset(
    (
        "error",
        "failed",
        "invalid",
        "must",
        "size",
        "unable",
        "with",
        "not",
        "file",
        "version",
        "rank",
    )
)
"""Words of many lines: a literal that has no other would send prompts and news to the patterns."""


class Patterns(Generic[T]):
    """(pattern, what it stands for), found by word, then by literal, then by the pattern."""

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        self._by_word: dict[str, list[tuple[str, int]]] = {}
        self._texts: list[str] = []
        self._owners: list[T] = []
        self._compiled: dict[int, re.Pattern[str]] = {}
        for pattern, owner in rows:
            for part in alternatives(pattern):
                number = len(self._texts)
                self._texts.append(part)
                self._owners.append(owner)
                for literal in literals(part):
                    self._by_word.setdefault(_word(literal), []).append((literal.text, number))
        self._words = {word.encode(): word for word in self._by_word}

    def touches(self, raw: bytes) -> bool:
        """Whether any literal stands in these bytes."""
        for word in self._words.keys() & set(raw.translate(NO_LETTERS).split()):
            for literal, _ in self._by_word[self._words[word]]:
                if literal.encode() in raw:
                    return True
        return False

    def search(self, text: str) -> Iterator[tuple[T, re.Match[str]]]:
        """Every pattern that matches, once for each owner, in the order of the catalogue."""
        numbers: set[int] = set()
        for word in self._by_word.keys() & set(WORD.findall(text)):
            for literal, number in self._by_word[word]:
                if literal in text:
                    numbers.add(number)
        seen: set[int] = set()
        for number in sorted(numbers):
            owner = self._owners[number]
            if id(owner) in seen:
                continue
            pattern = self._compiled.get(number)
            if pattern is None:
                pattern = self._compiled[number] = re.compile(self._texts[number])
            if match := pattern.search(text):
                seen.add(id(owner))
                yield owner, match


class Literal:
    """A run of plain characters; `open` when a letter may follow it, `glued` when one may precede."""

    def __init__(self, text: str, open: bool, glued: bool) -> None:
        self.text = text
        self.open = open
        self.glued = glued


def _word(literal: Literal) -> str:
    """The longest word of a literal that stands in every matching text as a whole."""
    whole = [
        match[0]
        for match in WORD.finditer(literal.text)
        if not (literal.open and match.end() == len(literal.text))
        and not (literal.glued and match.start() == 0)
    ]
    if not whole:
        raise ValueError(f"the literal {literal.text!r} holds no whole word")
    return max(whole, key=len)


def alternatives(pattern: str) -> list[str]:
    """A pattern cut at its outermost |."""
    parts, depth, start, place, inside = [], 0, 0, 0, False
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 2
            continue
        if inside:
            inside = sign != "]"
        elif sign == "[":
            inside = True
            place += 1 + (pattern[place + 1 : place + 2] in ("]", "^"))
            continue
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign == "|" and depth == 0:
            parts.append(pattern[start:place])
            start = place + 1
        place += 1
    return [*parts, pattern[start:]]


def literals(pattern: str) -> list[Literal]:
    """Literals of which every matching text contains at least one; raises ValueError for none."""
    runs, groups = _parts(pattern)
    fit = [run for run in runs if _fits(run)]
    if fit:
        return [max(fit, key=lambda run: len(run.text))]
    for group in groups:
        try:
            return [run for part in alternatives(group) for run in literals(part)]
        except ValueError:
            continue
    raise ValueError(f"the pattern {pattern!r} holds no literal with a whole word")


def _fits(run: Literal) -> bool:
    try:
        word = _word(run)
        alone = run.text.strip(" :") == word
        return len(word) >= SHORTEST and not (alone and word.lower() in COMMON)
    except ValueError:
        return False


def _parts(pattern: str) -> tuple[list[Literal], list[str]]:
    """Runs of plain characters and the insides of the groups that must match."""
    runs: list[Literal] = []
    groups: list[str] = []
    run = ""
    glued = False
    place = 0

    def close(open: bool) -> None:
        """End the run; `open`: letters may follow it, and so precede the next."""
        nonlocal run, glued
        if run:
            runs.append(Literal(run, open, glued))
        run, glued = "", open

    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\" and pattern[place + 1] not in CLASSES:
            sign, length = pattern[place + 1], 2
        elif sign == "\\":
            close(pattern[place + 1] in "wDSW")
            place += 2
            continue
        elif sign == "[":
            close(True)
            end = pattern.index("]", place + 2)
            while pattern[end - 1] == "\\":
                end = pattern.index("]", end + 1)
            place = end + 1
            continue
        elif sign == "(":
            close(True)
            end = _closing(pattern, place)
            inside = re.sub(r"^\?(?::|P<\w+>)", "", pattern[place + 1 : end])
            if not inside.startswith("?") and pattern[end + 1 : end + 2] not in ("?", "*"):
                groups.append(inside)
            place = end + 1
            continue
        elif sign in SPECIAL:
            close(False)  # a word before or after .{0,40} is written out in the pattern
            if sign == "{":
                place = pattern.index("}", place)
            place += 1
            continue
        else:
            length = 1
        after = pattern[place + length : place + length + 1]
        if after in ("?", "*", "{") and after:  # the character itself may be missing
            close(True)
            place += length
            continue
        run += sign
        place += length
    close(False)
    return runs, groups


def _closing(pattern: str, place: int) -> int:
    """Where the group that opens at `place` closes."""
    depth, inside = 0, False
    while True:
        sign = pattern[place]
        if sign == "\\":
            place += 2
            continue
        if inside:
            inside = sign != "]"
        elif sign == "[":
            inside = True
            place += 1 + (pattern[place + 1] in ("]", "^"))
            continue
        elif sign in "()":
            depth += 1 if sign == "(" else -1
            if depth == 0:
                return place
        place += 1
