"""The words of shell text with their places.

The standard library's shlex tells words but not where they stand, so quotes are walked here. What a
shell would compute ($X, `x`) stays as it is written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from infer_doctor.fixing.edits.common import (
    CannotEdit,
    Change,
    Plan,
    Token,
    is_option,
    line_end,
    line_of,
    line_start,
    replaced,
)

OPERATORS = "|&;()<>"
REDIRECTION = re.compile(r"&>>?|(?:>>|>&|<&|<>|>\||<<<|>|<)(?!\()")
HERE = re.compile(r"<<-?(?!<)[ \t]*")
ANSI_C = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.S)
GAP = re.compile(r"(?:[ \t]|\\\n)+")
FOLDED_GAP = re.compile(r"(?:[ \t\n]|\\\n)+")
PLAIN = re.compile(r"[\w@%+=:,./-]+")


def commands(
    text: str,
    start: int = 0,
    end: int | None = None,
    *,
    folded: bool = False,
    indent: int = 0,
) -> Iterator[list[Token]]:
    """The words of each simple command: a line end or an operator ends it.

    "( ... )" of an array is one command with all its lines; in `folded` text, as YAML folds it, a
    line end is a blank. `indent` are the blanks before each line that are not the script's own.
    """
    blank = FOLDED_GAP if folded else GAP
    end = len(text) if end is None else end
    found: list[Token] = []
    here: list[str] = []
    array = False
    place = start
    while place < end:
        if gap := blank.match(text, place, end):
            place = gap.end()
        elif sign := HERE.match(text, place, end) or REDIRECTION.match(text, place, end):
            if found and found[-1].end == place and found[-1].text.isdigit():
                found.pop()  # 2 of 2>&1
            gap = blank.match(text, sign.end(), end)
            place = gap.end() if gap else sign.end()
            if place < end and text[place] not in "\n" + OPERATORS:
                target = _word(text, place, end)
                place = target.end
                if HERE.match(sign[0]):
                    here.append(target.text)
        elif text[place] == "#" and (place == start or text[place - 1] in " \t\n;"):
            place = min(line_end(text, place) - 1, end) if "\n" in text[place:end] else end
        elif text[place] == "\n" and array:
            place += 1
        elif text[place] == "(" and place and text[place - 1] == "=":
            array, place = True, place + 1
        elif text[place] in OPERATORS + "\n":
            if found:
                yield found
            found, array, place = [], False, place + 1
            if text[place - 1] == "\n" and here:
                place = _behind_bodies(text, place, end, here, indent)
                here = []
        else:
            word = _word(text, place, end)
            found.append(word)
            place = word.end
    if found:
        yield found


def _behind_bodies(text: str, place: int, end: int, delimiters: Sequence[str], indent: int) -> int:
    """Behind the here-documents that begin at `place`: their lines are no commands."""
    for delimiter in delimiters:
        while place < end:
            stop = line_end(text, place)
            line, place = text[place + indent : stop].strip("\t\n"), stop
            if line == delimiter:
                break
    return min(place, end)


def _word(text: str, start: int, end: int) -> Token:
    place = start
    made: list[str] = []
    while place < end and text[place] not in " \t\n" + OPERATORS:
        char = text[place]
        if char == "\\":
            if text[place + 1 : place + 2] != "\n":
                made.append(text[place + 1 : place + 2])
            place += 2
        elif text.startswith("$'", place):  # bash, "ANSI-C Quoting"
            found = ANSI_C.match(text, place, end)
            close = found.end() if found else end
            made.append(text[place:close])
            place = close
        elif char == "'":
            close = text.find("'", place + 1, end)
            close = end if close < 0 else close
            made.append(text[place + 1 : close])
            place = close + 1
        elif char == '"':
            place = _double(text, place + 1, end, made)
        elif text.startswith(("$(", "${"), place):
            close = _closing(text, place + 1, end)
            made.append(text[place:close])
            place = close
        elif char == "=" and text[place + 1 : place + 2] == "(":
            made.append(char)
            place += 1
            break
        else:
            made.append(char)
            place += 1
    return Token(text="".join(made), start=start, end=min(place, end), line=line_of(text, start))


def _double(text: str, place: int, end: int, made: list[str]) -> int:
    while place < end and text[place] != '"':
        if text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`", "\n"):
            made.append(text[place + 1].replace("\n", ""))
            place += 2
        elif text.startswith(("$(", "${"), place):  # it has quotes of its own
            close = _closing(text, place + 1, end)
            made.append(text[place:close])
            place = close
        else:
            made.append(text[place])
            place += 1
    return place + 1


def _closing(text: str, place: int, end: int) -> int:
    """Behind the bracket that closes the one at `place`."""
    pairs = {"(": ")", "{": "}"}
    depth, opened = 0, text[place]
    for index in range(place, end):
        depth += (text[index] == opened) - (text[index] == pairs[opened])
        if not depth:
            return index + 1
    return end


def quote(word: str) -> str:
    return word if PLAIN.fullmatch(word) else shlex.quote(word)


def carried_out(text: str, tokens: Sequence[Token], plan: Plan) -> str:
    """The text with a plan's changes; words that stand on lines of their own take them along."""
    changes: list[Change] = [_rewritten(text, tokens[at], word) for at, word in plan.changed]
    if plan.removed:
        changes.append(_removal(text, tokens, plan.removed))
    if plan.after is not None:
        last = tokens[plan.after]
        between = _gap_before(text, tokens, plan.after) if is_option(plan.added[0]) else " "
        words = " ".join(quote(word) for word in plan.added)
        changes.append((last.end, last.end, between + words))
    return replaced(text, changes)


def _rewritten(text: str, token: Token, word: str) -> Change:
    """Another word; where only the flag of --flag=VALUE is new, its value stays as it is written."""
    flag, equal, value = token.text.partition("=")
    new, _, other = word.partition("=")
    if equal and value == other and new != flag and text.startswith(flag + equal, token.start):
        return token.start, token.start + len(flag), new
    return token.start, token.end, quote(word)


def _removal(text: str, tokens: Sequence[Token], removed: Sequence[int]) -> Change:
    first, last = removed[0], removed[-1]
    if list(removed) != list(range(first, last + 1)):
        raise CannotEdit("the words do not stand side by side")
    start, end = tokens[first].start, tokens[last].end
    begin = line_start(text, start)
    rest = text[end : line_end(text, end)]
    beside = rest.strip(" \t\\\n")  # a comment behind words of their own line goes with them
    alone = not text[begin:start].strip() and (not beside or beside.startswith("#"))
    follows = first > 0 and tokens[first - 1].end < begin
    if alone and (
        rest.strip() == "\\" or not follows or "\\" not in text[tokens[first - 1].end : begin]
    ):
        return begin, end + len(rest), ""
    if first == 0:
        return start, tokens[last + 1].start if last + 1 < len(tokens) else end, ""
    if "#" in text[tokens[first - 1].end : start]:
        return start, end, ""
    return tokens[first - 1].end, end, ""


def _gap_before(text: str, tokens: Sequence[Token], at: int) -> str:
    """How an option is set off from what stands before it: a blank, or a line of its own."""
    first = at
    if first and not tokens[first].text.startswith("-") and tokens[first - 1].text.startswith("-"):
        first -= 1
    if not first or not tokens[first].text.startswith("-"):
        return " "
    gap = text[tokens[first - 1].end : tokens[first].start]
    if "\n" not in gap or "#" in gap:
        return " "
    return gap
