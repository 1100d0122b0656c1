"""Edits of words and variables in YAML: items of command and args, command strings, environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from infer_doctor.fixing.edits import layout, nodes, shell, tree
from infer_doctor.fixing.edits.common import (
    CannotEdit,
    Plan,
    Token,
    behind,
    find,
    line_end,
    line_start,
    plan,
    replaced,
)
from infer_doctor.fixing.edits.tree import At
from infer_doctor.frozen import frozen
from infer_doctor.model import Edit

FOLD = re.compile(r"[ \t]*\n[ \t]*")
"""A line end within quotes is a blank (YAML 1.2, 6.5)."""


@frozen
class Words:
    """The words of one list of scalars, or of one command in a string."""

    at: At
    tokens: tuple[Token, ...]
    string: bool


def edited(edit: Edit, text: str) -> str:
    """The text after a change of an option or a variable."""
    roots = tree.parsed(text)
    if edit.what == "variable":
        return _variable(edit, text, roots)
    edit, found = _place(edit, list(_words(text, roots)))
    if tree.shared(roots, found.at.node):
        raise CannotEdit("the command is shared through a YAML anchor")
    wanted = plan(edit, found.tokens)
    if found.string:
        new = shell.carried_out(text, found.tokens, wanted)
    else:
        new = _items(text, found, wanted)
    expected = wanted.of([token.text for token in found.tokens])
    again = [
        [token.text for token in row.tokens]
        for row in _words(new, tree.parsed(new))
        if row.at.path == found.at.path
    ]
    if expected not in again:
        raise CannotEdit(f"{edit.text}: this layout of YAML is not known")
    return new


def _words(text: str, roots: Sequence[Any]) -> Iterator[Words]:
    for at in tree.walk(roots):
        if tree.is_sequence(at.node) and all(map(tree.is_scalar, at.node.value)):
            tokens = [
                Token(
                    text=str(item.value),
                    start=tree.start(item),
                    end=tree.end(text, item),
                    line=tree.line(item),
                )
                for item in at.node.value
            ]
            yield Words(at=at, tokens=tuple(tokens), string=False)
        elif tree.is_scalar(at.node) and len(str(at.node.value).split()) > 1:
            yield from _string(text, at)


def _string(text: str, at: At) -> Iterator[Words]:
    """The commands in a scalar, in its raw text."""
    node = at.node
    begin, stop = tree.start(node), tree.end(text, node)
    indent = 0
    if node.style in ("|", ">"):
        begin = line_end(text, begin)
        lines = [line for line in text[begin:stop].split("\n") if line.strip()]
        indent = min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)
    elif node.style in ("'", '"'):
        begin, stop = begin + 1, stop - 1
        if FOLD.sub(" ", text[begin:stop]) != node.value:
            return  # escapes: what stands there is not what is meant
    folded = node.style != "|"
    for row in shell.commands(text, begin, stop, folded=folded, indent=indent):
        yield Words(at=at, tokens=tuple(row), string=True)


def _place(edit: Edit, rows: Sequence[Words]) -> tuple[Edit, Words]:
    """The words that are changed; where the one to go behind went with an earlier fix, the last."""
    try:
        return edit, _meant(edit, rows)
    except CannotEdit:
        strings = [row.tokens for row in rows if row.string and row.tokens]
        if edit.anchor is None or not strings:
            raise
    edit, tokens = behind(edit, strings)
    return edit, next(row for row in rows if row.tokens is tokens)


def _meant(edit: Edit, rows: Sequence[Words]) -> Words:
    """Those words that hold the one of the edit; a whole item before a string."""
    wanted = edit.anchor if edit.anchor is not None else edit.name

    def is_it(word: str) -> bool:
        return (word if edit.anchor is not None else word.partition("=")[0]) == wanted

    rows = sorted(rows, key=lambda row: row.string)
    flat = [token for row in rows for token in row.tokens]
    meant = flat[find(flat, edit, is_it)]
    return next(row for row in rows if any(token is meant for token in row.tokens))


def _items(text: str, found: Words, wanted: Plan) -> str:
    """A plan carried out on the items of a list."""
    items = found.at.node.value
    flow = found.at.node.flow_style
    if wanted.removed and len(wanted.removed) == len(items):
        raise CannotEdit("nothing would be left of the list")
    changes = [
        (token.start, token.end, word_of(word, items[at].style))
        for at, word in wanted.changed
        for token in (found.tokens[at],)
    ]
    if wanted.removed:
        changes += _without(text, found, wanted.removed)
    if wanted.after is not None:
        last = items[wanted.after]
        style = last.style if last.style in ("'", '"') else None
        place = found.tokens[wanted.after].end
        if flow:
            opened = text[line_start(text, tree.start(last)) : tree.start(last)]
            own = not opened.strip() and tree.line(last) > tree.line(found.at.node)
            words = [word_of(word, style) for word in wanted.added]
            changes += layout.more_items(text, place, opened if own else None, words)
        else:
            begin = line_start(text, tree.start(last))
            lead = text[begin : tree.start(last)]
            if lead.strip() != "-":
                lead = " " * tree.column(found.at.node) + "- "
            place = line_end(text, place)
            ended = text[:place].endswith("\n")
            lines = "".join(f"{lead}{word_of(word, style)}\n" for word in wanted.added)
            changes.append((place, place, lines if ended else "\n" + lines.removesuffix("\n")))
    return replaced(text, changes)


def _without(text: str, found: Words, removed: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """The places of items that go; in a [..] list they take one comma along."""
    tokens, first, last = found.tokens, removed[0], removed[-1]
    if not found.at.node.flow_style:
        for at in removed:
            begin = line_start(text, tokens[at].start)
            if text[begin : tokens[at].start].strip() != "-":
                raise CannotEdit("the first item stands behind another dash")
            yield begin, line_end(text, tokens[at].end), ""
    elif last + 1 < len(tokens):
        yield tokens[first].start, tokens[last + 1].start, ""
    else:
        yield layout.tail(text, tokens[first - 1].end, tokens[first].start), tokens[last].end, ""


def word_of(word: str, style: str | None) -> str:
    """A word that stays text: 8000 and true get quotes."""
    if style in ("'", '"'):
        return layout.scalar(word, style)
    if word.startswith("-") and layout.PLAIN.fullmatch(word.lstrip("-").replace("=", "_")):
        return word if not word.lstrip("-")[:1].isdigit() else json.dumps(word)
    return layout.scalar(word)


def _variable(edit: Edit, text: str, roots: Sequence[Any]) -> str:
    """Mappings and lists of compose, name and value of Kubernetes."""
    if edit.do == "set" and edit.anchor is not None:
        return _new_variable(edit, text, roots)
    rows = [at for at in tree.walk(roots) if _names(at, edit.name)]
    here = [at for at in rows if tree.line(_head(at)) == edit.line]
    if not here and len(rows) != 1:
        raise CannotEdit(f"{edit.name} no longer stands in line {edit.line}")
    at = (here or rows)[-1]
    if edit.do == "remove":
        return nodes.change(text, roots, (at, ()), "remove", None)
    value = json.dumps(edit.value)
    if tree.is_mapping(at.node):
        for step, key, child in tree.children(at.node):
            if step == "value":
                above = (*at.above, at.node)
                inner = At(
                    node=child, path=(*at.path, step), above=above, key=key, document=at.document
                )
                return nodes.change(text, roots, (inner, ()), "set", value)
        raise CannotEdit(f"{edit.name} comes from somewhere else")
    if at.key is not None:
        return nodes.change(text, roots, (at, ()), "set", value)
    return nodes.change(text, roots, (at, ()), "set", json.dumps(f"{edit.name}={edit.value}"))


def _head(at: At) -> Any:
    return at.key if at.key is not None else at.node


def _names(at: At, name: str) -> bool:
    """X: 1 of an environment, "X=1" of a list, {name: X, value: 1} of a pod."""
    if tree.is_scalar(at.node):
        if at.key is not None:
            return bool(at.key.value == name)
        return str(at.node.value).partition("=")[0] == name
    return (
        tree.is_mapping(at.node)
        and at.key is None
        and any(key.value == "name" and value.value == name for key, value in at.node.value)
    )


def _new_variable(edit: Edit, text: str, roots: Sequence[Any]) -> str:
    """Another entry of the container's environment, in the form that is there."""
    base = nodes.anchored(edit, roots)
    compose = any(step == "services" for step in base.path)
    name = "environment" if compose else "env"
    target = next(
        (
            At(
                node=child,
                path=(*base.path, step),
                above=(*base.above, base.node),
                key=key,
                document=base.document,
            )
            for step, key, child in tree.children(base.node)
            if step == name
        ),
        None,
    )
    if not compose:
        item = json.dumps({"name": edit.name, "value": edit.value})
        missing = () if target else (name,)
        return nodes.change(text, roots, (target or base, missing), "append", item)
    if target is not None and tree.is_sequence(target.node):
        item = json.dumps(f"{edit.name}={edit.value}")
        return nodes.change(text, roots, (target, ()), "append", item)
    steps = (edit.name,) if target else (name, edit.name)
    return nodes.change(text, roots, (target or base, steps), "set", json.dumps(edit.value))
