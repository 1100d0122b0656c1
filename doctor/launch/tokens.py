"""A shell text cut into words and operators, with the line of each; expansions are parts of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Place

OPERATORS = (";;", "&&", "||", "|&", ";", "&", "|", "(", ")", "\n")
REDIRECTION = re.compile(r"\d*(?:>>|>&|<&|<>|>\||<<<|>|<)|&>>?")
PLACEHOLDER = re.compile(r"<[A-Za-z][\w .-]*>(?=[\s/:,]|$)")
"""<model>, <HEAD_NODE_IP>: stands for a value in documentation; a shell would read and write files of
these names."""
HERE = re.compile(r"\d*<<-?(?!<)[ \t]*")
PARAMETER = re.compile(r"([A-Za-z_]\w*|[@*#?$!0-9-])(\[[@*]\])?")
PLAIN = re.compile(r"[^\s;&|()<>\\'\"$`]+")
INSIDE = re.compile(r'[^"\\$`]+')
DEFAULT = re.compile(r"""[^"'\\$`]+""")
OPERATION = re.compile(r":?[-=+?]")
ANSI_C = re.compile(r"[^'\\]+|\\(?:x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", re.S)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
"""Of $'...' (bash, "ANSI-C Quoting"); every other character stands for itself."""
DEEPEST = 40
"""Nested `${X:-${Y:-...}}`."""


@frozen
class Part:
    """A piece of a word: `list` marks "$@" and "${A[@]}"; `text` is the expression as written."""

    kind: Literal["text", "variable", "unknown"]
    text: str
    quoted: bool = False
    name: str = ""
    operator: str = ""
    default: tuple[Part, ...] = ()
    list: bool = False


@frozen
class Token:
    """A word (`parts`) or an operator; `array` are the words of NAME=( ... )."""

    parts: tuple[Part, ...] | None
    place: Place
    operator: str = ""
    array: tuple[Token, ...] | None = None

    @property
    def bare(self) -> str | None:
        """The text of a word without quotes and expansions, else None."""
        parts = self.parts or ()
        plain = len(parts) == 1 and parts[0].kind == "text" and not parts[0].quoted
        return parts[0].text if plain else None


