"""A systemd unit -> the engine that its Exec lines start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from infer_doctor.launch.command import Around, launches
from infer_doctor.launch.inside import Read, env_file
from infer_doctor.launch.model import Launch, Place, Variable, Word

SECTION = re.compile(r"^\[(Unit|Service|Install)\]\s*$", re.M)
STARTS = ("ExecStart", "ExecStartPre", "ExecStartPost")
PREFIXES = "@-:+!|"
"""Characters before the program of an Exec line (systemd.service(5), table 2)."""

QUOTED = re.compile(
    r"""[ \t]*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|((?:[^\s"'\\]|\\.)(?:[^\s\\]|\\.)*))""",
    re.S,
)
ESCAPES = {"n": "\n", "t": "\t", "s": " ", "\\": "\\", '"': '"', "'": "'"}
EXPRESSION = re.compile(r"\$(\$)?(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
SPECIFIER = re.compile(r"%([%A-Za-z])")


def is_unit(text: str) -> bool:
    return bool(SECTION.search(text)) and "ExecStart" in text


def read(text: str, file: str, beside: Read | None = None) -> list[Launch]:
    """What ExecStart begins; a unit of Podman's (`podman run` in it) counts as a container."""
    environment: list[Variable] = []
    starts: list[tuple[str, Place]] = []
    folder = None
    for section, key, value, line in lines(text):
        if section != "Service":
            continue
        place = Place(file=file, line=line)
        if key == "Environment":
            environment = [] if not value else [*environment, *_assignments(value, place)]
        elif key == "EnvironmentFile":
            environment += env_file(value.removeprefix("-"), beside, place)
        elif key == "PassEnvironment":
            environment += [
                Variable(name=name, value=None, place=place, source="the manager")
                for name in value.split()
            ]
        elif key == "WorkingDirectory":
            folder = value.removeprefix("-") or None
        elif key in STARTS:
            starts = [*starts, (value, place)] if value else []
    found: list[Launch] = []
    for value, place in starts:
        around = Around(name=file, kind="systemd", machine="another", folder=folder, read=beside)
        words = _command(value, place, environment)
        found += [row for row in launches(words, around, environment) if row.engine is not None]
    if len(found) > 1:
        return [replace(row, name=f"{file}:{row.place.line}") for row in found]
    return found


def lines(text: str) -> Iterator[tuple[str, str, str, int]]:
    """Section, key, value and line of each setting; a backslash joins lines, comments between too."""
    section, whole, first = "", "", 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith(("#", ";")) or (not line and not whole):
            whole += "\n" if whole else ""
            continue
        first = first if whole else number
        if line.endswith("\\"):
            whole += line[:-1] + "\n"
            continue
        whole, done = "", whole + line
        if done.startswith("[") and done.endswith("]"):
            section = done[1:-1]
            continue
        key, equals, value = done.partition("=")
        if equals:
            yield section, key.strip(), value.strip(), first


def split(value: str, place: Place) -> Iterator[Word]:
    """Words with systemd's quotes; the line of each counts the lines joined before it."""
    at = 0
    while (found := QUOTED.match(value.replace("\n", " "), at)) is not None:
        inner = next(group for group in found.groups() if group is not None)
        line = (place.line or 1) + value.count("\n", 0, found.end() - len(inner))
        text = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[0]), inner, flags=re.S)
        yield Word(text=text, place=Place(file=place.file, line=line))
        at = found.end()


def _command(value: str, place: Place, environment: list[Variable]) -> list[Word]:
    known = {row.name: row for row in environment}
    words: list[Word] = []
    for word in split(value, place):
        text = word.text.lstrip(PREFIXES) if not words else word.text
        whole = EXPRESSION.fullmatch(text)
        row = known.get(whole[3]) if whole and whole[3] and not whole[1] else None
        if row is not None and row.value is not None:  # $NAME alone is split at blanks
            words += [replace(word, text=part) for part in row.value.split()]
            continue
        words.append(_put_in(replace(word, text=text), known))
    return words


def _put_in(word: Word, known: dict[str, Variable]) -> Word:
    unknown: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        row = known.get(match[2] or match[3])
        if row is None or row.value is None:
            unknown.append(match[0])
            return match[0]
        return row.value

    def specifier(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        unknown.append(match[0])
        return match[0]

    text = SPECIFIER.sub(specifier, EXPRESSION.sub(value, word.text))
    return replace(word, text=text, unknown=unknown[0] if unknown else None)


def _assignments(value: str, place: Place) -> Iterator[Variable]:
    for word in split(value, place):
        name, equals, text = word.text.partition("=")
        if equals:
            yield Variable(name=name, value=text, place=word.place)
