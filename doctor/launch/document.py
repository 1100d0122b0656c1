"""YAML as a tree in which every value knows its line. No constructor runs, no alias is multiplied.

ruamel.yaml takes some 50 microseconds and a kilobyte for each value (measured, bench/launch.py), hence
the limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infer_doctor.launch.model import Place, Unknown

LIMIT = 4 << 20
"""Characters, most of them in comments and long texts then."""

PART = re.compile(r"[,\[{]|\n[ \t-]*[^\s#]")
MOST_PARTS = 100_000
"""Lines, items and brackets: some 8 s of the 20 s that a report may take, and 150 MB."""

MOST_VALUES = 100_000
"""What aliases may multiply a document to."""

TEMPLATE = re.compile(r"\{\{.*?\}\}", re.S)
TAB = re.compile(r"\t(?=[ \t]*(?:#|$))", re.M)
"""One that only sets a comment off, or ends a line: YAML 1.2 and Go's reader, which is that of Compose
and Kubernetes, take it for a blank; ruamel.yaml stops."""

MARK = "\ue000"
"""Stands for an expression of a template; a character of the private use area."""

TRUE = ("true", "True", "TRUE")
FALSE = ("false", "False", "FALSE")


def without_tabs(text: str) -> str:
    """The same text for a reader that knows no tabs; every character keeps its place."""
    return TAB.sub(" ", text) if "\t" in text else text


class Broken(Exception):
    """The text cannot be read; the words are FILE:LINE: what is wrong."""


class Node:
    """A value and where it stands: `value` is a dict of nodes, a list of nodes or a plain value."""

    __slots__ = ("file", "key_line", "line", "source", "value")

    def __init__(self, value: Any, file: str, line: int, source: str = "") -> None:
        self.value = value
        self.file = file
        self.line = line
        self.key_line = line
        self.source = source
        """Of a text of several lines: how it is written in the file."""

    @property
    def is_map(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    def place(self, *, key: bool = False) -> Place:
        return Place(file=self.file, line=self.key_line if key else self.line)

    def first(self) -> Place:
        """Where the text begins: that of a block (|, >) on the line after it."""
        block = self.source[:1] in ("|", ">")
        return Place(file=self.file, line=self.line + 1 if block else self.line)

    def lines(self, pieces: Sequence[str]) -> Iterator[Place]:
        """The place of each piece of the text, in their order."""
        at = 0
        for piece in pieces:
            found = self.source.find(piece.partition("\n")[0], at)
            at = found if found >= 0 else at
            yield Place(file=self.file, line=self.line + self.source.count("\n", 0, at))

    def get(self, *path: str) -> Node | None:
        """The value below these keys."""
        node: Node | None = self
        for name in path:
            node = node.value.get(name) if node is not None and node.is_map else None
        return None if node is not None and node.value is None else node

    def items(self) -> list[tuple[str, Node]]:
        return list(self.value.items()) if self.is_map else []

    def list(self, *path: str) -> list[Node]:
        node = self.get(*path)
        return [row for row in node.value if row.value is not None] if node and node.is_list else []

    def text(self, *path: str) -> str | None:
        """A plain value as the text that it is; templates keep their expression."""
        node = self.get(*path)
        if node is None or node.is_map or node.is_list:
            return None
        return node.string

    @property
    def string(self) -> str:
        value = self.value
        if isinstance(value, Unknown):
            return value.text
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    @property
    def unknown(self) -> str | None:
        return self.value.text if isinstance(self.value, Unknown) else None

    def plain(self) -> Any:
        """The value as Python's own types; raises Broken when aliases multiply it too much."""
        return _plain(self, [MOST_VALUES])


def documents(text: str, file: str, *, twice: bool = False) -> list[Node]:
    """All documents that hold something; raises Broken.

    `twice`: a key may stand twice, and the last one counts, as in PyYAML; else that is an error, as
    in Docker Compose and Kubernetes.
    """
    if len(text) > LIMIT:
        raise Broken(
            f"{file}: {len(text):,} characters are too many for YAML (at most {LIMIT:,}: reading "
            "more takes longer than the report may)"
        )
    if sum(1 for _ in PART.finditer(text)) > MOST_PARTS:
        raise Broken(
            f"{file}: more than {MOST_PARTS:,} lines and items are too many for YAML (reading them "
            "takes longer than the report may); give the part that starts the engine"
        )
    templates: list[str] = []
    if "{{" in text:
        text = _without_templates(text, templates)
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False
    try:
        nodes = list(yaml.compose_all(without_tabs(text)))
        read = _Reader(file, twice or bool(templates), templates, text)
        return [node for root in nodes if root is not None and (node := read.root(root))]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        words = " ".join(str(error.problem or error.context or "is no YAML").split())
        tab = ": YAML takes no tab for indentation" if "\\t" in words else ""
        raise Broken(f"{file}:{line}: {words}{tab}") from None
    except YAMLError as error:
        raise Broken(f"{file}: is no YAML: {' '.join(str(error).split())[:200]}") from None
    except RecursionError:
        raise Broken(f"{file}: is nested too deeply to be read") from None
    except (ValueError, AttributeError, AssertionError, LookupError, TypeError) as error:
        # seen with texts that no writer of YAML makes, such as a tag of NUL bytes
        raise Broken(f"{file}: is no YAML: {type(error).__name__}") from None


