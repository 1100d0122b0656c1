"""Classes of vLLM's sources: bases, members of enums, fields of dataclasses and their defaults."""

from __future__ import annotations

import ast
from typing import Any

from .vllm_source import UNKNOWN, Module


class Ref:
    """A class, function, lambda or module of the sources, or a name from elsewhere."""

    def __init__(self, kind: str, name: str, module: Module | None, node: Any = None) -> None:
        self.kind = kind
        """class, function, lambda, module, foreign, super"""
        self.name = name
        self.module = module
        self.node = node
        self.owner: Ref | None = None
        """For a method: the class that it was asked of."""


class Classes:
    """What is asked of a class; the interpreter brings `value` and `apply`."""

    def value(self, node: ast.AST | None, module: Module, local: dict[str, Any]) -> Any:
        """The value of an expression, or UNKNOWN."""
        raise NotImplementedError

    def apply(self, target: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What a call gives."""
        raise NotImplementedError

    def bases(self, holder: Ref) -> list[Ref]:
        """The class and those it is made from, nearest first."""
        found = [Ref("class", holder.node.name, holder.module, holder.node)]
        for node in holder.node.bases:
            base = self.value(node, holder.module, {}) if holder.module else UNKNOWN
            if isinstance(base, Ref) and base.kind == "class" and len(found) < 20:
                found += self.bases(base)
        return found

    def is_enum(self, holder: Ref) -> bool:
        """Whether the class is an Enum."""
        names = [getattr(base, "id", getattr(base, "attr", "")) for base in holder.node.bases]
        metaclass = any(one.arg == "metaclass" for one in holder.node.keywords)
        return metaclass or any(name.endswith("Enum") for name in names)

    def members(self, holder: Ref) -> list[Ref]:
        """The members of an Enum; `node` is the value."""
        found = []
        for node in holder.node.body:
            if isinstance(node, ast.Assign) and holder.module is not None:
                for name in names_of(node):
                    value = self.value(node.value, holder.module, {})
                    found.append(Ref("member", name, None, value))
        return found

    def fields(self, holder: Ref) -> dict[str, tuple[Module, ast.AnnAssign]]:
        """The fields of a dataclass, those of its bases first."""
        found: dict[str, tuple[Module, ast.AnnAssign]] = {}
        for place in reversed(self.bases(holder)):
            for node in place.node.body:
                if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                    continue
                outer = node.annotation
                if isinstance(outer, ast.Subscript):
                    outer = outer.value
                name = getattr(outer, "id", getattr(outer, "attr", ""))
                if name in ("ClassVar", "InitVar") or place.module is None:
                    continue
                found[node.target.id] = (place.module, node)
        return found

    def default(self, node: ast.AnnAssign, module: Module) -> tuple[Any, dict[str, Any]]:
        """(default, bounds) of a field; Field(default=..., ge=0) brings both."""
        value = node.value
        if value is None:
            return UNKNOWN, {}
        name = getattr(value, "func", None)
        called = getattr(name, "id", getattr(name, "attr", ""))
        if not isinstance(value, ast.Call) or called not in ("Field", "field"):
            return self.value(value, module, {}), {}
        found: Any = UNKNOWN
        bounds: dict[str, Any] = {}
        if value.args:
            found = self.value(value.args[0], module, {})
        for one in value.keywords:
            if one.arg == "default":
                found = self.value(one.value, module, {})
            elif one.arg == "default_factory":
                found = self._made(self.value(one.value, module, {}))
            elif one.arg in ("gt", "ge", "lt", "le"):
                bounds[one.arg] = self.value(one.value, module, {})
        return found, bounds

    def _made(self, factory: Any) -> Any:
        if isinstance(factory, Ref) and factory.kind == "class":
            return Ref("object", factory.name, None)
        return self.apply(factory, [], {})


def names_of(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]
