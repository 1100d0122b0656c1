"""How nodes of YAML and JSON are written into a text: indentation, quotes, blocks and flows as they
stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from infer_doctor.fixing.edits.common import CannotEdit, Change, line_end, line_start, replaced
from infer_doctor.fixing.edits.tree import (
    At,
    Step,
    column,
    end,
    is_json,
    is_mapping,
    is_null,
    is_scalar,
    is_sequence,
    line,
    loaded,
    spoken,
    start,
    walk,
)

PLAIN = re.compile(r"[A-Za-z_/][\w./@%+=-]*(?::[\w./@%+=-]+)*")

REST = re.compile(r"(,?)[ \t]*(?:#[^\n]*)?(?=\n)")
"""What may stand behind an entry to the end of its line."""

NOT_TEXT = re.compile(r"(?:y|n|yes|no|on|off|true|false|null|none|~)", re.I)
"""Words that YAML 1.1, which compose and Kubernetes read, or 1.2 takes for something else."""


def _nest(missing: Sequence[Step], value: Any) -> Any:
    for step in reversed(missing):
        if isinstance(step, int):
            raise CannotEdit(f"there is no item {step}")
        value = {step: value}
    return value


def assign(text: str, roots: Sequence[Any], at: At, missing: Sequence[Step], value: Any) -> str:
    """The text with another value at a node, or with the keys that are missing below it."""
    if not missing:
        if isinstance(value, (dict, list)) or not is_scalar(at.node):
            if is_null(at.node) and at.key is not None:
                return _below_key(text, roots, at, value)
            return _replace_whole(text, at, value)
        if is_null(at.node) and start(at.node) == at.node.end_mark.index:
            place = end(text, at.node, at.key)
            return replaced(text, [(place, place, f" {scalar(value)}")])
        if at.node.style in ("|", ">"):
            raise CannotEdit(f"{spoken(at.path)} is a text of several lines")
        style = '"' if is_json(text) else at.node.style
        return replaced(text, [(start(at.node), at.node.end_mark.index, scalar(value, style))])
    value = _nest(missing[1:], value)
    if is_null(at.node) and at.key is not None:
        return _below_key(text, roots, at, {missing[0]: value})
    if not is_mapping(at.node):
        raise CannotEdit(f"{spoken(at.path)} is no mapping")
    if at.node.flow_style:
        return _into_flow(
            text, at.node, f"{_flow_key(text, at.node, missing[0])}: {json.dumps(value)}"
        )
    indent = column(at.node.value[0][0])
    return _new_lines(text, at, "".join(_entry(str(missing[0]), value, indent, roots)))


def _replace_whole(text: str, at: At, value: Any) -> str:
    """Another kind of value on the same line: only what stands on one line is replaced."""
    stop = end(text, at.node, at.key)
    if "\n" in text[start(at.node) : stop]:
        raise CannotEdit(f"{spoken(at.path)} has another form")
    return replaced(text, [(start(at.node), stop, json.dumps(value))])


def _below_key(text: str, roots: Sequence[Any], at: At, value: Any) -> str:
    """`key:` without a value gets one."""
    place = line_end(text, end(text, at.node, at.key))
    head = text[:place] if text[:place].endswith("\n") else text[:place] + "\n"
    if start(at.node) != at.node.end_mark.index:
        raise CannotEdit(f"{spoken(at.path)} is null")
    lines = "".join(_entry("", value, column(at.key), roots)).partition("\n")[2]
    return head + lines + text[place:]


def _new_lines(text: str, at: At, lines: str) -> str:
    """After the last line of a block."""
    last = at.node.value[-1]
    stop = end(text, last[1], last[0]) if isinstance(last, tuple) else end(text, last)
    place = line_end(text, stop)
    if not text[:place].endswith("\n"):
        return text[:place] + "\n" + lines.removesuffix("\n") + text[place:]
    return text[:place] + lines + text[place:]


def _into_flow(text: str, node: Any, words: str) -> str:
    """One more entry of [..] or {..}, on a line of its own where the others have one."""
    if not node.value:
        place = int(node.end_mark.index) - 1
        return replaced(text, [(place, place, words)])
    last = node.value[-1]
    first, final = (last[0], last[1]) if isinstance(last, tuple) else (last, last)
    opened = text[line_start(text, start(first)) : start(first)]
    own = not opened.strip() and line(first) > line(node)
    return replaced(text, more_items(text, end(text, final), opened if own else None, [words]))


def more_items(text: str, place: int, opened: str | None, words: Sequence[str]) -> list[Change]:
    """Entries of [..] or {..} behind the one that ends at `place`; `opened` is what begins a line where
    each has one of its own. A comment behind the last one stays behind it."""
    if opened is None:
        return [(place, place, "".join(f", {word}" for word in words))]
    rest = REST.match(text, place)
    if rest is None:
        return [(place, place, "".join(f",\n{opened}{word}" for word in words))]
    lines = ",".join(f"\n{opened}{word}" for word in words)
    if rest.end() == place:
        return [(place, place, f",{lines}")]
    comma = [] if rest[1] else [(place, place, ",")]
    return [*comma, (rest.end(), rest.end(), lines + rest[1])]


def _flow_key(text: str, node: Any, name: Step) -> str:
    quoted = any(key.style == '"' for key, _ in node.value) or not PLAIN.fullmatch(str(name))
    quoted = quoted or is_json(text)
    return json.dumps(name) if quoted else str(name)


def append(text: str, roots: Sequence[Any], at: At, value: Any) -> str:
    """The text with one more item of a list."""
    if not is_sequence(at.node):
        raise CannotEdit(f"{spoken(at.path)} is no list")
    if at.node.flow_style:
        return _into_flow(text, at.node, json.dumps(value))
    return _new_lines(text, at, "".join(_item(value, column(at.node), roots)))


def remove(text: str, at: At) -> str:
    """The text without a key or item; comments behind what stays are kept."""
    parent = at.above[-1]
    first = at.key if at.key is not None else at.node
    stop = end(text, at.node, at.key)
    siblings = [pair[0] if isinstance(pair, tuple) else pair for pair in parent.value]
    here = next(number for number, node in enumerate(siblings) if node is first)
    if parent.flow_style:
        if here + 1 < len(siblings):
            return replaced(text, [(start(first), start(siblings[here + 1]), "")])
        if not here:
            return replaced(text, [(start(first), stop, "")])
        before = parent.value[here - 1]
        final = before[1] if isinstance(before, tuple) else before
        return replaced(text, [(tail(text, end(text, final), start(first)), stop, "")])
    begin = line_start(text, start(first))
    lead = text[begin : start(first)]
    if at.key is not None and lead.strip():  # the first key of an item: "- name: x"
        if here + 1 == len(siblings):
            raise CannotEdit(f"{spoken(at.path)} is all that its item holds")
        return replaced(text, [(start(first), start(siblings[here + 1]), "")])
    if at.key is None and lead.strip() != "-":
        raise CannotEdit(f"{spoken(at.path)}: this layout of YAML is not known")
    return text[:begin] + text[line_end(text, stop) :]


def tail(text: str, before: int, first: int) -> int:
    """Where the last entry of [..] or {..} begins to go: a comment behind the one before it stays,
    and with it the comma, which YAML allows at the end."""
    between = text[before:first]
    return before + between.rindex("\n") if "#" in between else before


def rename(text: str, at: At, successor: str) -> tuple[str, tuple[str, Any]]:
    """The text with another key, and a value where the successor brings one; both."""
    if at.key is None:
        raise CannotEdit("an item has no name")
    name, _, value = successor.partition(" ")
    changes = [(start(at.key), int(at.key.end_mark.index), scalar(name, at.key.style))]
    if not value:
        return replaced(text, changes), (name, None)
    found = loaded(value)[0]
    if not is_scalar(at.node):
        raise CannotEdit(f"{spoken(at.path)} has another form")
    style = '"' if is_json(text) else at.node.style
    changes.append((start(at.node), int(at.node.end_mark.index), scalar(found, style)))
    return replaced(text, changes), (name, found)


def scalar(value: Any, style: str | None = None) -> str:
    """One value as YAML, in the quotes that stood there."""
    if not isinstance(value, str):
        return json.dumps(value)
    if style == "'":
        return "'" + value.replace("'", "''") + "'"
    if style != '"' and PLAIN.fullmatch(value) and not NOT_TEXT.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _entry(name: str, value: Any, indent: int, roots: Sequence[Any]) -> Iterator[str]:
    """The lines of `name: value`."""
    head = f"{' ' * indent}{scalar(name) if name else ''}:"
    if isinstance(value, dict) and value:
        yield f"{head}\n"
        for key, item in value.items():
            yield from _entry(str(key), item, indent + _indent(roots), roots)
    elif isinstance(value, list) and value:
        yield f"{head}\n"
        for item in value:
            yield from _item(item, indent + _item_indent(roots), roots)
    else:
        yield f"{head} {scalar(value)}\n"


def _item(value: Any, indent: int, roots: Sequence[Any]) -> Iterator[str]:
    """The lines of `- value`."""
    if isinstance(value, dict) and value:
        lines = [
            part
            for key, item in value.items()
            for part in _entry(str(key), item, indent + 2, roots)
        ]
        yield f"{' ' * indent}- {lines[0].lstrip(' ')}"
        yield from lines[1:]
    else:
        yield f"{' ' * indent}- {scalar(value)}\n"


def _indent(roots: Sequence[Any]) -> int:
    """By how much the file indents a mapping below its key."""
    for at in walk(roots):
        if at.key is not None and is_mapping(at.node) and not at.node.flow_style and at.node.value:
            found = column(at.node.value[0][0]) - column(at.key)
            if found > 0:
                return found
    return 2


def _item_indent(roots: Sequence[Any]) -> int:
    """By how much the file indents the dash of a list below its key."""
    for at in walk(roots):
        if at.key is not None and is_sequence(at.node) and not at.node.flow_style:
            return max(column(at.node) - column(at.key), 0)
    return 2