def _without_templates(text: str, found: list[str]) -> str:
    """Expressions of a template as marks; lines that are nothing else are emptied."""

    def mark(match: re.Match[str]) -> str:
        found.append(match[0])
        return f"{MARK}{len(found) - 1}{MARK}" + "\n" * match[0].count("\n")

    lines = []
    for line in TEMPLATE.sub(mark, text).split("\n"):
        only = re.fullmatch(rf"(\s*)(?:{MARK}\d+{MARK}\s*)+", line)
        lines.append("" if only else line)
    return "\n".join(lines)


class _Reader:
    def __init__(self, file: str, twice: bool, templates: list[str], text: str) -> None:
        self._text = text
        self._file = file
        self._twice = twice
        self._templates = templates
        self._known: dict[int, Node | None] = {}
        self._left = MOST_VALUES * 10

    def root(self, raw: Any) -> Node | None:
        node = self._node(raw)
        return None if node.value is None else node

    def _node(self, raw: Any) -> Node:
        line = raw.start_mark.line + 1
        if id(raw) in self._known:
            known = self._known[id(raw)]
            if known is None:
                raise Broken(f"{self._file}:{line}: an alias refers to what it is part of")
            return known
        self._known[id(raw)] = None
        if isinstance(raw.value, str):
            several = raw.end_mark.line > raw.start_mark.line
            source = self._text[raw.start_mark.index : raw.end_mark.index] if several else ""
            node = Node(self._scalar(raw), self._file, line, source)
        elif raw.value and isinstance(raw.value[0], tuple):
            node = Node(self._map(raw), self._file, line)
        elif type(raw).__name__ == "MappingNode":
            node = Node({}, self._file, line)
        else:
            node = Node([self._node(item) for item in raw.value], self._file, line)
        self._known[id(raw)] = node
        return node

    def _map(self, raw: Any) -> dict[str, Node]:
        merged: dict[str, Node] = {}
        own: dict[str, Node] = {}
        for key, value in raw.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise Broken(f"{self._file}:{line}: a key is a list or mapping")
            if key.value == "<<" and key.style is None:
                for name, node in self._merged(value, line):
                    merged.setdefault(name, node)
                continue
            name = self._templated(key.value)[0]
            if name in own and not self._twice:
                first = own[name].key_line
                raise Broken(
                    f"{self._file}:{line}: the key {name!r} stands twice, first in line {first}"
                )
            own[name] = _at_key(self._node(value), line)
        return {**merged, **own}

    def _merged(self, raw: Any, line: int) -> Iterator[tuple[str, Node]]:
        node = self._node(raw)
        for source in node.value if node.is_list else [node]:
            if not source.is_map:
                raise Broken(f"{self._file}:{line}: << takes a mapping, not a value")
            self._left -= len(source.value)
            if self._left < 0:
                raise Broken(f"{self._file}:{line}: aliases multiply to too many values")
            yield from source.items()

    def _templated(self, text: str) -> tuple[str, bool]:
        if MARK not in text:
            return text, False

        def back(match: re.Match[str]) -> str:
            number = int(match[1])
            return self._templates[number] if number < len(self._templates) else match[0]

        return re.sub(f"{MARK}([0-9]{{1,9}}){MARK}", back, text), True

    def _scalar(self, raw: Any) -> Any:
        text, unknown = self._templated(raw.value)
        if unknown:
            return Unknown(text)
        if raw.style is not None:
            return text
        return plain_scalar(text, str(raw.tag))


def _at_key(node: Node, line: int) -> Node:
    """The same value at its key: a value that an alias names may stand elsewhere."""
    if node.key_line == line and node.line >= line:
        return node
    twin = Node(node.value, node.file, node.line, node.source)
    twin.key_line = line
    return twin


def plain_scalar(text: str, tag: str = "") -> Any:
    """A plain scalar as YAML 1.2 types it; texts that YAML 1.1 takes for booleans stay texts."""
    kind = tag.rpartition(":")[2]
    if kind == "str":
        return text
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in TRUE or text in FALSE:
        return text in TRUE
    try:
        if re.fullmatch(r"[-+]?[0-9]{1,30}", text):
            return int(text)
        if re.fullmatch(r"0x[0-9a-fA-F]{1,30}", text):
            return int(text, 16)
        if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]{1,300}(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?", text):
            return float(text)
    except ValueError:
        pass
    return text


def _plain(node: Node, left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0:
        raise Broken(
            f"{node.file}:{node.line}: aliases multiply to more than {MOST_VALUES:,} values"
        )
    if node.is_map:
        return {name: _plain(item, left) for name, item in node.items()}
    if node.is_list:
        return [_plain(item, left) for item in node.value]
    return node.value


def texts(values: Mapping[str, Node] | list[Node]) -> list[str]:
    """The plain values of a list of nodes as texts."""
    rows = values if isinstance(values, list) else list(values.values())
    return [row.string for row in rows if not row.is_map and not row.is_list]
