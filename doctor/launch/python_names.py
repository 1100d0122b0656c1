"""Names of an engine's package that a source cannot use: not exported, or never imported."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from infer_doctor.catalog.exports import EXPORTS, MODULES, USUAL
from infer_doctor.catalog.trtllm_options import NEVER
from infer_doctor.facts.client_code import BadName
from infer_doctor.launch.python_values import Source


def bad_names(source: Source) -> Iterator[BadName]:
    """First what is imported and does not exist, then what is used and not imported."""
    for node, alias in source.imports:
        if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
            continue
        if _unknown(node.module, alias.name) and not _guarded(source, node):
            yield BadName(
                name=alias.name,
                package=node.module,
                kind="not exported",
                place=source.place(alias),
                excerpt=source.excerpt(alias),
            )
    packages = {origin.partition(".")[0] for origin in source.aliases.values()} & set(EXPORTS)
    if source.starred or not packages:
        return
    seen: set[str] = set()
    for used in source.nodes:
        if not isinstance(used, ast.Name) or not isinstance(used.ctx, ast.Load):
            continue
        name = used.id
        if name in seen or name in vars(builtins) or source.imported(name):
            continue
        package = next((p for p in sorted(packages) if name in USUAL[p]), None)
        if package is None or _annotation(source, used):
            continue
        seen.add(name)
        yield BadName(
            name=name,
            package=package,
            kind="not imported",
            place=source.place(used),
            excerpt=source.excerpt(used),
        )


def _unknown(module: str, name: str) -> bool:
    """Of TensorRT-LLM, whose exports are not all known, only names that are surely wrong."""
    if module == "tensorrt_llm":
        return name in NEVER
    return module in EXPORTS and name != "*" and name not in EXPORTS[module] | MODULES[module]


def _guarded(source: Source, node: ast.AST) -> bool:
    """In a `try`: the author knows that the name may be missing."""
    return any(
        isinstance(parent, ast.Try) and child in parent.body for parent, child in source.up(node)
    )


def _annotation(source: Source, node: ast.AST) -> bool:
    """Only a type, which need not exist when `from __future__ import annotations` stands above."""
    return any(
        isinstance(parent, ast.arg)
        or (isinstance(parent, ast.AnnAssign) and child is parent.annotation)
        or (isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)) and child is parent.returns)
        for parent, child in source.up(node)
    )
