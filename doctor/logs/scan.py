"""Which lines of a log are worth a look: a line is looked at once for each shape it has.

A serving log of a GiB has seven million lines and some ten shapes. The shape of a line is the line
without digits and the letters of hexadecimal numbers, so that times, addresses, identifiers and
counts fall together; deleting them, splitting and putting the lines into a set is all C code. A
shape that means nothing is remembered and skipped, one that means something is looked at every time.
No level, word or place in the file is taken for granted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

NO_SHAPE = b"0123456789abcdef\0"
SHAPES_KEPT = 200_000
"""Shapes remembered as meaningless; then they are forgotten: 200,000 of them take some 40 MB."""

SHAPE_BYTES = 8 << 20
"""Bytes of remembered shapes, for logs of long lines that are all different."""

FEW_SHAPES = 8
"""So many shapes are counted one by one in C; more in one pass in Python."""

LOOKED_AT = 16 << 10
"""Bytes from which the indentation of a pasted log is read."""

FEW_LINES = 5
"""A shorter piece may be the inside of a traceback, where the indentation says something."""

LONGEST_LINE = 1 << 20
HEAD, TAIL = 48 << 10, 16 << 10
"""Bytes of a longer line that are kept: a cause stands at the beginning or at the end."""


class Scanner:
    """Goes through the blocks of one log.

    `means` tells whether lines of a shape are worth a look each; `bulk` names what lines of a shape
    are only counted as. `line` is the number of lines before the block that is looked at.
    """

    def __init__(
        self, means: Callable[[bytes], bool], bulk: Callable[[bytes], str | None] | None = None
    ) -> None:
        self._means = means
        self._bulk = bulk
        self._nothing: set[bytes] = set()
        self._counted: dict[bytes, str] = {}
        self._size = 0
        self.line = 0
        self.counts: Counter[str] = Counter()
        self.first: dict[str, tuple[int, bytes]] = {}
        self.last: dict[str, int] = {}

    def lines(
        self, blocks: Iterable[bytes], see: Callable[[int, bytes, set[str]], None] | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """(number, line) of what means something.

        After the lines of a block, `see` gets the lines before it, the block and what was counted.
        """
        for block in whole_lines(undented(blocks)):
            shapes = block.translate(None, NO_SHAPE).split(b"\n")
            found = set(shapes)
            if fresh := found - self._nothing - self._counted.keys():
                yield from self._look(block, shapes, fresh)
            kinds = self._count(shapes, found & self._counted.keys())
            if see is not None:
                see(self.line, block, kinds)
            self.line += len(shapes) - 1

    def _look(
        self, block: bytes, shapes: Sequence[bytes], fresh: set[bytes]
    ) -> Iterator[tuple[int, bytes]]:
        """The lines of fresh shapes; what means nothing or is counted is remembered."""
        lines = block.split(b"\n")
        for number, shape in enumerate(shapes):
            if shape not in fresh:
                continue
            if self._bulk is not None and (kind := self._bulk(lines[number])) is not None:
                self._counted[shape] = kind
                self.first.setdefault(kind, (self.line + number + 1, lines[number]))
                fresh.discard(shape)
                continue
            if self._means(lines[number]):
                yield self.line + number + 1, lines[number]
                continue
            self._nothing.add(shape)
            self._size += len(shape)
            fresh.discard(shape)
        if len(self._nothing) + len(self._counted) > SHAPES_KEPT or self._size > SHAPE_BYTES:
            self._nothing.clear()
            self._counted.clear()
            self._size = 0

    def _count(self, shapes: list[bytes], known: set[bytes]) -> set[str]:
        """Count the lines of these shapes; the kinds that are in the block."""
        kinds = {self._counted[shape] for shape in known}
        if len(known) <= FEW_SHAPES:
            for shape in known:
                kind = self._counted[shape]
                self.counts[kind] += shapes.count(shape)
                place = self.line + len(shapes) - shapes[::-1].index(shape)
                self.last[kind] = max(self.last.get(kind, 0), place)
            return kinds
        for number, shape in enumerate(shapes, self.line + 1):
            if shape in known:
                kind = self._counted[shape]
                self.counts[kind] += 1
                self.last[kind] = number
        return kinds


def undented(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks without the spaces that every line begins with: a log that was pasted somewhere."""
    indent: bytes | None = None
    for block in blocks:
        if indent is None:
            lines = block[:LOOKED_AT].split(b"\n")
            if len(block) > LOOKED_AT:
                lines.pop()
            lines = [line for line in lines if line.strip()]
            heads = {line[: len(line) - len(line.lstrip(b" \t"))] for line in lines}
            indent = min(heads, key=len, default=b"")
            if len(lines) < FEW_LINES or not all(head.startswith(indent) for head in heads):
                indent = b""
            block = block.removeprefix(indent)
        yield block.replace(b"\n" + indent, b"\n") if indent else block


def whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The blocks cut at line ends; of a line that is too long its head and tail."""
    carry = b""
    tail = b""
    cutting = False
    for block in blocks:
        if cutting:
            place = block.find(b"\n")
            if place < 0:
                tail = (tail + block)[-TAIL:]
                continue
            yield carry + b" ... " + (tail + block[:place])[-TAIL:] + b"\n"
            carry, tail, cutting = b"", b"", False
            block = block[place + 1 :]
        cut = block.rfind(b"\n") + 1
        if cut:
            yield carry + block[:cut]
            carry = block[cut:]
        else:
            carry += block
        if len(carry) > LONGEST_LINE:
            tail, carry, cutting = carry[-TAIL:], carry[:HEAD], True
    if cutting:
        yield carry + b" ... " + tail
    elif carry:
        yield carry
