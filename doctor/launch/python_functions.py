"""The functions of a source: which answer requests, which run on the event loop, who calls whom."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from infer_doctor.facts.client_code import Function, Role
from infer_doctor.launch.model import Place
from infer_doctor.launch.python_values import FunctionNode, Source

METHODS = [
    "get",
    "post",
    "put",
    "delete",
    "patch",
    "head",
    "options",
    "route",
    "api_route",
    "websocket",
    "websocket_route",
]
"""Decorators of FastAPI, Starlette, Flask, Sanic and aiohttp.web that make a function a handler."""

REGISTERS = {
    "add_api_route": 1,
    "add_route": 0,
    "add_get": 1,
    "add_post": 1,
    "add_url_rule": 2,
    "Route": 1,
}
"""Calls that do the same -> the place of the function among their arguments."""

APPLICATIONS = {
    "fastapi.FastAPI",
    "fastapi.APIRouter",
    "starlette.applications.Starlette",
    "flask.Flask",
    "quart.Quart",
    "sanic.Sanic",
    "aiohttp.web.Application",
    "litestar.Litestar",
}

Named = ast.FunctionDef | ast.AsyncFunctionDef


class Functions:
    """The functions of a source with their roles and callers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.named = [
            node
            for node in source.nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        self._roles: dict[FunctionNode, Role] = {node: self._role(node) for node in self.named}
        self.applications = [
            node
            for node in source.nodes
            if isinstance(node, ast.Call) and source.resolved(node.func) in APPLICATIONS
        ]
        for node in source.nodes:
            if isinstance(node, ast.Call):
                self._register(node)
        self.callers: dict[FunctionNode, list[ast.Call]] = {}
        for node in source.nodes:
            if isinstance(node, ast.Call):
                for function in self.called(node):
                    self.callers.setdefault(function, []).append(node)
        self._served = set(self._spread(on_loop=False))
        self._on_loop = set(self._spread(on_loop=True))

    @property
    def serves(self) -> bool:
        """Whether the file is a server: it has handlers or makes an application."""
        return bool(self.applications) or "handler" in self._roles.values()

    def role(self, node: FunctionNode | None) -> Role:
        """The role of a function; of None: the module."""
        return "module" if node is None else self._roles.get(node, "function")

    def describe(self, node: FunctionNode | None) -> Function:
        """The function as a fact."""
        if node is None:
            where = self.source.place(self.source.tree)
            return Function(
                name="the module",
                role="module",
                is_async=False,
                place=Place(file=where.file, line=1),
            )
        return Function(
            name=getattr(node, "name", "lambda"),
            role=self.role(node),
            is_async=isinstance(node, ast.AsyncFunctionDef),
            served=node in self._served,
            on_loop=node in self._on_loop,
            cached=any(
                "cache" in (self.source.dotted(d.func if isinstance(d, ast.Call) else d) or "")
                for d in getattr(node, "decorator_list", [])
            ),
            place=self.source.place(node),
        )

    def called(self, node: ast.Call) -> Iterator[Named]:
        """The functions of the file that a call may mean: by name, or self.name of its class."""
        name = self.source.dotted(node.func)
        if name is None:
            return
        first, _, last = name.rpartition(".")
        own = self.source.owner(node)
        for function in self.named:
            if function.name != last:
                continue
            owner = self.source.parents.get(function)
            in_class = isinstance(owner, ast.ClassDef)
            if (
                (not first and not in_class)
                or (first in ("self", "cls") and owner is own)
                or (isinstance(owner, ast.ClassDef) and self._instance(node, first, owner.name))
            ):
                yield function

    def _instance(self, node: ast.AST, name: str, class_name: str) -> bool:
        """Whether a variable holds an instance of a class of the file: `service = Service()`."""
        found = self.source.lookup(node, name)
        return any(
            isinstance(value, ast.Call) and self.source.dotted(value.func) == class_name
            for value in (found[1] if found else [])
        )

    def _role(self, node: Named) -> Role:
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(call, ast.Attribute):
                arguments = decorator.args if isinstance(decorator, ast.Call) else []
                if call.attr in METHODS and isinstance(decorator, ast.Call):
                    return "handler"
                if call.attr == "on_event" and arguments:
                    value = self.source.fold(arguments[0])
                    return "startup" if value == "startup" else "function"
                if call.attr in ("before_serving", "before_server_start", "on_startup"):
                    return "startup"
        return "function"

    def _register(self, node: ast.Call) -> None:
        """Handlers and start-up functions that are named in a call."""
        name = self.source.dotted(node.func) or ""
        last = name.rpartition(".")[2]
        if last in REGISTERS:
            place = REGISTERS[last]
            for argument in [*node.args[place : place + 2], *self._words(node, "endpoint")]:
                self._mark(argument, "handler")
        elif self.source.resolved(node.func) in APPLICATIONS:
            for argument in self._words(node, "lifespan", "on_startup"):
                items = argument.elts if isinstance(argument, (ast.List, ast.Tuple)) else [argument]
                for item in items:
                    self._mark(item, "startup")
        elif last in ("add_event_handler", "append") and node.args:
            started = last == "append" and name.endswith("on_startup.append")
            if started or self.source.fold(node.args[0]) == "startup":
                self._mark(node.args[-1], "startup")

    @staticmethod
    def _words(node: ast.Call, *names: str) -> list[ast.expr]:
        return [word.value for word in node.keywords if word.arg in names]

    def _mark(self, node: ast.AST, role: Role) -> None:
        name = (self.source.dotted(node) or "").rpartition(".")[2]
        for function in self.named:
            if function.name == name:
                self._roles[function] = role

    def _spread(self, *, on_loop: bool) -> Iterator[FunctionNode]:
        """Handlers and what they call; with `on_loop` only async ones and what those call."""
        handlers = [node for node in self.named if self._roles[node] == "handler"]
        waiting: list[FunctionNode] = [
            node for node in handlers if not on_loop or isinstance(node, ast.AsyncFunctionDef)
        ]
        seen: set[FunctionNode] = set()
        calls: dict[FunctionNode, list[FunctionNode]] = {}
        for called, nodes in self.callers.items():
            for node in nodes:
                caller = self.source.function(node)
                if caller is not None:
                    calls.setdefault(caller, []).append(called)
        while waiting:
            function = waiting.pop()
            if function in seen:
                continue
            seen.add(function)
            yield function
            waiting += calls.get(function, [])
