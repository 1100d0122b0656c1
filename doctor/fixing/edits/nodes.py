"""Edits of keys in YAML and JSON: set, remove, append, rename; what comes out is read and compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from infer_doctor.fixing.edits import layout
from infer_doctor.fixing.edits.common import AlreadySo, CannotEdit
from infer_doctor.fixing.edits.tree import (
    At,
    Step,
    children,
    is_json,
    is_mapping,
    is_null,
    line,
    loaded,
    parsed,
    shared,
    spoken,
    walk,
)
from infer_doctor.model import Edit

PREDICTOR = "model"
"""The part of KServe's InferenceService that stands for a container and has no name."""


def edited(edit: Edit, text: str) -> str:
    """The text after a key was changed; what comes out is read again and compared."""
    roots = parsed(text)
    base = anchored(edit, roots)
    target = _target(base, edit.path, roots)
    there = not target[1] and not is_null(target[0].node)
    if (edit.do, there) in (("replace", False), ("ensure", True)):
        raise AlreadySo(f"it already says so: {spoken(edit.path)}")
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
        if at.key.value == PREDICTOR:
            return at
        if line(at.key) == edit.line and (
            at.key.value == edit.anchor or _has_name(at.node, edit.anchor, "container_name")
        ):
            return at
    for at in mappings:
        if line(at.node) == edit.line and _has_name(at.node, edit.anchor):
            return at
    raise CannotEdit(f"{edit.anchor} does not stand in line {edit.line}")


def _has_name(mapping: Any, name: str | None, field: str = "name") -> bool:
    return any(key.value == field and value.value == name for key, value in mapping.value)


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
        raise CannotEdit(f"{spoken(at.path)} is shared through a YAML anchor")
    if any(shared(roots, node) for node in (*at.above[1:], at.node)):
        raise CannotEdit(f"{spoken(at.path)} lies in a part that is shared through a YAML anchor")
    expected = loaded(text)
    if missing and _merged(at.node, expected[at.document], at.path, missing[0]):
        raise CannotEdit(f"{spoken((*at.path, missing[0]))} comes through a YAML anchor")
    wanted = None if value is None or do == "rename" else json.loads(value)
    if do == "set" or (do == "append" and (missing or is_null(at.node))):
        wanted = [wanted] if do == "append" else wanted
        new = layout.assign(text, roots, at, missing, wanted)
        _put(expected, at.document, (*at.path, *missing), wanted)
    elif missing:
        raise CannotEdit(f"{spoken((*at.path, *missing))} is not there")
    elif do == "append":
        if wanted in _at(expected[at.document], at.path):
            raise AlreadySo(f"{spoken(at.path)} already has it")
        new = layout.append(text, roots, at, wanted)
        _at(expected[at.document], at.path).append(wanted)
    elif do == "remove":
        path = _pruned(at)
        new = layout.remove(text, next(found for found in walk(roots) if _same(found, at, path)))
        parent = _at(expected[at.document], path[:-1])
        del parent[_key_of(parent, path[-1])]
    else:
        new, name = layout.rename(text, at, value or "")
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
        raise CannotEdit(f"{spoken(at.path)}: this layout of YAML is not known")
    return new


def _merged(node: Any, document: Any, path: Sequence[Step], name: Step) -> bool:
    """Whether a key is not written there but merged in: a new one would hide what it holds."""
    if not is_mapping(node) or not any(key.value == "<<" for key, _ in node.value):
        return False
    return name in _at(document, path)


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
