"""Runs the functions of vLLM's sources that declare arguments, statement by statement."""

from __future__ import annotations

import ast
from typing import Any

from .vllm_classes import Classes, Ref
from .vllm_source import DEPTH_LIMIT, UNKNOWN, Module, imports, is_type_checking

PLAIN = (bool, int, float, str, type(None))


class Returned(Exception):
    """A `return` of the function that runs."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Statements(Classes):
    """What is done with statements; the interpreter brings the values."""

    depth = 0

    def run(self, function: Ref, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Run a function; UNKNOWN for what it does not return."""
        node, module = function.node, function.module
        if module is None or self.depth > DEPTH_LIMIT:
            return UNKNOWN
        local: dict[str, Any] = dict(getattr(function, "local", {}))
        spec = node.args
        names = [one.arg for one in (*spec.posonlyargs, *spec.args)]
        defaults = spec.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            local[name] = self.value(default, module, {})
        for one, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            local[one.arg] = self.value(default, module, {}) if default else UNKNOWN
        decorators = [getattr(one, "id", "") for one in getattr(node, "decorator_list", ())]
        if function.owner is not None and "staticmethod" not in decorators:
            arguments = [function.owner, *arguments]
        for name in names:
            local.setdefault(name, UNKNOWN)
        local.update(zip(names, arguments, strict=False))
        local.update(keywords)
        local["__class__"] = getattr(function, "defined_in", function.owner)
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.value(node.body, module, local)
            self.body(node.body, module, local)
        except Returned as returned:
            return returned.value
        finally:
            self.depth -= 1
        return None

    def body(self, statements: list[ast.stmt], module: Module, local: dict[str, Any]) -> None:
        """Run statements; of an undecided `if` both branches are run."""
        for node in statements:
            if isinstance(node, ast.Return):
                raise Returned(self.value(node.value, module, local) if node.value else None)
            if isinstance(node, ast.Expr):
                self.value(node.value, module, local)
            elif isinstance(node, ast.Assign):
                value = self.value(node.value, module, local)
                for target in node.targets:
                    self.assign(target, value, module, local)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.assign(node.target, self.value(node.value, module, local), module, local)
            elif isinstance(node, ast.AugAssign):
                mixed = ast.BinOp(left=node.target, op=node.op, right=node.value)
                self.assign(node.target, self.value(mixed, module, local), module, local)
            elif isinstance(node, ast.Delete):
                self._delete(node, module, local)
            elif isinstance(node, ast.If):
                self._if(node, module, local)
            elif isinstance(node, ast.For):
                self._for(node, module, local)
            elif isinstance(node, (ast.With, ast.Try)):
                self.body(node.body, module, local)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                for name, (place, attribute) in imports(node, module).items():
                    module.imported.setdefault(name, (place, attribute))
            elif isinstance(node, ast.FunctionDef):
                inner = Ref("function", node.name, module, node)
                inner.local = local  # type: ignore[attr-defined]
                local[node.name] = inner

    def _if(self, node: ast.If, module: Module, local: dict[str, Any]) -> None:
        test = False if is_type_checking(node.test) else self.value(node.test, module, local)
        known = isinstance(test, (*PLAIN, list, dict))
        if not known or test:
            self._branch(node.body, module, local, certain=known)
        if not known or not test:
            self._branch(node.orelse, module, local, certain=known)

    def _branch(
        self, body: list[ast.stmt], module: Module, local: dict[str, Any], *, certain: bool
    ) -> None:
        try:
            self.body(body, module, local)
        except Returned:
            if certain:
                raise

    def _for(self, node: ast.For, module: Module, local: dict[str, Any]) -> None:
        items = self.value(node.iter, module, local)
        for item in items[:1000] if isinstance(items, list) else ():
            self.assign(node.target, item, module, local)
            self.body(node.body, module, local)

    def assign(self, target: ast.AST, value: Any, module: Module, local: dict[str, Any]) -> None:
        if isinstance(target, ast.Name):
            local[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, list):
            for part, item in zip(target.elts, value, strict=False):
                self.assign(part, item, module, local)
        elif isinstance(target, ast.Subscript):
            holder = self.value(target.value, module, local)
            key = self.value(target.slice, module, local)
            if isinstance(holder, dict) and isinstance(key, PLAIN):
                holder[key] = value

    def _delete(self, node: ast.Delete, module: Module, local: dict[str, Any]) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                holder = self.value(target.value, module, local)
                if isinstance(holder, dict):
                    holder.pop(self.value(target.slice, module, local), None)
