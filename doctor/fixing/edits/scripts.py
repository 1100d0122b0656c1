"""Edits of shell scripts, command lines, systemd units and Dockerfiles: words and variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from infer_doctor.fixing.edits import shell
from infer_doctor.fixing.edits.common import (
    CannotEdit,
    Plan,
    Token,
    behind,
    find,
    line_end,
    line_of,
    line_start,
    meant,
    plan,
    replaced,
)
from infer_doctor.model import Edit

JSON_ITEM = re.compile(r'"(?:[^"\\]|\\.)*"')
INSTRUCTION = re.compile(r"[ \t]*(CMD|ENTRYPOINT|ENV|RUN)[ \t]+", re.I)
HERE = re.compile(r"<<-?[ \t]*[\"']?(\w+)")
BEGINS = ("if", "then", "else", "elif", "do", "while", "until", "!", "time", "{")
"""Words of the shell that a command may stand behind (POSIX, "Reserved Words")."""
OPENS = re.compile(r"(?:\b(?:then|do|else)|[{(|]|&&|\))\s*(?:#.*)?$")
"""The end of a line whose block or list must go on with a command."""
GOES_ON = re.compile(r"(?:\||&&|\()\s*$")
SETTING = re.compile(r"^(ExecStart|ExecStartPre|Environment)[ \t]*=[ \t]*", re.M)
VARIABLE_OPTIONS = ("-e", "--env")
DECLARES = ("export", "declare", "-x")
HEADS = ("ENV", "ENVIRONMENT")


def edited(edit: Edit, text: str) -> str:
    """The text after a change of an option or a variable."""
    lists = _commands(edit, text)
    if edit.what == "variable":
        return _variable(edit, text, lists)
    if edit.anchor is None:
        tokens = meant(edit, [row for row in lists if row], edit.name)
    else:
        edit, tokens = behind(edit, [row for row in lists if row])
    wanted = plan(edit, tokens)
    new = _carried_out(edit, text, tokens, wanted)
    expected = wanted.of([token.text for token in tokens])
    if expected not in [[token.text for token in row] for row in _commands(edit, new)]:
        raise CannotEdit(f"{edit.text}: the words around it cannot be told apart")
    return new


def _commands(edit: Edit, text: str) -> list[list[Token]]:
    """The words of everything that is started, command by command."""
    if edit.format not in ("dockerfile", "systemd"):
        return list(shell.commands(text))
    matches = _instructions(text) if edit.format == "dockerfile" else SETTING.finditer(text)
    found: list[list[Token]] = []
    for match in matches:
        end = _logical_end(text, match.end())
        if edit.format == "dockerfile" and text[match.end() : match.end() + 1] == "[":
            found.append(_items(text, match.end(), end))
        else:
            words = [word for row in shell.commands(text, match.end(), end) for word in row]
            head = Token(
                text=match[1],
                start=match.start(1),
                end=match.end(),
                line=line_of(text, match.start(1)),
            )
            found.append([head, *words] if match[1].upper() in ("ENV", "ENVIRONMENT") else words)
    return found


def _instructions(text: str) -> Iterator[re.Match[str]]:
    """CMD, ENTRYPOINT, ENV and RUN where an instruction begins: HEALTHCHECK and heredocs hold others."""
    place = 0
    while place < len(text):
        end = line_end(text, place)
        if text[place:end].strip() and not text[place:end].lstrip().startswith("#"):
            end = min(_logical_end(text, place) + 1, len(text))
            line = text[place:end]
            if match := INSTRUCTION.match(text, place, end):
                yield match
            for delimiter in HERE.findall(line):
                stop = re.compile(rf"^\t*{re.escape(delimiter)}$", re.M).search(text, end)
                end = stop.end() + 1 if stop else end
        place = end


def _logical_end(text: str, place: int) -> int:
    """The end of a line that goes on behind a backslash; comment lines within it belong to it."""
    while True:
        end = line_end(text, place)
        line = text[line_start(text, max(end - 1, 0)) : end].strip()
        if end == len(text) or not (line.endswith("\\") or line.startswith("#")):
            return end - 1 if text[end - 1 : end] == "\n" else end
        place = end


def _items(text: str, start: int, end: int) -> list[Token]:
    """The words of CMD ["a", "b"]."""
    return [
        Token(
            text=str(json.loads(item[0])),
            start=item.start(),
            end=item.end(),
            line=line_of(text, item.start()),
        )
        for item in JSON_ITEM.finditer(text, start, end)
    ]


def _carried_out(edit: Edit, text: str, tokens: Sequence[Token], wanted: Plan) -> str:
    if edit.format != "dockerfile" or text[tokens[0].start] != '"':
        return shell.carried_out(text, tokens, wanted)
    changes = [(tokens[at].start, tokens[at].end, json.dumps(word)) for at, word in wanted.changed]
    if wanted.removed:
        first, last = wanted.removed[0], wanted.removed[-1]
        if first:
            changes.append((tokens[first - 1].end, tokens[last].end, ""))
        elif last + 1 < len(tokens):
            changes.append((tokens[first].start, tokens[last + 1].start, ""))
        else:
            raise CannotEdit("nothing would be left to start")
    if wanted.after is not None:
        end = tokens[wanted.after].end
        added = "".join(f", {json.dumps(word)}" for word in wanted.added)
        changes.append((end, end, added))
    return replaced(text, changes)


def _variable(edit: Edit, text: str, lists: Sequence[list[Token]]) -> str:
    """Set, change or take out a variable: an assignment, `-e X=1`, ENV, Environment=."""
    if edit.do == "set" and edit.anchor is not None:
        return _new_variable(edit, text, lists)
    flat = [token for row in lists for token in row]

    def is_it(word: str) -> bool:
        return _bare(word).partition("=")[0] == edit.name

    meant = flat[find(flat, edit, is_it)]
    row = next(row for row in lists if meant in row)
    at = row.index(meant)
    legacy = meant.text == edit.name and at == 1 and row[0].text.upper() == "ENV"  # ENV X 1 2
    if edit.do == "set":
        prefix = meant.text[: len(meant.text) - len(_bare(meant.text))]
        if edit.format == "systemd":
            assigned = _for_systemd(f"{prefix}{edit.name}={edit.value}")
        else:  # quotes around the whole would make it a program's name
            assigned = f"{prefix}{edit.name}={shell.quote(edit.value or '')}"
        return replaced(text, [(meant.start, row[-1].end if legacy else meant.end, assigned)])
    first = at - 1 if at and row[at - 1].text in VARIABLE_OPTIONS else at
    last = len(row) - 1 if legacy else at
    heads = 1 if row[0].text.upper() in HEADS else 0
    others = [
        token
        for number, token in enumerate(row[heads:], heads)
        if not first <= number <= last and token.text not in (*DECLARES, *BEGINS)
    ]
    if not others:
        return _without_statement(edit, text, row, meant)
    if first == heads and last + 1 < len(row) and heads:  # "=" of Environment= stays
        return replaced(text, [(row[first].start, row[last + 1].start, "")])
    return shell.carried_out(text, row, Plan(removed=tuple(range(first, last + 1))))


def _without_statement(edit: Edit, text: str, row: Sequence[Token], meant: Token) -> str:
    """A command that is nothing but the variable goes; what must have a command gets another one."""
    start, end = line_start(text, row[0].start), line_end(text, row[-1].end)
    behind = text[row[-1].end : end].strip()
    before = text[:start].rstrip().rpartition("\n")[2].rstrip()
    alone = not text[start : row[0].start].strip() and (not behind or behind.startswith("#"))
    if alone and row[0].text not in BEGINS and (edit.format != "shell" or not OPENS.search(before)):
        return text[:start] + text[end:]
    if edit.format != "shell":
        raise CannotEdit(f"more than {edit.name} stands in line {edit.line}")
    first = next(token for token in row if token.text not in BEGINS)
    return replaced(text, [(first.start, meant.end, f"unset {edit.name}")])


def _for_systemd(assigned: str) -> str:
    """An assignment in the quotes of systemd.exec(5), which knows \" and \\ in them."""
    return assigned if shell.quote(assigned) == assigned else json.dumps(assigned)


