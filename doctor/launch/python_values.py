"""A Python source as far as it can be known without running it: names, imports, constants.

What is bound once to a constant expression has that value; everything else stays Unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from infer_doctor.launch.model import Place, Unknown
from infer_doctor.launch.python_tree import dumped, parse

DEPTH = 24
"""Names and operators that a constant may go through."""
TEXT_LIMIT = 100_000
"""Characters of a folded string: "x" * 10**9 is left alone."""
SHOWN = 80
"""Characters of an expression that are shown."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module, ast.ClassDef)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
"""Statements that bind a name of their own; with MatchAs and MatchStar, which are patterns."""

MUTATORS = frozenset(
    ("append", "extend", "insert", "update", "pop", "popitem", "remove", "clear", "setdefault")
)


class Source:
    """One parsed file."""

    def __init__(self, text: str, place: Callable[[int], Place]) -> None:
        self.tree = parse(text)
        self.lines = text.split("\n")
        self._place = place
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = []
        self.aliases: dict[str, str] = {}
        self.imports: list[tuple[ast.Import | ast.ImportFrom, ast.alias]] = []
        self.starred: set[str] = set()
        self.bindings: dict[tuple[ast.AST, str], list[ast.expr | None]] = {}
        self.mutations: dict[tuple[ast.AST, str], list[ast.AST]] = {}
        self._known: dict[tuple[ast.AST, str], Any] = {}
        self._globals: dict[ast.AST, set[str]] = {}
        self._walk()
        for node in self.nodes:
            self._bind(node)

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        return self._place(getattr(node, "lineno", 1))

    def excerpt(self, node: ast.AST) -> str:
        """The line where a node begins."""
        line = self.lines[getattr(node, "lineno", 1) - 1].strip()
        return line if len(line) <= 2 * SHOWN else line[: 2 * SHOWN - 3] + "..."

    def up(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(parent, child) from a node to the module."""
        while (parent := self.parents.get(node)) is not None:
            yield parent, node
            node = parent

    def function(self, node: ast.AST) -> FunctionNode | None:
        """The innermost function whose body holds a node."""
        for parent, child in self.up(node):
            if isinstance(parent, ast.Lambda):
                return parent
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
                child in parent.body
            ):
                return parent
        return None

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around a node."""
        return next((p for p, _ in self.up(node) if isinstance(p, ast.ClassDef)), None)

    def conditional(self, node: ast.AST) -> bool:
        """Whether a node runs only sometimes, apart from the guard of the main program."""
        for parent, child in self.up(node):
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return False
            if isinstance(parent, ast.If) and "__main__" in ast.dump(parent.test):
                continue
            if isinstance(parent, (ast.If, ast.For, ast.While, ast.ExceptHandler)) and (
                child is not getattr(parent, "test", None)
            ):
                return True
        return False

    def dotted(self, node: ast.AST) -> str | None:
        """ "np.random.x" of a chain of names, as it is written."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([node.id, *reversed(parts)])

    def resolved(self, node: ast.AST) -> str | None:
        """The dotted name with imports put in: "vllm.LLM" after `import vllm as v` and `v.LLM`."""
        name = self.dotted(node)
        if name is None:
            return None
        first, dot, rest = name.partition(".")
        return self.aliases.get(first, first) + dot + rest

    def imported(self, name: str) -> bool:
        """Whether the file binds a name anywhere: then it is no mistake of an import."""
        return name in self.aliases or any(bound == name for _, bound in self.bindings)

    # Constants

    def fold(self, node: ast.AST | None, depth: int = 0) -> Any:
        """The value of an expression, or Unknown with its text."""
        if node is None:
            return Unknown("")
        if depth > DEPTH:
            return self.unknown(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return self._fold_text(node, depth)
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = self._fold_items(node, depth)
            return self.unknown(node) if items is None else items
        if isinstance(node, ast.Dict):
            return self._fold_dict(node, depth)
        if isinstance(node, ast.Name):
            return self._fold_name(node, depth)
        if isinstance(node, ast.Attribute):
            return self._fold_attribute(node, depth)
        if isinstance(node, ast.UnaryOp):
            return self._fold_unary(node, depth)
        if isinstance(node, ast.BinOp):
            return self._fold_binary(node, depth)
        if isinstance(node, ast.Call):
            return self._fold_call(node, depth)
        if isinstance(node, ast.IfExp):
            test = self.fold(node.test, depth + 1)
            if test is None or isinstance(test, (bool, int, float, str)):
                return self.fold(node.body if test else node.orelse, depth + 1)
        return self.unknown(node)

    def partial(
        self,
        node: ast.expr | None,
        show: Callable[[Unknown], str] = lambda v: f"{{{v.text}}}",
        depth: int = 0,
    ) -> str:
        """A text as far as it is known; what is not stands in braces, or as `show` says."""
        if node is None:
            return ""
        value = self.fold(node)
        if not isinstance(value, Unknown):
            return str(value)
        if depth > DEPTH:
            return show(value)
        depth += 1
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.FormattedValue) else p for p in node.values)
            return "".join(self.partial(part, show, depth) for part in parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.partial(node.left, show, depth) + self.partial(node.right, show, depth)
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in ("rstrip", "strip"):
            return self.partial(method.value, show, depth)
        if isinstance(node, ast.Name) and (found := self.lookup(node, node.id)):
            values = [v for v in found[1] if isinstance(v, (ast.JoinedStr, ast.BinOp))]
            if len(values) == len(found[1]) == 1 and (found[0], node.id) not in self.mutations:
                return self.partial(values[0], show, depth)
        return show(value)

    def unknown(self, node: ast.AST) -> Unknown:
        """The text of an expression as an Unknown."""
        try:
            text = ast.unparse(node)
        except (RecursionError, ValueError):
            text = "..."
        return Unknown(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")

    def lookup(self, node: ast.AST, name: str) -> tuple[ast.AST, list[ast.expr | None]] | None:
        """The scope that binds a name as seen from a node, and all that is bound to it there."""
        for parent, _ in self.up(node):
            if isinstance(parent, SCOPES) and (parent, name) in self.bindings:
                if isinstance(parent, ast.ClassDef) and parent is not self.parents.get(node):
                    continue
                return parent, self.bindings[parent, name]
        return None

    def _fold_name(self, node: ast.Name, depth: int) -> Any:
        found = self.lookup(node, node.id)
        if found is None:
            return self.unknown(node)
        scope, values = found
        if (scope, node.id) not in self._known:
            self._known[scope, node.id] = Unknown(node.id)  # until it is known: x = x + 1
            self._known[scope, node.id] = self._value(scope, node.id, values, depth)
        return self._known[scope, node.id]

    def _value(self, scope: ast.AST, name: str, values: list[ast.expr | None], depth: int) -> Any:
        """What a name has in its scope: what all bindings agree on."""
        if (scope, name) in self.mutations or None in values:
            return Unknown(name)
        folded = [self.fold(value, depth + 1) for value in values]
        first = folded[0]
        agreed = all(type(value) is type(first) and value == first for value in folded)
        return first if agreed and not isinstance(first, Unknown) else Unknown(name)

    def _fold_attribute(self, node: ast.Attribute, depth: int) -> Any:
        """A constant of a class of the file: Config.MODEL."""
        owner = node.value
        if isinstance(owner, ast.Name) and (found := self.lookup(node, owner.id)):
            (scope, _) = found
            for candidate in ast.iter_child_nodes(scope):
                if isinstance(candidate, ast.ClassDef) and candidate.name == owner.id:
                    values = self.bindings.get((candidate, node.attr), [None])
                    if len(values) == 1 and values[0] is not None:
                        return self.fold(values[0], depth + 1)
        return self.unknown(node)

    def _fold_text(self, node: ast.JoinedStr, depth: int) -> Any:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.fold(part.value, depth + 1)
                if isinstance(value, Unknown) or part.format_spec or part.conversion != -1:
                    return self.unknown(node)
                parts.append(str(value))
            else:
                parts.append(str(self.fold(part, depth + 1)))
        return "".join(parts)

    def _fold_items(self, node: ast.List | ast.Tuple | ast.Set, depth: int) -> list[Any] | None:
        items: list[Any] = []
        for item in node.elts:
            if not isinstance(item, ast.Starred):
                items.append(self.fold(item, depth + 1))
                continue
            more = self.fold(item.value, depth + 1)
            if not isinstance(more, list):
                return None
            items += more
        return items

    def _fold_dict(self, node: ast.Dict, depth: int) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            folded = self.fold(value, depth + 1)
            if key is None:
                if not isinstance(folded, dict):
                    return self.unknown(node)
                made.update(folded)
                continue
            name = self.fold(key, depth + 1)
            if isinstance(name, (Unknown, list, dict)):
                return self.unknown(node)
            made[name] = folded
        return made

    def _fold_unary(self, node: ast.UnaryOp, depth: int) -> Any:
        value = self.fold(node.operand, depth + 1)
        if isinstance(value, (int, float)):
            if isinstance(node.op, ast.USub):
                return -value
            if isinstance(node.op, ast.Not):
                return not value
        return self.unknown(node)

    def _fold_binary(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.fold(node.left, depth + 1), self.fold(node.right, depth + 1)
        numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
        if isinstance(node.op, ast.Add) and (
            numbers or (type(left) is type(right) and isinstance(left, (str, list)))
        ):
            return left + right if len(str(left)) < TEXT_LIMIT else self.unknown(node)
        if numbers and max(abs(left), abs(right)) < 1e15:
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if right and isinstance(node.op, ast.FloorDiv):
                return left // right
            if right and isinstance(node.op, ast.Div):
                return left / right
        return self.unknown(node)

    def _fold_call(self, node: ast.Call, depth: int) -> Any:
        name = self.resolved(node.func)
        if name == "dict" and not node.args and all(word.arg for word in node.keywords):
            return {str(word.arg): self.fold(word.value, depth + 1) for word in node.keywords}
        if name == "json.dumps" and len(node.args) == 1 and not node.keywords:
            return dumped(self.fold(node.args[0], depth + 1)) or self.unknown(node)
        if name in ("str", "pathlib.Path", "Path", "list") and len(node.args) == 1:
            value = self.fold(node.args[0], depth + 1)
            if name == "list":
                return value if isinstance(value, list) else self.unknown(node)
            if isinstance(value, (str, int, float)):
                return str(value)
        return self.unknown(node)

    # Names

    def _walk(self) -> None:
        """All nodes in the order of the text, each with its parent; without recursion."""
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            self.nodes.append(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self.parents[child] = node
            stack.extend(reversed(children))
        for node in self.nodes:
            if isinstance(node, ast.Global):
                self._globals.setdefault(self._scope(node), set()).update(node.names)

    def _scope(self, node: ast.AST) -> ast.AST:
        return next((p for p, _ in self.up(node) if isinstance(p, SCOPES)), self.tree)

    def _set(self, node: ast.AST, name: str, value: ast.expr | None) -> None:
        scope = self._scope(node)
        owner = self.tree if name in self._globals.get(scope, ()) else scope
        self.bindings.setdefault((owner, name), []).append(value)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._bind_import(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._bind_target(node, target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._mutate(node, node.target)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in MUTATORS:
                self._mutate(node, node.func.value)
        elif isinstance(node, ast.arg):
            self._set(node, node.arg, None)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            parent = self.parents.get(node)
            if not isinstance(parent, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
                self._set(node, node.id, None)  # for, with, comprehension, unpacking
        elif isinstance(node, (*NAMED, ast.MatchAs, ast.MatchStar)) and node.name:
            self._set(node, node.name, None)

    def _bind_target(self, node: ast.AST, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            if value is not None or not isinstance(node, ast.AnnAssign):
                self._set(node, target.id, value)
        elif isinstance(target, ast.Subscript):
            self._mutate(node, target.value)

    def _mutate(self, node: ast.AST, target: ast.AST) -> None:
        if isinstance(target, ast.Subscript):
            target = target.value
        if isinstance(target, ast.Name):
            found = self.lookup(node, target.id)
            scope = found[0] if found else self._scope(node)
            self.mutations.setdefault((scope, target.id), []).append(node)

    def _bind_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.imports.append((node, alias))
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                if alias.name == "*":
                    self.starred.add(module)
                else:
                    self.aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
            elif alias.asname:
                self.aliases[alias.asname] = alias.name
            else:
                first = alias.name.partition(".")[0]
                self.aliases[first] = first
