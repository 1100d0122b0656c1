"""The two spellings of `nvidia-smi -q` as one tree: indented text and XML."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from infer_doctor.foreign.text import Unreadable

PAIR = re.compile(r"( *)(\S(?:.*?\S)?) +:(?: (.*))?")
"""Key, a colon after a column of spaces, value: the value may hold colons too."""


@dataclass(kw_only=True)
class Node:
    """A key or element. `closed`: something follows that shows that it is whole."""

    key: str
    value: str = ""
    children: list[Node] = field(default_factory=list)
    closed: bool = False
    line: int = 0

    def find(self, *path: str) -> Node | None:
        """The first node at this path below; drivers write "Ecc Mode" and "ECC Mode"."""
        found = self
        for key in map(str.lower, path):
            below = next((child for child in found.children if child.key.lower() == key), None)
            if below is None:
                return None
            found = below
        return found

    def text(self, *path: str) -> str | None:
        """The value at this path; None when there is none."""
        found = self.find(*path)
        return None if found is None else found.value


def from_text(lines: list[str], first_line: int) -> Node:
    """Indented lines as a tree, up to the first one that is no part of it (a prompt, a mark).

    What stands last is whole only when an empty line follows, as nvidia-smi writes it after every
    GPU; in a text with an empty line after every line nothing last is whole.
    """
    root = Node(key="")
    stack: list[tuple[int, Node]] = [(-1, root)]
    blank = spread = False
    for place, line in enumerate(lines):
        if not line.strip():
            blank = True
            continue
        indent = len(line) - len(line.lstrip(" "))
        if indent == 0 and not _belongs(line):
            break
        spread = spread or (blank and indent > 0)
        blank = False
        while stack[-1][0] >= indent:
            stack.pop()[1].closed = True
        pair = PAIR.fullmatch(line)
        node = Node(
            key=pair[2] if pair else line.strip(),
            value=(pair[3] or "").strip() if pair else "",
            line=first_line + place,
        )
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    if blank and not spread:
        for _, node in stack:
            node.closed = True
    return root


def _belongs(line: str) -> bool:
    """Lines without indentation: a pair of the head, or the address of a GPU."""
    return line.startswith(("GPU ", "vGPU ", "HIC ")) or PAIR.fullmatch(line) is not None


def from_xml(text: str, lines_before: int) -> Node:
    """An XML document as a tree; raises Unreadable.

    Entities are never expanded and nothing is fetched: a document type with declarations of its own
    is refused, the external one that nvidia-smi names is not read.
    """
    from xml.parsers import expat

    root = Node(key="")
    stack = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        node = Node(key=name, line=lines_before + parser.CurrentLineNumber, closed=True)
        node.children += [
            Node(key=f"@{key}", value=value, closed=True) for key, value in attributes.items()
        ]
        stack[-1].children.append(node)
        stack.append(node)

    def end(_: str) -> None:
        node = stack.pop()
        node.value = node.value.strip()

    def characters(data: str) -> None:
        stack[-1].value += data

    def doctype(_name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
        if has_subset:
            refuse()

    def refuse(*_: object) -> NoReturn:
        raise Unreadable("declares entities or a document type of its own: not read")

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise Unreadable(f"is no valid XML: {error}") from None
    return root
