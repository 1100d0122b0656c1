"""The sources of an installed vLLM as values, without importing them: a small interpreter.

It evaluates what `vllm/engine/arg_utils.py` and its like do while they declare arguments:
constants, dicts, loops over them, calls of small functions. Whatever it does not know becomes
UNKNOWN; it never runs code of the package. Standard library only.
"""

from __future__ import annotations

import ast
import os
from typing import Any

from .files import read_bytes

FILE_LIMIT = 1 << 20
"""Bytes of one source file; the largest that is read, engine/arg_utils.py, has 130,000."""

STEP_LIMIT = 400_000
"""Evaluated nodes; all arguments of vLLM 0.33 take 60,000."""

DEPTH_LIMIT = 40


class TooMuch(Exception):
    """The source is no vLLM that a person wrote."""


class _Unknown:
    """A value that cannot be told without running the code."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()


class Module:
    """One source file: what its top level defines and imports."""

    def __init__(self, name: str, package: bool, tree: ast.Module) -> None:
        self.name = name
        self.package = package
        self.body = tree.body
        self.defined: dict[str, ast.AST] = {}
        self.imported: dict[str, tuple[str, str | None]] = {}
        """Name -> (module below vllm, or a foreign one with "!" before it; the name there)."""
        self._scan(tree.body)

    def _scan(self, body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.defined[target.id] = node.value
            elif isinstance(node, ast.AnnAssign):
                if isinstance(node.target, ast.Name) and node.value is not None:
                    self.defined[node.target.id] = node.value
            elif type(node).__name__ == "TypeAlias":
                self.defined[node.name.id] = node.value  # type: ignore[attr-defined]
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imported.update(imports(node, self))
            elif isinstance(node, ast.If):
                if not is_type_checking(node.test):
                    self._scan(node.body)
                self._scan(node.orelse)
            elif isinstance(node, ast.Try):
                self._scan(node.body)


def is_type_checking(test: ast.AST) -> bool:
    """Whether the branch is only for type checkers: False when the program runs."""
    return (getattr(test, "id", None) or getattr(test, "attr", None)) == "TYPE_CHECKING"


def imports(node: ast.Import | ast.ImportFrom, module: Module) -> dict[str, tuple[str, str | None]]:
    """The names that an import statement binds."""
    found: dict[str, tuple[str, str | None]] = {}
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                found[alias.asname] = (_below(alias.name), None)
            else:
                top = alias.name.partition(".")[0]
                found[top] = (_below(top), None)
        return found
    base = node.module or ""
    if node.level:
        parts = module.name.split(".") if module.name else []
        parts = parts[: len(parts) - node.level + module.package]
        base = ".".join(["vllm", *parts, *([base] if base else [])])
    for alias in node.names:
        found[alias.asname or alias.name] = (_below(base), alias.name)
    return found


def _below(dotted: str) -> str:
    """The name below vllm; "!json" for what belongs to somebody else."""
    if dotted == "vllm":
        return ""
    return dotted[5:] if dotted.startswith("vllm.") else f"!{dotted}"


class Source:
    """The package folder; modules are parsed once, when they are first needed."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.modules: dict[str, Module | None] = {}
        self.files: dict[str, bytes] = {}

    def module(self, name: str) -> Module | None:
        """A module below the package, "" for the package itself."""
        if name not in self.modules:
            self.modules[name] = self._load(name)
        return self.modules[name]

    def _load(self, name: str) -> Module | None:
        place = name.replace(".", "/")
        for path, package in ((f"{place}.py", False), (f"{place}/__init__.py".lstrip("/"), True)):
            try:
                data, cut = read_bytes(os.path.join(self.folder, path), FILE_LIMIT)
            except OSError:
                continue
            if cut:
                raise TooMuch(f"{path} is larger than {FILE_LIMIT:,} bytes")
            self.files[path] = data
            return Module(name, package, ast.parse(data))
        return None

    def find(self, module: Module | None, name: str, hops: int = 0) -> tuple[Module, Any] | None:
        """Where a name leads from a module: (module, node), or (module, Module) for a module."""
        if module is None or hops > 12:
            return None
        if name in module.defined:
            return module, module.defined[name]
        if name not in module.imported:
            return None
        place, attribute = module.imported[name]
        if place.startswith("!"):
            return None
        if attribute is None:
            target = self.module(place)
            return (target, target) if target else None
        target = self.module(place)
        found = self.find(target, attribute, hops + 1)
        if found is not None:
            return found
        inner = self.module(f"{place}.{attribute}" if place else attribute)
        return (inner, inner) if inner else None
