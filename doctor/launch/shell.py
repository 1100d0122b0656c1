"""The simple commands of a shell text with their words, as far as they can be told. Nothing runs.

The grammar is that of POSIX (Shell Command Language) with bash's arrays. What a branch or loop
assigns is not known after it, a command substitution never is; such words keep their expression.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.launch.embedded import unknown_in
from infer_doctor.launch.model import Place, Variable, Word
from infer_doctor.launch.tokens import Lexer, Part, Token

LONGEST_VALUE = 65_536
"""Characters; a variable that doubles itself in every line is given up."""

NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?(\+?)=", re.S)
OPENING = ("if", "while", "until", "for", "select", "case", "{", "(")
CLOSING = ("fi", "done", "esac", "}", ")")
BETWEEN = ("then", "do", "else", "elif", "!", "in", "time", "function")
DECLARING = ("export", "declare", "typeset", "local", "readonly")

TESTS = ("[", "[[", "test", "command", "which", "type", "grep", "!", "((")
"""What runs after `TEST &&` may not run; after other commands `&&` only stops at a failure."""

RUN_INPUT = ("sbatch", "bash", "sh", "zsh", "dash", "ksh")
"""Programs that run what they are given as input."""

DEEPEST = 4
"""Here-documents in here-documents that are read."""

Value = list[Word] | None
"""One word for a plain variable, several for an array, None for one that is not known."""


@frozen
class Command:
    """A simple command, with the exported variables at its place and the folder it runs in."""

    words: tuple[Word, ...]
    environment: tuple[Variable, ...]
    folder: str | None = None
    gaps: tuple[str, ...] = ()


def commands(
    text: str,
    place: Place,
    *,
    given: Sequence[Variable] = (),
    arguments: Sequence[Word] | None = None,
    read: Callable[[str], str] | None = None,
) -> list[Command]:
    """All simple commands in the order written; `given` is the environment, `arguments` are $0, $1.

    `place` is that of the first line; without a line all words stand there.
    """
    return _Walk(place, given, arguments, read).run(text)


class _Walk:
    def __init__(
        self,
        place: Place,
        given: Sequence[Variable],
        arguments: Sequence[Word] | None,
        read: Callable[[str], str] | None,
    ) -> None:
        self._place = place
        self._arguments = arguments
        self._read = read
        self._values: dict[str, Value] = {}
        self._exported: dict[str, Variable] = {}
        self._others = [row for row in given if row.name == "*"]
        self._all_exported = False
        self._folder: str | None = None
        self._gaps: list[str] = []
        self._blocks: list[tuple[dict[str, Value], set[str]]] = []
        self._found: list[Command] = []
        self._depth = 0
        for row in given:
            if row.name != "*":
                self._exported[row.name] = row
                self._values[row.name] = (
                    None if row.value is None else [Word(text=row.value, place=row.place)]
                )

    def run(self, text: str) -> list[Command]:
        simple: list[Token] = []
        maybe = False
        lexer = Lexer(text, self._place)
        for token in lexer.tokens():
            if lexer.bodies:
                self._documents(lexer)
            if token.parts is None:
                self._simple(simple, maybe)
                tested = bool(simple) and simple[0].bare in TESTS
                maybe = token.operator == "||" or (token.operator == "&&" and (tested or maybe))
                simple = []
                self._block(token.operator)
                continue
            word = token.bare
            if not simple and word is not None:
                if word in OPENING or word in CLOSING or word in ("else", "elif"):
                    self._block(word)
                    if word in ("for", "select", "case"):
                        simple = [token]
                    continue
                if word in BETWEEN and word != "time":
                    continue
            simple.append(token)
        self._simple(simple, maybe)
        self._documents(lexer)
        return self._found

    def _documents(self, lexer: Lexer) -> None:
        """A here-document that a shell or sbatch runs holds commands."""
        words = self._found[-1].words if self._found else ()
        runs = bool(words) and posixpath.basename(words[0].text) in RUN_INPUT
        for place, text in lexer.bodies:
            if runs and self._depth < DEEPEST:
                inner = _Walk(place, (), None, self._read)
                inner._depth = self._depth + 1
                inner._values, inner._exported = dict(self._values), dict(self._exported)
                self._found += inner.run(text)
        lexer.bodies.clear()

    def _block(self, word: str) -> None:
        """What is assigned in a block is not known after it."""
        if word in OPENING:
            self._blocks.append((dict(self._values), set()))
        elif self._blocks and word in ("else", "elif", ";;"):
            before, changed = self._blocks[-1]
            changed |= {n for n in self._values if self._values[n] != before.get(n)}
            self._values = dict(before)
        elif self._blocks and word in CLOSING:
            before, changed = self._blocks.pop()
            changed |= {n for n in self._values if self._values[n] != before.get(n)}
            if word == "}":  # a group or function: it runs as a whole or is called
                return
            for name in changed:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._values[name] = None
        if name in self._exported:
            self._exported[name] = Variable(
                name=name, value=None, place=self._exported[name].place, source="a branch"
            )

    def _simple(self, tokens: list[Token], maybe: bool) -> None:
        if not tokens:
            return
        head = tokens[0].bare
        if head in ("for", "select"):
            if len(tokens) > 1 and (name := tokens[1].bare) and NAME.fullmatch(name):
                self._values[name] = None
            return
        if head == "case":
            return
        own: dict[str, Variable] = {}
        while tokens and (found := _assigned(tokens[0])):
            name, value = found[0], self._assigned_value(tokens[0], found)
            place = tokens[0].place
            tokens = tokens[1:]
            if tokens:
                own[name] = _variable(name, value, place)
            else:
                self._set(name, None if maybe else value, place)
                return
        words = [word for token in tokens for word in self._expand(token)]
        if not words:
            return
        if not self._built_in(tokens, words, maybe):
            self._command(words, own)

    def _command(self, words: list[Word], own: Mapping[str, Variable]) -> None:
        merged = {**self._exported, **own}
        self._found.append(
            Command(
                words=tuple(words),
                environment=(*self._others, *merged.values()),
                folder=self._folder,
                gaps=tuple(self._gaps),
            )
        )

    def _built_in(self, tokens: list[Token], words: list[Word], maybe: bool) -> bool:
        """Take what a built-in does to variables; False when it is a program."""
        name = words[0].text
        if name in DECLARING:
            self._declare(name, tokens, maybe)
        elif name == "set":
            texts = [word.text for word in words[1:]]
            if "-a" in texts or texts[-2:] == ["-o", "allexport"]:
                self._all_exported = True
            if "+a" in texts:
                self._all_exported = False
            if "--" in texts:
                first = Word(text="sh", place=words[0].place)
                self._arguments = [first, *words[texts.index("--") + 2 :]]
        elif name == "unset":
            for word in words[1:]:
                self._values.pop(word.text, None)
                self._exported.pop(word.text, None)
        elif name == "cd" and len(words) == 2:
            self._folder = None if words[1].unknown else words[1].text
        elif name in (".", "source") and len(words) > 1:
            self._source(words[1])
        elif name in (":", "read", "mapfile", "readarray", "getopts", "shift", "trap", "eval"):
            if name in ("read", "getopts", "mapfile", "readarray"):
                for word in words[1:]:
                    if NAME.fullmatch(word.text):
                        self._forget(word.text)
            return name != "eval"
        else:
            return False
        return True

    def _declare(self, name: str, tokens: list[Token], maybe: bool) -> None:
        options = [token.bare or "" for token in tokens[1:] if (token.bare or "").startswith("-")]
        exports = name == "export" or any("x" in option for option in options)
        for token in tokens[1:]:
            if found := _assigned(token):
                value = self._assigned_value(token, found)
                self._set(found[0], None if maybe else value, token.place, exports=exports)
            elif exports and (plain := token.bare) and NAME.fullmatch(plain):
                value = self._values.get(plain)
                self._exported[plain] = _variable(plain, value, token.place, "shell")

    def _source(self, word: Word) -> None:
        """`. FILE`: its assignments, when it can be read."""
        if word.unknown is None and re.search(r"/bin/activate$|conda\.sh$|/etc/profile", word.text):
            return  # an environment's own script sets PATH
        try:
            if self._read is None or word.unknown:
                raise Unavailable("was not read")
            text = self._read(word.text)
        except Unavailable:
            unknown = Variable(name="*", value=None, place=word.place, source=word.text)
            self._others.append(unknown)
            return
        for name, value, line in env_lines(text):
            place = Place(file=word.text, line=line)
            self._set(name, [Word(text=value, place=place)], place)

    def _set(self, name: str, value: Value, place: Place, *, exports: bool = False) -> None:
        if value and sum(len(word.text) for word in value) > LONGEST_VALUE:
            value = None
        self._values[name] = value
        if exports or self._all_exported or name in self._exported:
            self._exported[name] = _variable(name, value, place)

    def _assigned_value(self, token: Token, found: tuple[str, bool, list[Part]]) -> Value:
        name, added, parts = found
        if token.array is not None:
            value: Value = [word for item in token.array for word in self._expand(item)]
            old = self._values.get(name, []) if added else []
            return None if old is None or value is None else [*old, *value]
        text, unknown = self._joined(parts)
        if added:
            old = self._values.get(name, [])
            if old is None or len(old) > 1:
                return None
            text = (old[0].text if old else "") + text
        return [Word(text=text, place=token.place, unknown=unknown)]

    def _joined(self, parts: Sequence[Part]) -> tuple[str, str | None]:
        """The text of parts without splitting; and the first expression that is not known."""
        text, unknown = "", None
        for part in parts:
            value = self._value(part)
            if value is None:
                text += part.text
                unknown = unknown or part.text
            else:
                text += " ".join(word.text for word in value)
                unknown = unknown or next((w.unknown for w in value if w.unknown), None)
        return text[: LONGEST_VALUE + 1], unknown

    def _expand(self, token: Token) -> list[Word]:
        """The words that a token becomes: unquoted values are split, `"${A[@]}"` is its items."""
        done: list[Word] = []
        text, unknown, open_word = "", None, False
        place = token.place
        for part in token.parts or ():
            value = self._value(part)
            if value is None:
                text, unknown, open_word = text + part.text, unknown or part.text, True
            elif part.kind == "text" or (part.quoted and not part.list):
                text += " ".join(word.text for word in value)
                unknown = unknown or next((w.unknown for w in value if w.unknown), None)
                open_word = True
            else:
                pieces = value if part.quoted else _split(value)
                for index, piece in enumerate(pieces):
                    if index and open_word:
                        done.append(Word(text=text, place=place, unknown=unknown))
                        text, unknown = "", None
                    place = piece.place if part.list else token.place
                    text, unknown = text + piece.text, unknown or piece.unknown
                    open_word = True
        if open_word:
            unknown = unknown or unknown_in(text)
            done.append(Word(text=text[:LONGEST_VALUE], place=place, unknown=unknown))
        return done

    def _value(self, part: Part) -> Value:
        if part.kind == "text":
            return [Word(text=part.text, place=self._place)]
        if part.kind != "variable":
            return None
        if part.name.isdigit() or part.name in ("@", "*"):
            return self._positional(part.name)
        known = part.name in self._values
        value = self._values.get(part.name)
        if known and value is None:
            return None
        empty = not value or (len(value) == 1 and not value[0].text)
        if part.operator in (":-", "-", ":=", "="):
            if known and not (empty and part.operator[0] == ":"):
                return value
            text, unknown = self._joined(part.default)
            if not text and not known:  # ${NAME:-}: left to whoever calls the script
                return None
            if part.operator.endswith("="):
                self._values[part.name] = [Word(text=text, place=self._place, unknown=unknown)]
            return [Word(text=text, place=self._place, unknown=unknown)]
        if part.operator in (":+", "+"):
            if not known:
                return []
            text, unknown = self._joined(part.default)
            return [] if empty else [Word(text=text, place=self._place, unknown=unknown)]
        if part.operator not in ("", "?", ":?") or not known:
            return None
        return value if part.list or not value else value[:1]

    def _positional(self, name: str) -> Value:
        if self._arguments is None:
            return None
        if name in ("@", "*"):
            return list(self._arguments[1:])
        number = int(name[:6])
        return [self._arguments[number]] if number < len(self._arguments) else []


def _assigned(token: Token) -> tuple[str, bool, list[Part]] | None:
    """NAME=..., NAME+=...: the name, whether it adds, and the parts of the value."""
    parts = list(token.parts or ())
    if not parts or parts[0].kind != "text" or parts[0].quoted:
        return None
    found = ASSIGNED.match(parts[0].text)
    if found is None or found[2]:
        return None
    rest = parts[0].text[found.end() :]
    first = [Part(kind="text", text=rest)] if rest else []
    return found[1], bool(found[3]), [*first, *parts[1:]]


def _variable(name: str, value: Value, place: Place, source: str = "a command") -> Variable:
    unknown = value is None or any(word.unknown for word in value)
    said = next((word.unknown for word in value or () if word.unknown), None)
    return Variable(
        name=name,
        value=None if unknown else " ".join(word.text for word in value or ()),
        place=place,
        source=said or (source if unknown else None),
    )


def _split(value: list[Word]) -> list[Word]:
    return [
        Word(text=text, place=word.place, unknown=word.unknown)
        for word in value
        for text in ([word.text] if word.unknown else word.text.split())
    ]


def env_lines(text: str) -> list[tuple[str, str, int]]:
    """NAME, value and line of a .env file; `export` and quotes are taken off (compose-spec)."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip().removeprefix("export ").strip()
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not NAME.fullmatch(name):
            continue
        value = value.strip()
        if value[:1] in ("'", '"'):
            end = value.find(value[0], 1)
            value = value[1:end] if end > 0 else value[1:]
        else:
            value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
        rows.append((name, value, number))
    return rows
