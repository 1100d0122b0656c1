"""Evaluates expressions and runs functions of vLLM's sources, as far as plain data go."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import Any

from .vllm_classes import Ref, names_of
from .vllm_source import (
    DEPTH_LIMIT,
    STEP_LIMIT,
    UNKNOWN,
    Module,
    Source,
    TooMuch,
)
from .vllm_statements import PLAIN, Statements

BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
BUILTINS: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "len": len,
    "range": lambda *bounds: list(range(*bounds))[:1000],
    "set": lambda *items: sorted(set(*items)),
    "sorted": sorted,
    "str": str,
    "tuple": list,
}
METHODS = {
    dict: ("copy", "get", "items", "keys", "pop", "setdefault", "update", "values"),
    list: ("append", "copy", "extend", "index", "insert", "pop", "remove"),
    str: (
        "endswith",
        "format",
        "join",
        "lower",
        "replace",
        "split",
        "startswith",
        "strip",
        "upper",
    ),
}


class Interpreter(Statements):
    """Values of expressions; `call` is asked first for every call, so that a user can take part."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.steps = 0
        self.depth = 0

    # what a user of the interpreter overrides
    def on_call(
        self, name: str, target: Any, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        """NotImplemented leaves the call to the interpreter."""
        return NotImplemented

    def value(self, node: ast.AST | None, module: Module, local: dict[str, Any]) -> Any:
        """The value of an expression, or UNKNOWN."""
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise TooMuch(f"more than {STEP_LIMIT:,} expressions")
        if self.depth > DEPTH_LIMIT:
            return UNKNOWN
        self.depth += 1
        try:
            method = getattr(self, f"_{type(node).__name__}", None)
            return UNKNOWN if method is None else method(node, module, local)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            return UNKNOWN
        finally:
            self.depth -= 1

    def named(self, name: str, module: Module, local: dict[str, Any]) -> Any:
        """What a name means there."""
        if name in local:
            return local[name]
        found = self.source.find(module, name)
        if found is not None:
            return self._found(name, *found)
        if name in module.imported:
            place, attribute = module.imported[name]
            return Ref("foreign", f"{place.lstrip('!')}.{attribute}" if attribute else place, None)
        if name in BUILTINS or name in ("super", "print", "getattr", "type", "object"):
            return Ref("foreign", name, None)
        return UNKNOWN

    def _found(self, name: str, module: Module, node: Any) -> Any:
        if isinstance(node, Module):
            return Ref("module", node.name, node)
        if isinstance(node, ast.ClassDef):
            return Ref("class", node.name, module, node)
        if isinstance(node, ast.FunctionDef):
            return Ref("function", node.name, module, node)
        return self.value(node, module, {})

    # expressions, one method for each kind of node
    def _Constant(self, node: ast.Constant, *_: Any) -> Any:
        return node.value if isinstance(node.value, PLAIN) else UNKNOWN

    def _Name(self, node: ast.Name, module: Module, local: dict[str, Any]) -> Any:
        return self.named(node.id, module, local)

    def _List(self, node: ast.List, module: Module, local: dict[str, Any]) -> Any:
        found: list[Any] = []
        for item in node.elts:
            if isinstance(item, ast.Starred):
                more = self.value(item.value, module, local)
                if not isinstance(more, list):
                    return UNKNOWN
                found += more
            else:
                found.append(self.value(item, module, local))
        return found

    _Tuple = _Set = _List

    def _Dict(self, node: ast.Dict, module: Module, local: dict[str, Any]) -> Any:
        found: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, module, local)
            if key is None:
                if isinstance(value, dict):
                    found.update(value)
                continue
            found[self.value(key, module, local)] = value
        return found

    def _JoinedStr(self, node: ast.JoinedStr, module: Module, local: dict[str, Any]) -> Any:
        text = ""
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            value = self.value(inner, module, local)
            if not isinstance(value, PLAIN):
                return UNKNOWN
            text += str(value)
        return text

    def _UnaryOp(self, node: ast.UnaryOp, module: Module, local: dict[str, Any]) -> Any:
        value = self.value(node.operand, module, local)
        if not isinstance(value, (*PLAIN, list, dict)):
            return UNKNOWN
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(value, (int, float)) else UNKNOWN

    def _BinOp(self, node: ast.BinOp, module: Module, local: dict[str, Any]) -> Any:
        left = self.value(node.left, module, local)
        right = self.value(node.right, module, local)
        if isinstance(left, list) and not isinstance(right, list):
            return left  # a list and what depends on the platform
        if not isinstance(left, (*PLAIN, list)) or not isinstance(right, (*PLAIN, list)):
            return UNKNOWN
        if isinstance(right, int) and abs(right) > 100_000 and isinstance(left, (str, list)):
            return UNKNOWN
        if isinstance(node.op, ast.Pow):
            whole = isinstance(left, int) and isinstance(right, int) and 0 <= right <= 64
            return operator.pow(left, right) if whole else UNKNOWN
        return BINARY[type(node.op)](left, right)

    def _BoolOp(self, node: ast.BoolOp, module: Module, local: dict[str, Any]) -> Any:
        value: Any = UNKNOWN
        for part in node.values:
            value = self.value(part, module, local)
            if not isinstance(value, (*PLAIN, list, dict)):
                return UNKNOWN
            if bool(value) == isinstance(node.op, ast.Or):
                return value
        return value

    def _Compare(self, node: ast.Compare, module: Module, local: dict[str, Any]) -> Any:
        left = self.value(node.left, module, local)
        right = self.value(node.comparators[0], module, local)
        known = (*PLAIN, list, dict)
        if len(node.ops) > 1 or not isinstance(left, known) or not isinstance(right, known):
            return UNKNOWN
        return COMPARE[type(node.ops[0])](left, right)

    def _IfExp(self, node: ast.IfExp, module: Module, local: dict[str, Any]) -> Any:
        test = self.value(node.test, module, local)
        if not isinstance(test, (*PLAIN, list, dict)):
            return UNKNOWN
        return self.value(node.body if test else node.orelse, module, local)

    def _Lambda(self, node: ast.Lambda, module: Module, local: dict[str, Any]) -> Any:
        found = Ref("lambda", "<lambda>", module, node)
        found.local = local  # type: ignore[attr-defined]
        return found

    def _ListComp(self, node: ast.ListComp, module: Module, local: dict[str, Any]) -> Any:
        (loop,) = node.generators
        items = self.value(loop.iter, module, local)
        if isinstance(items, Ref) and items.kind == "class":
            items = self.members(items)
        if not isinstance(items, list):
            return UNKNOWN
        found = []
        for item in items[:1000]:
            inner = dict(local)
            self.assign(loop.target, item, module, inner)
            if all(self.value(test, module, inner) is True for test in loop.ifs):
                found.append(self.value(node.elt, module, inner))
        return found

    _GeneratorExp = _SetComp = _ListComp

    def _Subscript(self, node: ast.Subscript, module: Module, local: dict[str, Any]) -> Any:
        holder = self.value(node.value, module, local)
        if isinstance(holder, (dict, list, str)) and not isinstance(node.slice, ast.Slice):
            return holder[self.value(node.slice, module, local)]
        return UNKNOWN

    def _Attribute(self, node: ast.Attribute, module: Module, local: dict[str, Any]) -> Any:
        return self.attribute(self.value(node.value, module, local), node.attr)

    def attribute(self, holder: Any, name: str) -> Any:
        """holder.name"""
        if not isinstance(holder, Ref):
            return UNKNOWN
        if holder.kind == "module" and holder.module is not None:
            if holder.name == "envs":
                return Ref("foreign", f"envs.{name}", None)
            return self.named(name, holder.module, {})
        if holder.kind == "foreign":
            return Ref("foreign", f"{holder.name.lstrip('!')}.{name}", None)
        if holder.kind == "member":
            return holder.node if name in ("value", "_value_") else holder.name
        if holder.kind in ("class", "super"):
            return self._class_attribute(holder, name)
        return UNKNOWN

    def _class_attribute(self, holder: Ref, name: str) -> Any:
        if holder.kind == "class" and self.is_enum(holder):
            for member in self.members(holder):
                if member.name == name:
                    return member
        line = self.bases(holder)
        if holder.kind == "super":
            line = line[1:]
        for place in line:
            for node in place.node.body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    method = Ref("function", name, place.module, node)
                    method.owner = holder.owner or holder
                    method.defined_in = place  # type: ignore[attr-defined]
                    return method
                if isinstance(node, ast.Assign) and names_of(node) == [name]:
                    return self.value(node.value, place.module or Module("", False, _EMPTY), {})
        found = self.fields(holder).get(name)
        return self.default(found[1], found[0])[0] if found else UNKNOWN

    def _Call(self, node: ast.Call, module: Module, local: dict[str, Any]) -> Any:
        function = node.func
        arguments = self._List(ast.List(elts=node.args), module, local)
        arguments = arguments if isinstance(arguments, list) else []
        keywords: dict[str, Any] = {}
        for one in node.keywords:
            value = self.value(one.value, module, local)
            if one.arg is not None:
                keywords[one.arg] = value
            elif isinstance(value, dict):
                keywords.update(value)
        if isinstance(function, ast.Attribute):
            holder = self.value(function.value, module, local)
            name = function.attr
            if isinstance(holder, list) and name == "remove":
                if arguments[0] in holder:
                    holder.remove(arguments[0])
                return None
            for kind, methods in METHODS.items():
                if isinstance(holder, kind) and name in methods:
                    return _listed(getattr(holder, name)(*arguments, **keywords))
            answer = self.on_call(name, holder, arguments, keywords)
            if answer is not NotImplemented:
                return answer
            target = self.attribute(holder, name)
        else:
            target = self.value(function, module, local)
            name = target.name if isinstance(target, Ref) else getattr(function, "id", "")
            if name == "super" and isinstance(local.get("__class__"), Ref):
                parent = Ref("super", "super", local["__class__"].module, local["__class__"].node)
                first = next(iter(local.values()), None)
                parent.owner = first if isinstance(first, Ref) else None
                return parent
            answer = self.on_call(name, None, arguments, keywords)
            if answer is not NotImplemented:
                return answer
        return self.apply(target, arguments, keywords)

    def apply(self, target: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if not isinstance(target, Ref):
            return UNKNOWN
        if target.kind in ("function", "lambda"):
            return self.run(target, arguments, keywords)
        name = target.name
        if name in ("permutations", "itertools.permutations"):
            length = keywords.get("r", arguments[1] if len(arguments) > 1 else None)
            made = itertools.islice(itertools.permutations(arguments[0], length), 1000)
            return [list(one) for one in made]
        if name in ("copy.deepcopy", "copy.copy", "cast", "typing.cast"):
            return _copy(arguments[-1])
        if name in BUILTINS:
            if name in ("list", "sorted", "tuple", "set") and arguments:
                if isinstance(arguments[0], Ref) and arguments[0].kind == "class":
                    arguments = [self.members(arguments[0])]
                if isinstance(arguments[0], dict):
                    arguments = [list(arguments[0])]
            if any(item is UNKNOWN or isinstance(item, Ref) for item in arguments):
                return UNKNOWN
            return BUILTINS[name](*arguments, **keywords)
        return UNKNOWN


_EMPTY = ast.Module(body=[], type_ignores=[])


def _listed(value: Any) -> Any:
    """Views and tuples as lists."""
    if isinstance(value, (ItemsView, KeysView, ValuesView, tuple)):
        return [_listed(item) for item in value]
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
