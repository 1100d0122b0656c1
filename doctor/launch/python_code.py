"""The fact ClientCode out of a source: calls of engines and clients with all that stands around."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

from infer_doctor.facts.client_code import Call, ClientCode, HiddenError
from infer_doctor.launch.model import Keyword, Unknown
from infer_doctor.launch.python_functions import Functions
from infer_doctor.launch.python_names import bad_names
from infer_doctor.launch.python_objects import (
    BLOCKING_ENGINES,
    CLIENTS,
    ENGINES,
    OPENAI_ASYNC,
    OPENAI_SYNC,
    Made,
    Objects,
)
from infer_doctor.launch.python_retries import attempts
from infer_doctor.launch.python_secrets import SECRET_WORDS, masked, secrets
from infer_doctor.launch.python_values import Source

Kind = Literal["client", "request", "engine", "generate", "sleep"]

ENDPOINT = ("/v1/", "/v1beta/", "completions", "/generate", "/embeddings", "/infer")
"""A URL with one of these asks an engine: OpenAI's paths, vLLM's demo server, Triton."""

HTTP_VERBS = ("get", "post", "put", "request", "stream")

ASKS = ("create", "parse", "stream")
"""What ends the dotted name of a request of the OpenAI SDK."""

GENERATES = [
    "generate",
    "generate_async",
    "chat",
    "encode",
    "embed",
    "classify",
    "score",
    "beam_search",
    "reward",
    "step",
]
"""Methods of vllm.LLM and tensorrt_llm.LLM that run the model."""

DEADLINES = ("asyncio.wait_for", "asyncio.timeout", "async_timeout.timeout", "anyio.fail_after")

LIMITERS = (
    "Semaphore",
    "BoundedSemaphore",
    "AsyncLimiter",
    "CapacityLimiter",
    "ThreadPoolExecutor",
)

SUCCESS = range(200, 300)

ERROR_KEYS = ("error", "errors", "detail", "exception", "err")

HTTP_EXCEPTIONS = ("HTTPException",)
RESPONSES = ("JSONResponse", "ORJSONResponse", "UJSONResponse", "PlainTextResponse", "Response")


def client_code(source: Source, file: str) -> ClientCode:
    """What the source does around an engine."""
    functions, objects = Functions(source), Objects(source)
    reader = _Reader(source, functions, objects)
    return ClientCode(
        file=file,
        serves=functions.serves,
        calls=tuple(reader.calls()),
        hidden_errors=tuple(reader.hidden_errors()),
        secrets=tuple(secrets(source)),
        bad_names=tuple(bad_names(source)),
    )


class _Reader:
    def __init__(self, source: Source, functions: Functions, objects: Objects) -> None:
        self.source = source
        self.functions = functions
        self.objects = objects
        self.limited = any(
            (source.resolved(node.func) or "").rpartition(".")[2] in LIMITERS
            for node in source.nodes
            if isinstance(node, ast.Call)
        )

    def calls(self) -> Iterator[Call]:
        for node in self.source.nodes:
            if not isinstance(node, ast.Call):
                continue
            found = self._construction(node) or self._on_object(node) or self._plain(node)
            if found is not None:
                yield found

    def _construction(self, node: ast.Call) -> Call | None:
        name = self.source.resolved(node.func)
        if name in ENGINES:
            return self._call(node, ENGINES[name], "engine")
        if name in CLIENTS:
            return self._call(node, name, "client", url=self._base(node))
        return None

    def _on_object(self, node: ast.Call) -> Call | None:
        """A call of a method of something whose kind is known."""
        if not isinstance(node.func, ast.Attribute):
            return None
        found = self.objects.receiver(node.func.value)
        method = node.func.attr
        if found is None:
            chain = self.source.dotted(node.func) or ""
            if chain.endswith((".chat.completions.create", ".chat.completions.parse")):
                return self._call(node, f"?{chain[chain.index('.') :]}", "request")
            return None
        made, rest = found
        name = ".".join(part for part in (made.kind, rest, method) if part)
        if made.kind in (*OPENAI_SYNC, *OPENAI_ASYNC):
            asks = method in ASKS and rest.partition(".")[0] in (
                "chat",
                "beta",
                "completions",
                "responses",
                "embeddings",
            )
            return self._call(node, name, "request", made) if asks else None
        if made.kind in CLIENTS:
            url = self._url(node, made) if method in HTTP_VERBS else None
            asks = url is not None and any(part in url for part in ENDPOINT)
            return self._call(node, name, "request", made, url) if asks else None
        if made.kind in BLOCKING_ENGINES:
            return self._call(node, name, "generate", made) if method in GENERATES else None
        return None

    def _plain(self, node: ast.Call) -> Call | None:
        """A call of a function of a module, or of an object that is called itself."""
        name = self.source.resolved(node.func)
        if name == "time.sleep":
            return self._call(node, name, "sleep")
        made = self.objects.made(node.func)
        if made is not None and made.kind == "transformers.pipeline":
            return self._call(node, made.kind, "generate", made)
        library, _, verb = (name or "").rpartition(".")
        if library in ("requests", "httpx") and verb in HTTP_VERBS:
            url = self._url(node, None)
            if any(part in url for part in ENDPOINT):
                return self._call(node, str(name), "request", url=url)
        return None

    def _call(
        self,
        node: ast.Call,
        name: str,
        kind: Kind,
        made: Made | None = None,
        url: str | None = None,
    ) -> Call:
        function = self.source.function(node)
        options = tuple(self._options(made)) if made else ()
        if url is None and made is not None and kind == "request":
            url = self._base(made.node)
        return Call(
            name=name,
            kind=kind,
            keywords=(*self._model(node, kind), *self._keywords(node)),
            unread=any(word.arg is None for word in node.keywords),
            url=url,
            function=self.functions.describe(function),
            attempts=attempts(self.source, self.functions, node)
            if kind in ("request", "generate")
            else (),
            deadline=self._deadline(node),
            made_by=self.source.place(made.node) if made else None,
            kept=self._kept(node),
            gathered=kind == "request" and self._gathered(node),
            options=options,
            place=self.source.place(node),
            excerpt=masked(self.source, node),
        )

    def _model(self, node: ast.Call, kind: Kind) -> Iterator[Keyword]:
        """The model of an engine, which is mostly its first positional argument."""
        if kind == "engine" and node.args:
            value, place = self.source.fold(node.args[0]), self.source.place(node.args[0])
            yield Keyword(name="model", value=value, place=place)

    def _keywords(self, node: ast.Call) -> Iterator[Keyword]:
        for word in node.keywords:
            if word.arg is None:
                continue
            value = self.source.fold(word.value)
            if word.arg in SECRET_WORDS and not isinstance(value, Unknown):
                value = "<token>" if value else value
            if isinstance(value, (list, dict)):
                value = Unknown(self.source.unknown(word.value).text)
            yield Keyword(name=word.arg, value=value, place=self.source.place(word.value))

    def _options(self, made: Made) -> Iterator[Keyword]:
        for node in (made.node, *made.more):
            yield from self._keywords(node)
            if any(word.arg is None for word in node.keywords):
                place = self.source.place(node)
                yield Keyword(name="**", value=Unknown("**"), place=place)

    def _base(self, node: ast.Call) -> str | None:
        for word in node.keywords:
            if word.arg in ("base_url", "azure_endpoint"):
                return self.source.partial(word.value)
        return None

    def _url(self, node: ast.Call, made: Made | None) -> str:
        """The URL of a request, with the base of its client before it."""
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        place = 1 if method in ("request", "stream") and len(node.args) > 1 else 0
        given = [word.value for word in node.keywords if word.arg == "url"]
        parts = [*given, *node.args[place : place + 1]]
        own = self.source.partial(parts[0]) if parts else ""
        base = self._base(made.node) if made else None
        return f"{base.rstrip('/')}/{own.lstrip('/')}" if base else own

    def _deadline(self, node: ast.AST) -> bool:
        for parent, child in self.source.up(node):
            if isinstance(parent, ast.Call) and self.source.resolved(parent.func) in DEADLINES:
                return True
            if isinstance(parent, (ast.AsyncWith, ast.With)) and child in parent.body:
                for item in parent.items:
                    call = item.context_expr
                    if isinstance(call, ast.Call) and self.source.resolved(call.func) in DEADLINES:
                        return True
        return False

    def _kept(self, node: ast.Call) -> bool:
        """Whether the result is put into a global or an attribute."""
        parent = self.source.parents.get(node)
        while isinstance(parent, (ast.Await, ast.BoolOp, ast.IfExp)):
            parent = self.source.parents.get(parent)
        if not isinstance(parent, (ast.Assign, ast.AnnAssign)):
            return False
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
            return True
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        found = [self.source.lookup(parent, name) for name in names]
        return any(scope is not None and scope[0] is self.source.tree for scope in found) or any(
            (self.source.tree, name) in self.source.bindings for name in names
        )

    def _gathered(self, node: ast.AST) -> bool:
        """asyncio.gather starts it, or the function around it, for every item of a collection."""
        if self.limited:
            return False
        function = self.source.function(node)
        calls = [node, *(self.functions.callers.get(function, []) if function else [])]
        return any(self._in_gather(call) for call in calls)

    def _in_gather(self, node: ast.AST) -> bool:
        made = False
        for parent, _ in self.source.up(node):
            if isinstance(parent, (ast.ListComp, ast.GeneratorExp)):
                made = not any(isinstance(g.iter, (ast.List, ast.Tuple)) for g in parent.generators)
            if not made:
                continue
            if isinstance(parent, ast.Call):
                return self.source.resolved(parent.func) == "asyncio.gather"
            if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
                return self._gathers(parent, parent.targets[0].id)
            if isinstance(parent, ast.stmt):
                return False
        return False

    def _gathers(self, node: ast.AST, name: str) -> bool:
        """Whether asyncio.gather(*name) stands in the same function."""
        function = self.source.function(node)
        for other in self.source.nodes:
            if (
                isinstance(other, ast.Call)
                and self.source.resolved(other.func) == "asyncio.gather"
                and self.source.function(other) is function
            ):
                for argument in other.args:
                    inner = argument.value if isinstance(argument, ast.Starred) else None
                    if isinstance(inner, ast.Name) and inner.id == name:
                        return True
        return False

    def hidden_errors(self) -> Iterator[HiddenError]:
        """Errors that are answered with a status of success."""
        for node in self.source.nodes:
            function = self.source.function(node)
            described = self.functions.describe(function)
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = (self.source.resolved(node.exc.func) or "").rpartition(".")[2]
                status = self._status(node.exc, 0) if name in HTTP_EXCEPTIONS else None
                form: Literal["exception", "response", "plain value"] = "exception"
            elif isinstance(node, ast.Return) and described.served and self._in_except(node):
                status, form = self._returned(node)
            else:
                continue
            if status is not None and status in SUCCESS:
                yield HiddenError(
                    status=status,
                    form=form,
                    handler=described,
                    place=self.source.place(node),
                    excerpt=self.source.excerpt(node),
                )

    def _status(self, node: ast.Call, place: int) -> int | None:
        given = [word.value for word in node.keywords if word.arg == "status_code"]
        value = given[0] if given else node.args[place] if len(node.args) > place else None
        if value is None:
            return None
        name = (self.source.resolved(value) or "").rpartition(".")[2]
        if name.startswith("HTTP_2"):  # fastapi.status.HTTP_200_OK
            return int(name[5:8])
        folded = self.source.fold(value)
        return folded if isinstance(folded, int) else None

    def _returned(
        self, node: ast.Return
    ) -> tuple[int | None, Literal["exception", "response", "plain value"]]:
        value = node.value
        if isinstance(value, ast.Dict) and self._names_error(value):
            return 200, "plain value"
        if isinstance(value, ast.Call):
            name = (self.source.resolved(value.func) or "").rpartition(".")[2]
            if name == "jsonify":
                words = [word.arg for word in value.keywords]
                about = any(word in ERROR_KEYS for word in words) or any(
                    isinstance(part, ast.Dict) and self._names_error(part) for part in value.args
                )
                return (200 if about else None), "plain value"
            if name in RESPONSES:
                content = [
                    *value.args[:1],
                    *(w.value for w in value.keywords if w.arg == "content"),
                ]
                about = any(isinstance(c, ast.Dict) and self._names_error(c) for c in content)
                explicit = self._status(value, 1)
                has = len(value.args) > 1 or any(w.arg == "status_code" for w in value.keywords)
                return (explicit if has else 200) if about else None, "response"
        return None, "response"

    def _names_error(self, node: ast.Dict) -> bool:
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        return any(str(key).lower() in ERROR_KEYS for key in keys)

    def _in_except(self, node: ast.AST) -> bool:
        """In the branch of an exception in which nothing sets the status of the response."""
        for parent, _ in self.source.up(node):
            if isinstance(parent, ast.ExceptHandler):
                return not any(
                    isinstance(inner, ast.Attribute)
                    and inner.attr in ("status_code", "status", "set_status")
                    and isinstance(inner.ctx, ast.Store)
                    for inner in ast.walk(parent)
                )
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
                return False
        return False
