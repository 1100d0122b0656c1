"""The words of a command in Python source: lists, sums and texts that a shell would split."""

from __future__ import annotations

import ast
import re

from infer_doctor.launch.model import Unknown, Word
from infer_doctor.launch.python_values import Source

PLAIN_WORD = re.compile(r"[\w@%+=:,./~-]+")
"""What a shell leaves as it is (shlex.quote)."""


def words_of(source: Source, node: ast.expr, gaps: list[str], *, alone: bool = False) -> list[Word]:
    """The words of a command: a list, or a string that a shell would split."""
    if isinstance(node, ast.Starred):
        node, alone = node.value, False
    if (items := _blanks_between(source, node)) is not None:
        return _as_text(source, node, words_of(source, items, gaps)) if not alone else []
    if isinstance(node, ast.Name):
        return _named_words(source, node, gaps, alone)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [w for item in node.elts for w in words_of(source, item, gaps, alone=True)]
    if source.resolved(node) == "sys.executable":
        return [Word(text="python", place=source.place(node))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and not alone:
        if _is_text(source, node):
            return _script(source, node)
        left = words_of(source, node.left, gaps)
        return left + words_of(source, node.right, gaps) if left else []
    if (
        isinstance(node, ast.Call)
        and source.resolved(node.func) in ("shlex.split", "str.split", "shlex.join")
        and node.args
    ):
        return words_of(source, node.args[0], gaps)
    text, place = source.partial(node), source.place(node)
    value = source.fold(node)
    if alone:
        unknown = value.text if isinstance(value, Unknown) else None
        return [Word(text=text, place=place, unknown=unknown)]
    if isinstance(value, list):
        return [
            Word(
                text=item.text if isinstance(item, Unknown) else str(item),
                place=place,
                unknown=item.text if isinstance(item, Unknown) else None,
            )
            for item in value
        ]
    return _script(source, node) if isinstance(value, (str, Unknown)) else []


def is_list(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a list of words rather than a text."""
    if isinstance(node, ast.Name) and (found := source.lookup(node, node.id)):
        values = found[1]
        return len(values) == 1 and values[0] is not None and is_list(source, values[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return is_list(source, node.left)
    return isinstance(node, (ast.List, ast.Tuple))


def _blanks_between(source: Source, node: ast.expr) -> ast.expr | None:
    """What `" ".join(WORDS)` joins."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    joins = node.func.attr == "join" and source.fold(node.func.value) == " "
    return node.args[0] if joins else None


def _as_text(source: Source, node: ast.expr, words: list[Word]) -> list[Word]:
    """Words that blanks join: the same words again, unless a shell would read them as others."""
    if all(word.unknown or PLAIN_WORD.fullmatch(word.text) for word in words):
        return words
    shown = (
        f"${{{re.sub(r'[^A-Za-z0-9]+', '_', w.unknown)}}}" if w.unknown else w.text for w in words
    )
    return [Word(text=text, place=source.place(node)) for text in ("sh", "-c", " ".join(shown))]


def _is_text(source: Source, node: ast.expr) -> bool:
    """Whether a sum begins with a text: it is one then, no list."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return isinstance(node, ast.JoinedStr) or isinstance(source.fold(node), str)


def _script(source: Source, node: ast.expr) -> list[Word]:
    """A string that a shell reads; what the file does not tell is a variable of that shell."""
    text = source.partial(node, lambda value: f"${{{re.sub(r'[^A-Za-z0-9]+', '_', value.text)}}}")
    place = source.place(node)
    return [Word(text=part, place=place) for part in ("sh", "-c", text)]


def _named_words(source: Source, node: ast.Name, gaps: list[str], alone: bool) -> list[Word]:
    """The words of a list that has a name; what is appended without a condition is known too."""
    found = source.lookup(node, node.id)
    values = [value for value in found[1] if value is not None] if found else []
    if found is None or alone or len(values) != 1 or len(found[1]) != 1:
        value = source.fold(node)
        known = not isinstance(value, (Unknown, list, dict))
        if alone:
            text = str(value) if known else f"{{{node.id}}}"
            return [Word(text=text, place=source.place(node), unknown=None if known else node.id)]
        return _script(source, node) if known else []
    words = words_of(source, values[0], gaps)
    for change in source.mutations.get((found[0], node.id), []):
        added = _added(change)
        if added is None or source.conditional(change):
            gaps.append(f"{at(source, change)}: words are added that could not be read")
            continue
        item, single = added
        words += words_of(source, item, gaps, alone=single)
    return words


def _added(change: ast.AST) -> tuple[ast.expr, bool] | None:
    """What `x += y`, `x.append(y)` or `x.extend(y)` adds, and whether it is one word."""
    if isinstance(change, ast.AugAssign) and isinstance(change.op, ast.Add):
        return change.value, False
    if isinstance(change, ast.Call) and isinstance(change.func, ast.Attribute) and change.args:
        if change.func.attr == "append":
            return change.args[0], True
        if change.func.attr == "extend":
            return change.args[0], False
    return None


def at(source: Source, node: ast.AST) -> str:
    place = source.place(node)
    return f"{place.file}:{place.line}"