class Lexer:
    """Cuts one text; what is not closed ends with the text."""

    def __init__(self, text: str, place: Place) -> None:
        self._text = text.replace("\r\n", "\n")
        self._first = place
        self._at = 0
        self._lines = 0
        self._counted = 0
        self._here: list[tuple[str, bool]] = []
        self.bodies: list[tuple[Place, str]] = []
        """Of the here-documents that were passed, until somebody takes them."""

    def _place(self) -> Place:
        if self._first.line is None:
            return self._first
        self._lines += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return Place(file=self._first.file, line=self._first.line + self._lines)

    def tokens(self, until: str | None = None) -> Iterator[Token]:
        text = self._text
        while self._at < len(text):
            if text.startswith("\\\n", self._at):
                self._at += 2
                continue
            char = text[self._at]
            if char in " \t\r":
                self._at += 1
            elif char == "#":
                end = text.find("\n", self._at)
                self._at = end if end >= 0 else len(text)
            elif until is not None and char == until:
                self._at += 1
                return
            elif until is not None and char == "\n":
                self._at += 1
            elif found := HERE.match(text, self._at):
                self._at = found.end()
                delimiter = "".join(part.text for part in self._word())
                self._here.append((delimiter, "<<-" in found[0]))
            elif PLACEHOLDER.match(text, self._at):
                yield self._token()
            elif found := REDIRECTION.match(text, self._at):
                self._at = found.end()
                while self._at < len(text) and text[self._at] in " \t":
                    self._at += 1
                if self._at < len(text) and text[self._at] not in "\n;|()":
                    before = self._at
                    self._word()
                    self._at += self._at == before  # `>&` of a closed descriptor
            elif operator := next((o for o in OPERATORS if text.startswith(o, self._at)), None):
                yield Token(parts=None, place=self._place(), operator=operator)
                self._at += len(operator)
                if operator == "\n" and self._here:
                    self._skip_here()
            else:
                yield self._token()

    def _skip_here(self) -> None:
        """The bodies of here-documents are no commands: they are kept apart."""
        for delimiter, dashed in self._here:
            place, lines = self._place(), []
            while self._at < len(self._text):
                end = self._text.find("\n", self._at)
                end = end if end >= 0 else len(self._text)
                line = self._text[self._at : end]
                self._at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if dashed else line) == delimiter:
                    break
                lines.append(line)
            self.bodies.append((place, "\n".join(lines)))
        self._here.clear()

    def _token(self) -> Token:
        place = self._place()
        parts = self._word()
        last = parts[-1] if parts else None
        opens = self._text.startswith("(", self._at)
        if opens and last and last.kind == "text" and not last.quoted and last.text.endswith("="):
            self._at += 1
            array = tuple(token for token in self.tokens(until=")") if token.parts is not None)
            return Token(parts=tuple(parts), place=place, array=array)
        if opens and last and self._text.startswith("()", self._at):
            self._at += 2  # NAME() of a function
            return Token(parts=None, place=place, operator=";")
        return Token(parts=tuple(parts), place=place)

    def _word(self) -> list[Part]:
        """Up to a blank or an operator; always takes at least one character."""
        parts: list[Part] = []
        start = self._at
        while self._at < len(self._text):
            char = self._text[self._at]
            blank = self._at == start or self._text[self._at - 1] in "=/:,"
            if char == "<" and blank and (found := PLACEHOLDER.match(self._text, self._at)):
                parts.append(Part(kind="unknown", text=found[0]))
                self._at = found.end()
                continue
            if char in " \t\r\n;&|()<>" and self._at > start:
                break
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                self._at += 2
                if following != "\n":
                    _add(parts, following, quoted=True)
            elif char == "'":
                end = self._text.find("'", self._at + 1)
                end = end if end >= 0 else len(self._text)
                _add(parts, self._text[self._at + 1 : end], quoted=True)
                self._at = end + 1
            elif char == '"' or self._text.startswith('$"', self._at):
                self._at += 1 + (char == "$")
                self._double(parts)
            elif self._text.startswith("$'", self._at):
                self._at += 2
                self._ansi_c(parts)
            elif char in "$`":
                parts.append(self._dollar(quoted=False, depth=0))
            else:
                self._run(parts, PLAIN, quoted=False)
        self._at = min(self._at, len(self._text))
        return parts

    def _double(self, parts: list[Part]) -> None:
        _add(parts, "", quoted=True)
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in tuple('$`"\\\n'):
                following = self._text[self._at + 1]
                _add(parts, "" if following == "\n" else following, quoted=True)
                self._at += 2
            elif char in "$`":
                parts.append(self._dollar(quoted=True, depth=0))
            else:
                self._run(parts, INSIDE, quoted=True)

    def _ansi_c(self, parts: list[Part]) -> None:
        """The rest of $'...', its escapes put in."""
        _add(parts, "", quoted=True)
        while found := ANSI_C.match(self._text, self._at):
            self._at = found.end()
            text = found[0]
            if text[0] == "\\":
                rest = text[1:]
                if rest[0] in "01234567":
                    text = chr(int(rest, 8))
                elif rest[0] in "xu" and len(rest) > 1:
                    text = chr(int(rest[1:], 16))
                else:
                    text = ESCAPES.get(rest, rest)
            _add(parts, text, quoted=True)
        self._at += 1

    def _run(self, parts: list[Part], pattern: re.Pattern[str], *, quoted: bool) -> None:
        """As many ordinary characters as there are, at least one."""
        found = pattern.match(self._text, self._at)
        end = found.end() if found else self._at + 1
        _add(parts, self._text[self._at : end], quoted=quoted)
        self._at = end

    def _dollar(self, *, quoted: bool, depth: int) -> Part:
        start = self._at
        text = self._text
        if text[start] == "`":
            end = text.find("`", start + 1)
            self._at = end + 1 if end >= 0 else len(text)
            return Part(kind="unknown", text=text[start : self._at], quoted=quoted)
        if text.startswith("$(", start):
            self._balanced("(", ")")
            return Part(kind="unknown", text=text[start : self._at], quoted=quoted)
        if text.startswith("${", start):
            return self._braced(quoted=quoted, depth=depth)
        found = PARAMETER.match(text, start + 1)
        if found is None:
            self._at += 1
            return Part(kind="text", text="$", quoted=True)
        self._at = start + 1 + len(found[1])
        listed = found[1] in ("@", "*")
        known = found[1] in ("@", "*") or found[1][0].isalnum() or found[1][0] == "_"
        return Part(
            kind="variable" if known else "unknown",
            text=text[start : self._at],
            quoted=quoted,
            name=found[1],
            list=listed and (not quoted or found[1] == "@"),
        )

    def _braced(self, *, quoted: bool, depth: int) -> Part:
        start = self._at
        self._balanced("{", "}")
        whole = self._text[start : self._at]
        inner = whole[2:-1]
        found = PARAMETER.match(inner)
        if found is None or depth > DEEPEST:
            return Part(kind="unknown", text=whole, quoted=quoted)
        rest = inner[found.end() :]
        operation = OPERATION.match(rest)
        if rest and operation is None:
            return Part(kind="unknown", text=whole, quoted=quoted)
        default: list[Part] = []
        if operation is not None:
            nested = Lexer(rest[operation.end() :], Place(file="", line=None))
            default = nested._default(depth + 1)
        return Part(
            kind="variable",
            text=whole,
            quoted=quoted,
            name=found[1],
            operator=operation[0] if operation else "",
            default=tuple(default),
            list=bool(found[2]) or found[1] == "@",
        )

    def _default(self, depth: int) -> list[Part]:
        """The word after :- as parts; blanks belong to it."""
        parts: list[Part] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "$`":
                parts.append(self._dollar(quoted=True, depth=depth))
            elif char in "\"'":
                self._at += 1
            elif char == "\\":
                _add(parts, self._text[self._at + 1 : self._at + 2], quoted=True)
                self._at += 2
            else:
                self._run(parts, DEFAULT, quoted=True)
        return parts

    def _balanced(self, opening: str, closing: str) -> None:
        """Past the bracket that closes the one after `$`; quotes hide brackets."""
        depth, quote = 0, ""
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "\\":
                self._at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char == opening:
                depth += 1
            elif char == closing:
                depth -= 1
                if depth == 0:
                    return
        self._at = len(self._text)


def _add(parts: list[Part], text: str, *, quoted: bool) -> None:
    """Text to the last part when that is of the same kind."""
    last = parts[-1] if parts else None
    if last is not None and last.kind == "text" and last.quoted == quoted:
        parts[-1] = Part(kind="text", text=last.text + text, quoted=quoted)
    else:
        parts.append(Part(kind="text", text=text, quoted=quoted))
