"""What the editors share: pieces of text with their places, and changes of a list of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from infer_doctor.frozen import frozen
from infer_doctor.model import Edit

STARTS = re.compile(
    r"(?:^|[/.])(?:vllm|trtllm-\w+|docker|podman|nerdctl)(?:$|\.entrypoints)|tritonserver"
)
"""A word of a command that starts an engine or a container."""


class CannotEdit(Exception):
    """The change cannot be made in this text; the words say why."""


class AlreadySo(CannotEdit):
    """There is nothing to change: the text already says so."""


@frozen
class Token:
    """One word in a text: what it means, and where it stands. `line` counts from 1."""

    text: str
    start: int
    end: int
    line: int


Change = tuple[int, int, str]
"""Start, end and what is written instead."""


def replaced(text: str, changes: Iterable[Change]) -> str:
    """The text with all changes, which do not overlap."""
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def line_of(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


def line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def line_end(text: str, index: int) -> int:
    """The place after the line end, or the end of the text."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def is_option(word: str) -> bool:
    """Whether a word is an option and no value; -1 and -0.5 are values."""
    return len(word) > 1 and word[0] == "-" and not (word[1].isdigit() or word[1] == ".")


def find(tokens: Sequence[Token], edit: Edit, matches: Callable[[str], bool]) -> int:
    """The index of the token that is meant: on its line, else the only one there is."""
    found = [number for number, token in enumerate(tokens) if matches(token.text)]
    here = [number for number in found if tokens[number].line == edit.line]
    if here:
        return here[-1]
    if len(found) == 1 or (found and edit.line is None):
        return found[-1]
    place = f" in line {edit.line}" if edit.line else ""
    raise CannotEdit(f"{edit.name or edit.anchor} no longer stands{place}")


@frozen
class Plan:
    """What happens to a list of words: some are written anew, some go, some come after one."""

    changed: tuple[tuple[int, str], ...] = ()
    removed: tuple[int, ...] = ()
    after: int | None = None
    added: tuple[str, ...] = ()

    def of(self, words: Sequence[str]) -> list[str]:
        """The words after it."""
        new = dict(self.changed)
        made: list[str] = []
        for number, word in enumerate(words):
            if number not in self.removed:
                made.append(new.get(number, word))
            if number == self.after:
                made.extend(self.added)
        return made


def plan(edit: Edit, tokens: Sequence[Token]) -> Plan:
    """What an option's edit does with the words of its command."""

    def is_it(word: str) -> bool:
        return word.partition("=")[0] == edit.name

    there = any(is_it(token.text) for token in tokens)
    if edit.do == "append" or (edit.do == "set" and edit.anchor is not None and not there):
        after = _anchor(tokens, edit)
        return Plan(after=after, added=(edit.name, *(() if edit.value is None else (edit.value,))))
    at = find(tokens, replace(edit, line=None) if edit.anchor is not None else edit, is_it)
    joined = "=" in tokens[at].text
    values = () if joined else _values(edit, tokens, at)
    if edit.do == "remove":
        return Plan(removed=(at, *values))
    if edit.do == "rename":
        new, _, value = (edit.value or "").partition(" ")
        if not value:
            rest = tokens[at].text.partition("=")
            return Plan(changed=((at, new + rest[1] + rest[2]),))
        if joined and new != edit.name:
            return Plan(changed=((at, f"{new}={value}"),))
        first = ((at, new), (values[0], value)) if values else ((at, new),)
        if not values:
            return Plan(changed=first, after=at, added=(value,))
        return Plan(changed=first, removed=values[1:])
    if edit.value is None:
        raise CannotEdit(f"{edit.name} is already there")
    if joined:
        return Plan(changed=((at, f"{edit.name}={edit.value}"),))
    if not values:
        return Plan(after=at, added=(edit.value,))
    return Plan(changed=((values[0], edit.value),), removed=values[1:])


def _anchor(tokens: Sequence[Token], edit: Edit) -> int:
    """The word to go behind: the last one of that name, but the first `run`, which is docker's."""
    if edit.anchor == "run":
        return next(number for number, token in enumerate(tokens) if token.text == edit.anchor)
    return find(tokens, edit, lambda word: word == edit.anchor)


def _values(edit: Edit, tokens: Sequence[Token], at: int) -> tuple[int, ...]:
    """The words of an option's value: those that the edit names, never a guess when it goes."""
    following = [token.text for token in tokens[at + 1 :]]
    if edit.old is not None:
        for count in range(1, len(following) + 1):
            if " ".join(following[:count]) == edit.old:
                return tuple(range(at + 1, at + 1 + count))
        raise CannotEdit(f"{edit.name} no longer has the value {edit.old}")
    if edit.do == "set" and following and not is_option(following[0]):
        return (at + 1,)
    return ()


def meant(edit: Edit, rows: Sequence[Sequence[Token]], word: str) -> Sequence[Token]:
    """The command that holds a word: in the line of the edit, else the only one.

    Where several commands of that line hold it, the one that starts an engine or a container.
    """

    def holds(row: Sequence[Token], line: int | None) -> bool:
        return any(
            word in (token.text, token.text.partition("=")[0]) and line in (None, token.line)
            for token in row
        )

    here = [row for row in rows if holds(row, edit.line)] if edit.line else []
    found = here or [row for row in rows if holds(row, None)]
    if len(found) > 1:
        found = [row for row in found if any(map(STARTS.search, (token.text for token in row)))]
    if len(found) == 1 or (found and edit.line is None):
        return found[-1]
    place = f" in line {edit.line}" if edit.line else ""
    if len(found) > 1:
        raise CannotEdit(f"{word} stands in {len(found)} commands{place}")
    raise CannotEdit(f"{word} no longer stands{place}")


def behind(edit: Edit, rows: Sequence[Sequence[Token]]) -> tuple[Edit, Sequence[Token]]:
    """The command that a new word goes to, and the edit with a word that is there to go behind.

    The word that the edit names may come out of a variable, or may have gone with an earlier fix: then
    the last one of the command in its line, else of the one that ends in the line before.
    """
    try:
        here = [row for row in rows if any(token.line == edit.line for token in row)]
        return edit, meant(edit, here if edit.line else rows, edit.anchor or "")
    except CannotEdit:
        line = edit.line or 1
        near = [row for row in rows if row[0].line <= line <= row[-1].line + 1]
        around = [row for row in near if any(STARTS.search(token.text) for token in row)]
        if len(around) != 1:
            around = [row for row in near if line <= row[-1].line] or near
        if len(around) != 1:
            raise
    last = around[0][-1]
    return replace(edit, anchor=last.text, line=last.line), around[0]
