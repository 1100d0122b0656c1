"""Keys that are written in a source. Their values are never kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from infer_doctor.facts.client_code import SourceSecret
from infer_doctor.launch.python_values import SHOWN, Source
from infer_doctor.secrets import FORM, is_key, is_placeholder

SECRET_WORDS = frozenset(
    [
        "api_key",
        "openai_api_key",
        "azure_api_key",
        "hf_token",
        "huggingface_token",
        "hub_token",
        "auth_token",
        "access_token",
        "secret",
        "secret_key",
        "password",
        "api_token",
    ]
)
"""Names of arguments and variables that hold a key; "token" alone is as often a word of a model."""

SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET(?:_KEY)?|PASSWORD|HF_TOKEN|AUTH_TOKEN|ACCESS_TOKEN"
    r"|API_TOKEN|HUB_TOKEN|BEARER_TOKEN)$",
    re.I,
)
BEARER = re.compile(r"[Bb]earer ([^\s{}\"']+)")


def secrets(source: Source) -> Iterator[SourceSecret]:
    """Each key once, with the line masked."""
    seen: set[tuple[int, str]] = set()
    for node in source.nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        name = _role(source, node)
        text = node.value
        if found := BEARER.search(text):
            name, text = name or "Authorization", found[1]
        elif name is None and (form := FORM.search(text)):
            text = form[0]
        if is_placeholder(text) or not is_key(text, named=name is not None):
            continue
        key = (node.lineno, text)
        if key in seen:
            continue
        seen.add(key)
        yield SourceSecret(
            name=name or "a string",
            place=source.place(node),
            excerpt=source.excerpt(node).replace(text, "<token>"),
        )


def masked(source: Source, node: ast.AST) -> str:
    """The line of a node, every key in it masked."""
    line = source.lines[getattr(node, "lineno", 1) - 1].strip()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            text = inner.value
            named = _role(source, inner) is not None
            if text and (named or is_key(text, named=False)) and not is_placeholder(text):
                line = line.replace(text, "<token>")
    return line if len(line) <= 2 * SHOWN else line[: 2 * SHOWN - 3] + "..."


def _role(source: Source, node: ast.Constant) -> str | None:
    """The name under which a text is a key: of the argument, the variable, the key of a dict."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg if parent.arg in SECRET_WORDS else None
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        for target in targets:
            name = _target(source, target)
            if name is not None and SECRET_NAME.search(name):
                return name
    if isinstance(parent, ast.Dict):
        for key, value in zip(parent.keys, parent.values, strict=True):
            if value is node and isinstance(key, ast.Constant) and isinstance(key.value, str):
                return key.value if SECRET_NAME.search(key.value) else None
    return None


def _target(source: Source, node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):  # os.environ["OPENAI_API_KEY"] = ...
        value = source.fold(node.slice)
        return value if isinstance(value, str) else None
    name = source.dotted(node)
    return name.rpartition(".")[2] if name else None