def _bare(word: str) -> str:
    """X=1 of --env=X=1."""
    for option in VARIABLE_OPTIONS:
        if word.startswith(f"{option}="):
            return word[len(option) + 1 :]
    return word


def _new_variable(edit: Edit, text: str, lists: Sequence[list[Token]]) -> str:
    """A line of its own before the line that starts the engine."""
    if edit.format == "dockerfile":
        start = _before_command(text)
    else:
        _, row = behind(edit, [row for row in lists if row])
        start = line_start(text, row[0].start)
        while start > 1 and text[:start].endswith("\\\n"):
            start = line_start(text, start - 1)
        lead, before = text[start : row[0].start], text[:start].rstrip(" \t\n")
        if edit.format == "shell" and (
            lead.strip(" \t\\\n") or row[0].text in BEGINS or GOES_ON.search(before)
        ):
            return _before_program(edit, text, row)
    if start == len(text) and text and not text.endswith("\n"):
        text, start = text + "\n", start + 1
    indent = text[start : start + len(text[start:]) - len(text[start:].lstrip(" \t"))]
    assigned = f"{edit.name}={shell.quote(edit.value or '')}"
    word = {"dockerfile": "ENV ", "systemd": "Environment="}.get(edit.format, "export ")
    if edit.format == "systemd":
        assigned = _for_systemd(f"{edit.name}={edit.value}")
    return f"{text[:start]}{indent}{word}{assigned}\n{text[start:]}"


def _before_program(edit: Edit, text: str, row: Sequence[Token]) -> str:
    """X=1 in front of the command itself, where no line of its own can stand before it."""
    first = next((token for token in row if token.text not in BEGINS), None)
    if first is None or first.text.endswith("="):
        raise CannotEdit(f"no place for {edit.name} before line {edit.line}")
    assigned = f"{edit.name}={shell.quote(edit.value or '')}"
    return replaced(text, [(first.start, first.start, f"{assigned} ")])


def _before_command(text: str) -> int:
    """Where an ENV goes in the last stage: before what is started, else at the end."""
    stage = max(
        (row.start() for row in re.finditer(r"^[ \t]*FROM\b", text, re.M | re.I)), default=0
    )
    found = (
        row.start()
        for row in _instructions(text)
        if row.start() >= stage and row[1].upper() in ("CMD", "ENTRYPOINT")
    )
    return next(found, len(text))
