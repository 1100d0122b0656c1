"""Every check that can give a safe or unsafe fix is shown to be cured by it, and taken back.

Which checks can is read in their source: from the function of the check through all that it calls to
each Fix whose safety is not the word "manual". A check with such a fix and without a case in the tests
of cures fails here.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.registry import Check, Registry

HERE = Path(__file__).parent
TESTS = HERE.parent

CURES = [
    *sorted(HERE.glob("test_cures*.py")),
    HERE / "test_orphan.py",
    TESTS / "engine" / "test_fix_cache.py",
    TESTS / "engine" / "test_fix_models.py",
]
"""Each names the checks that it cures, in a table or in the words of the command."""

NOT_SHOWN = {
    "cuda-compat-misplaced": "needs a driver of NVIDIA beside its compat package",
    "nccl-not-direct": "needs two GPUs that sum again (--deep); its fix unsets one variable",
    "log-engine-failed": "ends the process that gpu-memory-held ends (test_orphan.py); its log stays as "
    "it was written, so only another start shows the cure",
    "launch-remote-code-needed": "its only fix is manual: the option runs code of the model",
    "manifest-health-shallow": "its only fix is manual: it has no edits",
    "manifest-image-moving": "its only fix is manual: which version is meant only you know",
}
"""Check -> why no case of its own."""


def registry() -> Registry:
    found = Registry()
    found.add_package("infer_doctor.facts")
    found.add_package("infer_doctor.checks")
    return found


CHECKS = registry().checks


@cache
def parts(function: Callable[..., Any]) -> tuple[bool, tuple[Callable[..., Any], ...]]:
    """Whether a function itself makes a fix that is not manual, and which functions it names."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    module = sys.modules[function.__module__]
    return any(map(_is_free, ast.walk(tree))), tuple(_named(tree, module))


def _is_free(node: ast.AST) -> bool:
    """Fix(..., safety=...) or replace(fix, safety=...) with another word than "manual"."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return name in ("Fix", "replace") and any(
        word.arg == "safety"
        and not (isinstance(word.value, ast.Constant) and word.value.value == "manual")
        for word in node.keywords
    )


def _named(tree: ast.AST, module: Any) -> Iterator[Callable[..., Any]]:
    for node in ast.walk(tree):
        found = None
        if isinstance(node, ast.Name):
            found = getattr(module, node.id, None)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found = getattr(getattr(module, node.value.id, None), node.attr, None)
        if inspect.isfunction(found) and found.__module__.startswith("infer_doctor."):
            yield inspect.unwrap(found)


def can_be_applied(check: Check) -> bool:
    """Whether some way through the check makes a fix that is not manual."""
    seen: set[Callable[..., Any]] = set()
    todo: list[Callable[..., Any]] = [inspect.unwrap(check.function)]
    while todo:
        function = todo.pop()
        if function in seen:
            continue
        seen.add(function)
        free, named = parts(function)
        if free:
            return True
        todo += named
    return False


def shown() -> set[str]:
    """The checks that the tests of cures name."""
    found: set[str] = set()
    for path in CURES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value.partition(" ")[0])
    return found & CHECKS.keys()


WITH_FIX = sorted(id for id, check in CHECKS.items() if can_be_applied(check))


def test_the_reading_of_the_source_finds_them() -> None:
    """One made in the check, one in `fixes`, one through a helper of the launch, one with `replace`."""
    assert len(WITH_FIX) >= 90
    assert {
        "model-weights-pickled",
        "env-pynvml-deprecated",
        "model-weights-broken",
        "memory-unused",
    } <= set(WITH_FIX)
    assert not {"driver-missing", "manifest-probe-port"} & set(WITH_FIX)


@pytest.mark.parametrize("check", WITH_FIX)
def test_it_is_cured_somewhere(check: str) -> None:
    assert (check in shown()) != (check in NOT_SHOWN)


def test_no_reason_is_left_over() -> None:
    assert NOT_SHOWN.keys() <= set(WITH_FIX)
