"""Which names of a source hold an engine or a client of an HTTP API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from infer_doctor.launch.python_values import Source

OPENAI_SYNC = ("openai.OpenAI", "openai.AzureOpenAI", "openai.Client")
OPENAI_ASYNC = ("openai.AsyncOpenAI", "openai.AsyncAzureOpenAI", "openai.AsyncClient")
HTTP_SYNC = ("requests.Session", "requests.session", "httpx.Client")
HTTP_ASYNC = ("httpx.AsyncClient", "aiohttp.ClientSession")
CLIENTS = frozenset((*OPENAI_SYNC, *OPENAI_ASYNC, *HTTP_SYNC, *HTTP_ASYNC))

ENGINES = {
    "vllm.LLM": "vllm.LLM",
    "vllm.entrypoints.llm.LLM": "vllm.LLM",
    "vllm.LLMEngine.from_engine_args": "vllm.LLMEngine",
    "vllm.engine.llm_engine.LLMEngine.from_engine_args": "vllm.LLMEngine",
    "vllm.AsyncLLMEngine.from_engine_args": "vllm.AsyncLLM",
    "vllm.engine.async_llm_engine.AsyncLLMEngine.from_engine_args": "vllm.AsyncLLM",
    "vllm.v1.engine.async_llm.AsyncLLM.from_engine_args": "vllm.AsyncLLM",
    "vllm.v1.engine.async_llm.AsyncLLM.from_vllm_config": "vllm.AsyncLLM",
    "tensorrt_llm.LLM": "tensorrt_llm.LLM",
    "tensorrt_llm.llmapi.LLM": "tensorrt_llm.LLM",
    "tensorrt_llm._torch.LLM": "tensorrt_llm.LLM",
    "tensorrt_llm._torch.auto_deploy.LLM": "tensorrt_llm.LLM",
    "tensorrt_llm._tensorrt_engine.LLM": "tensorrt_llm.LLM",
    "tensorrt_llm.TRTLLMEngine": "tensorrt_llm.LLM",
    "transformers.pipeline": "transformers.pipeline",
}
"""What is called -> what it makes."""

BLOCKING_ENGINES = ("vllm.LLM", "vllm.LLMEngine", "tensorrt_llm.LLM", "transformers.pipeline")

MAKERS = {**ENGINES, **{name: name for name in CLIENTS}}


@dataclass(frozen=True, eq=False)
class Made:
    """Something that a call made: its kind and that call."""

    kind: str
    node: ast.Call
    more: tuple[ast.Call, ...] = ()
    """with_options(...) and the like, that change its arguments later."""


class Objects:
    """All names of a source that hold an engine or a client."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._held: dict[tuple[ast.ClassDef | None, str], list[Made]] = {}
        self._returned: dict[str, list[Made]] = {}
        for _ in range(2):  # what a function returns may be bound before it is read
            self._held.clear()
            for target, value in self._assignments():
                self._hold(target, value)
            self._returned = self._returns()

    def made(self, node: ast.AST | None, depth: int = 0) -> Made | None:
        """What an expression holds, when the file leaves no doubt about its kind."""
        if node is None or depth > 6:
            return None
        if isinstance(node, ast.Await):
            return self.made(node.value, depth + 1)
        if isinstance(node, ast.IfExp):
            return self.made(node.body, depth + 1) or self.made(node.orelse, depth + 1)
        if isinstance(node, ast.BoolOp):
            found = [self.made(value, depth + 1) for value in node.values]
            return next((made for made in found if made), None)
        if isinstance(node, ast.Call):
            return self._made_by(node, depth)
        key = self._key(node)
        held = self._held.get(key, []) if key else []
        kinds = {made.kind for made in held}
        return held[-1] if len(kinds) == 1 else None

    def receiver(self, node: ast.expr) -> tuple[Made, str] | None:
        """Of `client.chat.completions`: what `client` holds, and "chat.completions"."""
        rest: list[str] = []
        current: ast.expr = node
        while True:
            made = self.made(current)
            if made is not None:
                return made, ".".join(reversed(rest))
            if isinstance(current, ast.Attribute):
                rest.append(current.attr)
                current = current.value
            elif isinstance(current, ast.Call) and isinstance(current.func, ast.Attribute):
                if current.func.attr not in ("with_options", "with_raw_response", "beta"):
                    return None
                current = current.func.value
            else:
                return None

    def _made_by(self, node: ast.Call, depth: int) -> Made | None:
        name = self.source.resolved(node.func)
        kind = MAKERS.get(name or "")
        if kind is not None:
            return Made(kind, node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("with_options", "copy"):
            inner = self.made(node.func.value, depth + 1)
            return Made(inner.kind, inner.node, (*inner.more, node)) if inner else None
        if name is not None:
            returned = self._returned.get(name.rpartition(".")[2], [])
            if returned and len({made.kind for made in returned}) == 1:
                return returned[0]
        return None

    def _assignments(self) -> Iterator[tuple[ast.AST, ast.AST]]:
        for node in self.source.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield target, node.value
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                yield node.target, node.value
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                yield node.optional_vars, node.context_expr

    def _hold(self, target: ast.AST, value: ast.AST) -> None:
        key, made = self._key(target), self.made(value)
        if key is not None and made is not None:
            self._held.setdefault(key, []).append(made)

    def _key(self, node: ast.AST) -> tuple[ast.ClassDef | None, str] | None:
        """A name for what may hold an object: a variable, an attribute, an item of a dict."""
        if isinstance(node, ast.Subscript):
            index = node.slice
            owner = self.source.dotted(node.value)
            if owner is None or not isinstance(index, ast.Constant):
                return None
            return None, f"{owner}[{index.value!r}]"
        name = self.source.dotted(node)
        if name is None:
            return None
        first = name.partition(".")[0]
        return self.source.owner(node) if first in ("self", "cls") else None, name

    def _returns(self) -> dict[str, list[Made]]:
        """Function -> what it returns, as far as that is an engine or client."""
        found: dict[str, list[Made]] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.Return) and node.value is not None:
                function = self.source.function(node)
                made = self.made(node.value)
                if made and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    found.setdefault(function.name, []).append(made)
        return found
