"""What repeats a call when it fails: decorators and loops, also around the functions between."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import inf
from typing import Any

from infer_doctor.facts.client_code import Attempts
from infer_doctor.launch.model import Unknown
from infer_doctor.launch.python_functions import Functions
from infer_doctor.launch.python_values import FunctionNode, Source

COUNTS = [
    "max_attempts",
    "attempts",
    "tries",
    "max_tries",
    "max_retries",
    "retries",
    "num_retries",
    "times",
    "stop_max_attempt_number",
    "n",
]
"""Keywords of decorators that say how often something is tried."""

ENDLESS_BARE = ("tenacity.retry", "retrying.retry", "retry.retry", "retry.api.retry")
"""Without arguments they never give up (tenacity: "stop = stop_never"; retrying; retry: tries=-1)."""

STAMINA = 10
"""attempts of stamina.retry when it is not given (stamina 24, docs: attempts=10)."""

DEPTH = 8


def attempts(source: Source, functions: Functions, node: ast.AST) -> tuple[Attempts, ...]:
    """Everything that repeats a node, outermost first."""
    return tuple(_around(source, functions, node, set()))


def product(found: Sequence[Attempts]) -> float:
    """How often all of them together try; what is not known counts once."""
    total: float = 1
    for row in found:
        total *= inf if row.endless else row.count or 1
    return total


def _around(
    source: Source, functions: Functions, node: ast.AST, seen: set[FunctionNode]
) -> list[Attempts]:
    own: list[Attempts] = []
    for parent, child in source.up(node):
        if isinstance(parent, (ast.For, ast.AsyncFor, ast.While)) and child in parent.body:
            own[:0] = _loop(source, parent, node)
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and child in parent.body:
            own[:0] = [row for d in parent.decorator_list for row in _decorator(source, d)]
            break
        if isinstance(parent, ast.Lambda):
            break
    function = source.function(node)
    if function is None or function in seen or len(seen) > DEPTH:
        return own
    outer = [
        _around(source, functions, call, {*seen, function})
        for call in functions.callers.get(function, [])
    ]
    return max(outer, key=product, default=[]) + own


def _decorator(source: Source, node: ast.expr) -> list[Attempts]:
    call = node.func if isinstance(node, ast.Call) else node
    name = source.resolved(call)
    if name is None or not ("retry" in name.lower() or name.startswith("backoff.on_")):
        return []
    count: int | None = None
    endless = not isinstance(node, ast.Call) and name in ENDLESS_BARE
    if isinstance(node, ast.Call):
        count = _keyword_count(source, node)
        if count is None:
            count = _stop(source, node)
        if count is None and name == "stamina.retry":
            count = STAMINA
        if count is None and not node.keywords and len(node.args) == 1:
            count = _number(source.fold(node.args[0]))
        words = {word.arg for word in node.keywords}
        endless = count is None and (
            (name == "tenacity.retry" and "stop" not in words and None not in words)
            or (name.startswith("backoff.") and not words & {"max_tries", "max_time", None})
        )
    return [
        Attempts(
            kind=name,
            count=count,
            endless=endless,
            place=source.place(node),
            excerpt=source.excerpt(node),
        )
    ]


def _keyword_count(source: Source, node: ast.Call) -> int | None:
    for word in node.keywords:
        if word.arg in COUNTS:
            return _number(source.fold(word.value))
    return None


def _stop(source: Source, node: ast.Call) -> int | None:
    """The number of stop_after_attempt(N), also in stop_after_attempt(N) | stop_after_delay(S)."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and inner.args:
            name = source.resolved(inner.func) or ""
            if name.rpartition(".")[2] == "stop_after_attempt":
                return _count(source, inner.args[0])
    return None


def _loop(
    source: Source, loop: ast.For | ast.AsyncFor | ast.While, node: ast.AST
) -> list[Attempts]:
    """A loop that tries until it works: the call stands in a `try` whose failure goes round."""
    count, endless = None, False
    if isinstance(loop, ast.While):
        endless = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    elif isinstance(loop.iter, ast.Call):
        name = (source.resolved(loop.iter.func) or "").rpartition(".")[2]
        if name in ("Retrying", "AsyncRetrying"):
            found = _stop(source, loop.iter)
            return [_row(source, loop, "tenacity.Retrying", found, found is None)]
        if name != "range" or not loop.iter.args:
            return []
        bounds = [_count(source, argument) for argument in loop.iter.args]
        if len(bounds) == 1:
            count = bounds[0]
        elif len(bounds) == 2 and bounds[0] is not None and bounds[1] is not None:
            count = bounds[1] - bounds[0]
    else:
        return []
    if not _goes_round(source, loop, node) or not _leaves(loop):
        return []
    return [_row(source, loop, "loop", count, endless)]


def _row(source: Source, node: ast.AST, kind: str, count: int | None, endless: bool) -> Attempts:
    return Attempts(
        kind=kind,
        count=count,
        endless=endless,
        place=source.place(node),
        excerpt=source.excerpt(node),
    )


def _goes_round(source: Source, loop: ast.AST, node: ast.AST) -> bool:
    """Whether an exception of the node is caught inside the loop and leads to the next round."""
    for parent, child in source.up(node):
        if parent is loop:
            return False
        if isinstance(parent, ast.Try) and child in parent.body:
            for handler in parent.handlers:
                last = handler.body[-1]
                if not isinstance(last, (ast.Raise, ast.Return, ast.Break)):
                    return True
    return False


def _leaves(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether success ends the loop: it is no loop over data."""
    return any(isinstance(node, (ast.Return, ast.Break)) for node in ast.walk(loop))


def _count(source: Source, node: ast.expr) -> int | None:
    """A number; of a parameter its default, which is what happens when nobody says otherwise."""
    value = source.fold(node)
    if isinstance(value, Unknown) and isinstance(node, ast.Name):
        function = source.function(node)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            value = source.fold(_default(function, node.id))
    return _number(value)


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(
            positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True
        ),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
