"""config.pbtxt of Triton: the text form of protocol buffers, as values with their lines.

Only the syntax is read (protobuf.dev, "Text Format Language Specification"): fields, messages in
braces or angle brackets, lists, strings, comments. `${name}` of NVIDIA's templates, which
fill_template.py replaces, is read as a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from infer_doctor.frozen import frozen

DEEPEST = 60
LONGEST = 1 << 20

TOKEN = re.compile(
    r"(?P<space>[\s,;]+|\#[^\n]*)"
    r"|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<mark>[{}\[\]<>:])"
    r"|(?P<word>(?:\$\{[^}\n]*\}|[^\s,;{}\[\]<>:\"'#])+)"
)

ESCAPE = re.compile(r"\\(.)")


class BadText(Exception):
    """The text is no message; begins with its line."""


@frozen
class Value:
    """A scalar, a message or one item of a list, and where it stands."""

    value: Any
    """str for a word or string, Message for a message."""
    line: int
    quoted: bool = False


class Message:
    """Fields in the order written; a field that is repeated has several values."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, Value]] = []

    def all(self, name: str) -> list[Value]:
        return [value for field, value in self.fields if field == name]

    def first(self, name: str) -> Value | None:
        return next((value for field, value in self.fields if field == name), None)

    def text(self, name: str) -> str | None:
        """A scalar as it is written."""
        found = self.first(name)
        return found.value if found is not None and isinstance(found.value, str) else None

    def messages(self, name: str) -> Iterator[Message]:
        for found in self.all(name):
            if isinstance(found.value, Message):
                yield found.value

    def message(self, name: str) -> Message | None:
        return next(self.messages(name), None)

    def line(self, name: str) -> int | None:
        found = self.first(name)
        return found.line if found is not None else None


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, int]] = []
        at, line = 0, 1
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise BadText(f"{line}: {text[at : at + 20].splitlines()[0]!r} cannot be read")
            kind = found.lastgroup or "space"
            if kind != "space":
                self.tokens.append((kind, found[0], line))
            line += found[0].count("\n")
            at = found.end()
        self.at = 0
        self.last = line

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "", self.last)

    def next(self) -> tuple[str, str, int]:
        found = self.peek()
        self.at += 1
        return found

    def message(self, end: str, depth: int) -> Message:
        if depth > DEEPEST:
            raise BadText(f"{self.peek()[2]}: is nested too deep")
        found = Message()
        while True:
            kind, text, line = self.next()
            if kind == "end":
                if end:
                    raise BadText(f"{line}: {end} is missing at the end")
                return found
            if kind == "mark" and text == end:
                return found
            if kind != "word":
                raise BadText(f"{line}: {text} stands where the name of a field belongs")
            colon = self.peek()[1] == ":" and self.peek()[0] == "mark"
            if colon:
                self.next()
            for value in self.values(depth, colon):
                found.fields.append((text, value))

    def values(self, depth: int, colon: bool) -> Iterator[Value]:
        kind, text, line = self.peek()
        if kind == "mark" and text == "[":
            self.next()
            while self.peek()[1] != "]" or self.peek()[0] != "mark":
                if self.peek()[0] == "end":
                    raise BadText(f"{line}: this list has no end")
                yield self.value(depth)
            self.next()
            return
        if not colon and not (kind == "mark" and text in "{<"):
            raise BadText(f"{line}: ':' is missing before {text or 'the end'}")
        yield self.value(depth)

    def value(self, depth: int) -> Value:
        kind, text, line = self.next()
        if kind == "mark" and text in "{<":
            return Value(value=self.message("}" if text == "{" else ">", depth + 1), line=line)
        if kind == "text":
            joined = unquoted(text)
            while self.peek()[0] == "text":  # strings side by side are one
                joined += unquoted(self.next()[1])
            return Value(value=joined, line=line, quoted=True)
        if kind == "word":
            return Value(value=text, line=line)
        raise BadText(f"{line}: a value is missing before {text or 'the end'}")


def read(text: str) -> Message:
    """The message of a file; raises BadText: LINE: what is wrong."""
    if len(text) > LONGEST:
        raise BadText(f"1: has more than {LONGEST:,} characters")
    return _Reader(text.removeprefix("\ufeff")).message("", 0)


def unquoted(text: str) -> str:
    return ESCAPE.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1])
