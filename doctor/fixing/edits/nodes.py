"""Edits of keys in YAML and JSON: set, remove, append, rename, at the places ruamel.yaml tells."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from infer_doctor.fixing.edits.common import (
    AlreadySo,
    CannotEdit,
    line_end,
    line_start,
    replaced,
)
from infer_doctor.frozen import frozen
from infer_doctor.model import Edit

Step = str | int

PLAIN = re.compile(r"[A-Za-z_/][\w./@%+=-]*(?::[\w./@%+=-]+)*")
NODES = 200_000
"""With aliases unfolded; a manifest of 100 services has 20,000."""
PREDICTOR = "model"
"""The part of KServe's InferenceService that stands for a container and has no name."""

NOT_TEXT = re.compile(r"(?:y|n|yes|no|on|off|true|false|null|none|~)", re.I)
"""Words that YAML 1.1, which compose and Kubernetes read, or 1.2 takes for something else."""


@frozen
class At:
    """A node, the path to it from the root of its document, and the nodes above it."""

    node: Any
    path: tuple[Step, ...]
    above: tuple[Any, ...]
    key: Any = None
    document: int = 0


def parsed(text: str) -> list[Any]:
    """The nodes of all documents; raises CannotEdit for aliases that would unfold without end."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        roots = list(YAML(typ="rt", pure=True).compose_all(io.StringIO(text)))
    except (YAMLError, ValueError) as error:
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise CannotEdit(f"it is not valid YAML (a template?): {problem}") from None
    if sum(1 for _ in islice(walk(roots), NODES + 1)) > NODES:
        raise CannotEdit(f"it has more than {NODES:,} nodes")
    return roots


def is_json(text: str) -> bool:
    """Whether a text is JSON, which is YAML too, but must stay JSON."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def loaded(text: str) -> list[Any]:
    """The data of all documents."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return list(YAML(typ="safe", pure=True).load_all(io.StringIO(text)))
    except (YAMLError, ValueError) as error:
        raise CannotEdit(f"it cannot be read: {' '.join(str(error).split())[:120]}") from None


def walk(roots: Sequence[Any]) -> Iterator[At]:
    """Every node with its place, parents first."""
    for number, root in enumerate(roots):
        yield from _below(At(node=root, path=(), above=(), document=number))


def _below(at: At) -> Iterator[At]:
    yield at
    above = (*at.above, at.node)
    for step, key, child in children(at.node):
        yield from _below(
            At(node=child, path=(*at.path, step), above=above, key=key, document=at.document)
        )


def children(node: Any) -> Iterator[tuple[Step, Any, Any]]:
    """Step, key node and child node."""
    if is_mapping(node):
        for key, child in node.value:
            yield str(key.value), key, child
    elif is_sequence(node):
        for number, child in enumerate(node.value):
            yield number, None, child


def is_mapping(node: Any) -> bool:
    return type(node).__name__ == "MappingNode"


def is_sequence(node: Any) -> bool:
    return type(node).__name__ == "SequenceNode"


def is_scalar(node: Any) -> bool:
    return type(node).__name__ == "ScalarNode"


def is_null(node: Any) -> bool:
    return is_scalar(node) and node.style is None and node.value in ("", "~", "null")


def start(node: Any) -> int:
    return int(node.start_mark.index)


def line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def column(node: Any) -> int:
    return int(node.start_mark.column)


def end(text: str, node: Any, key: Any = None) -> int:
    """Where the last character of a node stands; comments behind it are not its own."""
    if is_scalar(node):
        if start(node) == node.end_mark.index:  # nothing is written there
            return int(text.index(":", key.end_mark.index)) + 1 if key is not None else start(node)
        stop = int(node.end_mark.index)
        return (
            start(node) + len(text[start(node) : stop].rstrip())
            if node.style in ("|", ">")
            else stop
        )
    if node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return end(text, last[1], last[0]) if isinstance(last, tuple) else end(text, last)


def shared(roots: Sequence[Any], node: Any) -> bool:
    """Whether an alias uses the node too."""
    return sum(at.node is node for at in walk(roots)) > 1


def edited(edit: Edit, text: str) -> str:
    """The text after a key was changed; what comes out is read again and compared."""
    roots = parsed(text)
    base = anchored(edit, roots)
    target = _target(base, edit.path, roots)
    there = not target[1] and not is_null(target[0].node)
    if (edit.do, there) in (("replace", False), ("ensure", True)):
        raise AlreadySo(f"it already says so: {_spoken(edit.path)}")
    do = "set" if edit.do in ("replace", "ensure") else edit.do
    return change(text, roots, target, do, edit.value)


def anchored(edit: Edit, roots: Sequence[Any]) -> At:
    """The mapping that the edit starts from: the container at its line, or the document."""
    if edit.line is None:
        if len(roots) != 1:
            raise CannotEdit(f"it holds {len(roots)} documents")
        return At(node=roots[0], path=(), above=())
    mappings = [at for at in walk(roots) if is_mapping(at.node)]
    for at in mappings:
        if at.key is None or edit.line not in (line(at.key), line(at.node)):
            continue
        if at.key.value == PREDICTOR or (at.key.value == edit.anchor and line(at.key) == edit.line):
            return at
    for at in mappings:
        if line(at.node) == edit.line and _has_name(at.node, edit.anchor):
            return at
    raise CannotEdit(f"{edit.anchor} does not stand in line {edit.line}")


def _has_name(mapping: Any, name: str | None) -> bool:
    return any(key.value == "name" and value.value == name for key, value in mapping.value)


def _target(base: At, path: tuple[Step, ...], roots: Sequence[Any]) -> tuple[At, tuple[Step, ...]]:
    """The deepest node on the path that is there, and the steps that are missing below it."""
    at = base
    steps = list(path)
    if at.key is not None and at.key.value == PREDICTOR and steps[:2] == ["..", ".."]:
        steps.pop(0)  # it stands in the pod's spec itself, in no list of containers
    while steps and steps[0] == "..":
        steps.pop(0)
        if not at.above:
            raise CannotEdit("nothing stands above the document")
        at = At(
            node=at.above[-1],
            path=at.path[:-1],
            above=at.above[:-1],
            document=at.document,
            key=None,
        )
    if at.path and at.key is None:
        at = next(found for found in walk(roots) if found.node is at.node)
    while steps:
        for step, key, child in children(at.node):
            if step == steps[0]:
                above = (*at.above, at.node)
                at = At(
                    node=child, path=(*at.path, step), above=above, key=key, document=at.document
                )
                steps.pop(0)
                break
        else:
            break
    return at, tuple(steps)


def change(
    text: str, roots: Sequence[Any], target: tuple[At, tuple[Step, ...]], do: str, value: str | None
) -> str:
    """The text with one node set, removed, renamed or appended to."""
    at, missing = target
    if shared(roots, at.node) and not (missing and is_mapping(at.node) and at.above):
        raise CannotEdit(f"{_spoken(at.path)} is shared through a YAML anchor")
    if any(shared(roots, node) for node in (*at.above[1:], at.node)):
        raise CannotEdit(f"{_spoken(at.path)} lies in a part that is shared through a YAML anchor")
    expected = loaded(text)
    if missing and _merged(at.node, expected[at.document], at.path, missing[0]):
        raise CannotEdit(f"{_spoken((*at.path, missing[0]))} comes through a YAML anchor")
    wanted = None if value is None or do == "rename" else json.loads(value)
    if do == "set" or (do == "append" and (missing or is_null(at.node))):
        wanted = [wanted] if do == "append" else wanted
        new = _set(text, roots, at, missing, wanted)
        _put(expected, at.document, (*at.path, *missing), wanted)
    elif missing:
        raise CannotEdit(f"{_spoken((*at.path, *missing))} is not there")
    elif do == "append":
        if wanted in _at(expected[at.document], at.path):
            raise AlreadySo(f"{_spoken(at.path)} already has it")
        new = _append(text, roots, at, wanted)
        _at(expected[at.document], at.path).append(wanted)
    elif do == "remove":
        path = _pruned(at)
        new = _remove(text, next(found for found in walk(roots) if _same(found, at, path)))
        parent = _at(expected[at.document], path[:-1])
        del parent[_key_of(parent, path[-1])]
    else:
        new, name = _rename(text, at, value or "")
        parent = _at(expected[at.document], at.path[:-1])
        items = [
            (
                name[0] if str(key) == at.path[-1] else key,
                name[1] if name[1] is not None and str(key) == at.path[-1] else item,
            )
            for key, item in parent.items()
        ]
        parent.clear()
        parent.update(items)
    if loaded(new) != expected or (is_json(text) and not is_json(new)):
        raise CannotEdit(f"{_spoken(at.path)}: this layout of YAML is not known")
    return new


def _merged(node: Any, document: Any, path: Sequence[Step], name: Step) -> bool:
    """Whether a key is not written there but merged in: a new one would hide what it holds."""
    if not is_mapping(node) or not any(key.value == "<<" for key, _ in node.value):
        return False
    return name in _at(document, path)


def _spoken(path: Sequence[Step]) -> str:
    return ".".join(map(str, path)) or "the document"


def _same(found: At, at: At, path: tuple[Step, ...]) -> bool:
    return found.document == at.document and found.path == path


def _key_of(parent: Any, step: Step) -> Any:
    if isinstance(parent, list):
        return step
    return next(key for key in parent if str(key) == step)


def _at(data: Any, path: Sequence[Step]) -> Any:
    for step in path:
        data = data[_key_of(data, step)]
    return data


def _put(documents: list[Any], number: int, path: Sequence[Step], value: Any) -> None:
    if not path:
        documents[number] = value
        return
    parent: Any = documents
    last: Any = number
    for step in path:
        if parent[last] is None:
            parent[last] = {}
        parent = parent[last]
        names = [key for key in parent if str(key) == step] if isinstance(parent, dict) else [step]
        last = names[0] if names else step
        if isinstance(parent, dict) and not names:
            parent[last] = None
    parent[last] = value


def _pruned(at: At) -> tuple[Step, ...]:
    """The path to take out: a parent that would be empty goes too."""
    path = at.path
    for node in reversed(at.above[1:]):
        if len(node.value) > 1:
            break
        path = path[:-1]
    if not path or (len(path) == 1 and len(at.above[0].value) == 1):
        raise CannotEdit("nothing would be left of the file")
    return path


def _nest(missing: Sequence[Step], value: Any) -> Any:
    for step in reversed(missing):
        if isinstance(step, int):
            raise CannotEdit(f"there is no item {step}")
        value = {step: value}
    return value


def _set(text: str, roots: Sequence[Any], at: At, missing: Sequence[Step], value: Any) -> str:
    if not missing:
        if isinstance(value, (dict, list)) or not is_scalar(at.node):
            if is_null(at.node) and at.key is not None:
                return _below_key(text, roots, at, value)
            return _replace_whole(text, at, value)
        if is_null(at.node) and start(at.node) == at.node.end_mark.index:
            place = end(text, at.node, at.key)
            return replaced(text, [(place, place, f" {scalar(value)}")])
        if at.node.style in ("|", ">"):
            raise CannotEdit(f"{_spoken(at.path)} is a text of several lines")
        style = '"' if is_json(text) else at.node.style
        return replaced(text, [(start(at.node), at.node.end_mark.index, scalar(value, style))])
    value = _nest(missing[1:], value)
    if is_null(at.node) and at.key is not None:
        return _below_key(text, roots, at, {missing[0]: value})
    if not is_mapping(at.node):
        raise CannotEdit(f"{_spoken(at.path)} is no mapping")
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
        raise CannotEdit(f"{_spoken(at.path)} has another form")
    return replaced(text, [(start(at.node), stop, json.dumps(value))])


def _below_key(text: str, roots: Sequence[Any], at: At, value: Any) -> str:
    """`key:` without a value gets one."""
    place = line_end(text, end(text, at.node, at.key))
    head = text[:place] if text[:place].endswith("\n") else text[:place] + "\n"
    if start(at.node) != at.node.end_mark.index:
        raise CannotEdit(f"{_spoken(at.path)} is null")
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
    place = end(text, final)
    opened = text[line_start(text, start(first)) : start(first)]
    gap = f"\n{opened}" if not opened.strip() and line(first) > line(node) else " "
    return replaced(text, [(place, place, f",{gap}{words}")])


def _flow_key(text: str, node: Any, name: Step) -> str:
    quoted = any(key.style == '"' for key, _ in node.value) or not PLAIN.fullmatch(str(name))
    quoted = quoted or is_json(text)
    return json.dumps(name) if quoted else str(name)


def _append(text: str, roots: Sequence[Any], at: At, value: Any) -> str:
    if not is_sequence(at.node):
        raise CannotEdit(f"{_spoken(at.path)} is no list")
    if at.node.flow_style:
        return _into_flow(text, at.node, json.dumps(value))
    return _new_lines(text, at, "".join(_item(value, column(at.node), roots)))


def _remove(text: str, at: At) -> str:
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
            raise CannotEdit(f"{_spoken(at.path)} is all that its item holds")
        return replaced(text, [(start(first), start(siblings[here + 1]), "")])
    if at.key is None and lead.strip() != "-":
        raise CannotEdit(f"{_spoken(at.path)}: this layout of YAML is not known")
    return text[:begin] + text[line_end(text, stop) :]


def tail(text: str, before: int, first: int) -> int:
    """Where the last entry of [..] or {..} begins to go: a comment behind the one before it stays,
    and with it the comma, which YAML allows at the end."""
    between = text[before:first]
    return before + between.rindex("\n") if "#" in between else before


def _rename(text: str, at: At, successor: str) -> tuple[str, tuple[str, Any]]:
    if at.key is None:
        raise CannotEdit("an item has no name")
    name, _, value = successor.partition(" ")
    changes = [(start(at.key), int(at.key.end_mark.index), scalar(name, at.key.style))]
    if not value:
        return replaced(text, changes), (name, None)
    found = loaded(value)[0]
    if not is_scalar(at.node):
        raise CannotEdit(f"{_spoken(at.path)} has another form")
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
