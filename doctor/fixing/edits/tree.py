"""YAML and JSON as nodes with their places in the text, as ruamel.yaml tells them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from infer_doctor.fixing.edits.common import CannotEdit
from infer_doctor.frozen import frozen
from infer_doctor.launch.document import without_tabs

Step = str | int

NODES = 200_000
"""With aliases unfolded; a manifest of 100 services has 20,000."""


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
        roots = list(YAML(typ="rt", pure=True).compose_all(io.StringIO(without_tabs(text))))
    except (YAMLError, ValueError) as error:
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        if "{{" in text:
            raise CannotEdit(
                "it is a template: edit it by hand, or give what `helm template` makes of it"
            ) from None
        raise CannotEdit(f"it is not valid YAML: {problem}") from None
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
        return list(YAML(typ="safe", pure=True).load_all(io.StringIO(without_tabs(text))))
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


def spoken(path: Sequence[Step]) -> str:
    """The path as a person writes it."""
    return ".".join(map(str, path)) or "the document"
