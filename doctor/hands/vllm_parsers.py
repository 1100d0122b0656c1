"""The names of tool-call and reasoning parsers that a vLLM registers, off its sources."""

from __future__ import annotations

import ast
import os
import re

from .files import read_bytes
from .vllm_source import FILE_LIMIT, Source

PLACES = {
    "tool": ("tool_parsers", "entrypoints/openai/tool_parsers"),
    "reasoning": ("reasoning",),
}
"""Folders below vllm, newest first."""

TABLES = {"tool": "_TOOL_PARSERS_TO_REGISTER", "reasoning": "_REASONING_PARSERS_TO_REGISTER"}
"""The dict in __init__.py whose keys are the names (0.11.1 on)."""

DECORATOR = re.compile(rb"ParserManager\.register_module\(\s*\[?((?:[^()\]]|\n)*?)\]?,?\s*\)")
"""@ToolParserManager.register_module(["a", "b"]), before."""


def parser_names(source: Source, kind: str) -> list[str]:
    """The names of a kind, sorted; empty where they were not found."""
    for place in PLACES[kind]:
        folder = os.path.join(source.folder, place)
        if not os.path.isdir(folder):
            continue
        module = source.module(place.replace("/", "."))
        table = module.defined.get(TABLES[kind]) if module else None
        if isinstance(table, ast.Dict):
            keys = (key.value for key in table.keys if isinstance(key, ast.Constant))
            return sorted(key for key in keys if isinstance(key, str))
        return sorted(_decorated(folder))
    return []


def _decorated(folder: str) -> set[str]:
    found: set[str] = set()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            data, _ = read_bytes(os.path.join(folder, name), FILE_LIMIT)
            for words in DECORATOR.findall(data):
                found |= {one.decode() for one in re.findall(rb"[\"']([\w.-]+)[\"']", words)}
    return found
