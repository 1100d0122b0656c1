"""The arguments, Python fields and variables of one version of vLLM, and their history.

`catalog/vllm_arguments.json` holds every release from 0.6.0 on, one row for each form of an
argument with the ranges of versions that have it. Reading it takes 3 ms.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from infer_doctor.versions import release

Row = Mapping[str, Any]
"""An argument as `hands/vllm_arguments.py` notes it: options, dest, action, type, nargs, const,
choices, suggested, bounds, default, group, deprecated."""

TAKES_NOTHING = ("flag", "flag-no", "flag-false", "const", "help", "count")

UNKNOWN_OBJECT = "object"
"""The key of a default that is an object of a config class."""


class Table:
    """What one version of vLLM takes."""

    def __init__(self, version: str | None, read: Mapping[str, Any]) -> None:
        self.version = version
        self.rows: tuple[Row, ...] = tuple(read["arguments"])
        self.by_option = {option: row for row in self.rows for option in row["options"]}
        self.by_dest = {row["dest"]: row for row in self.rows}
        self.fields = frozenset(read["fields"])
        """Of EngineArgs and AsyncEngineArgs."""
        self.llm: Sequence[str] = read["llm"]
        """Parameters of LLM.__init__; after "*" by keyword only."""
        self.classes: Mapping[str, Sequence[str]] = read["classes"]
        self.variables: Mapping[str, Row] = read["variables"]
        self.marks = frozenset(read["parser"])
        self.parsers: Mapping[str, Sequence[str]] = {
            "tool_call_parser": read["tool_parsers"],
            "reasoning_parser": read["reasoning_parsers"],
        }
        """Option -> the names that the version registers itself; empty where they are not known."""

    @property
    def defaults(self) -> dict[str, Any]:
        """Field -> default, for those whose default is written as a plain value."""
        found = {}
        for row in self.rows:
            value = row.get("default")
            if value is not None and not (isinstance(value, dict) and UNKNOWN_OBJECT in value):
                found[row["dest"]] = value
        return found

    def row(self, name: str) -> Row | None:
        """The argument of a field or of a long option written with dashes."""
        return self.by_dest.get(name) or self.by_option.get(f"--{name.replace('_', '-')}")

    def keys_of(self, dest: str) -> Sequence[str] | None:
        """The keys of the config class behind an option that takes JSON, where it is known."""
        row = self.by_dest.get(dest)
        kind = str(row.get("type", "")) if row else ""
        if kind.startswith("config:"):
            return self.classes.get(kind[7:].rstrip("?"))
        wanted = dest.replace("_", "")
        for name, keys in self.classes.items():
            if name.lower() == wanted:
                return keys
        return None


class Catalogue:
    """All known releases."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self.versions: Sequence[str] = data["versions"]
        self.digests: Mapping[str, str] = dict(zip(data["sha256"], data["versions"], strict=True))
        """Hash of the sources -> version; the newest of those that have the same."""

    def table(self, version: str) -> Table:
        """The arguments of a release."""
        index = self.versions.index(version)

        def of(key: str) -> list[Any]:
            return [row for spans, row in self._data[key] if _within(index, spans)]

        read = {
            "arguments": of("arguments"),
            "fields": of("fields"),
            "llm": (of("llm") or [[]])[0],
            "classes": dict(of("classes")),
            "variables": dict(of("variables")),
            "parser": of("parser"),
            "tool_parsers": of("tool_parsers"),
            "reasoning_parsers": of("reasoning_parsers"),
        }
        return Table(version, read)

    def at_most(self, version: str) -> tuple[str, bool]:
        """(the release itself or the newest older one, whether it is that version)."""
        wanted = ordered(version)
        older = [known for known in self.versions if ordered(known) <= wanted]
        found = older[-1] if older else self.versions[0]
        return found, ordered(found) == wanted

    def spans_of_option(self, option: str) -> list[tuple[str, str | None]]:
        """When an option string was there: (first, last release of each run; None: still)."""
        present: set[int] = set()
        for spans, row in self._data["arguments"]:
            if option in row["options"]:
                present.update(_indexes(spans))
        return self._runs(present)

    def spans_of_field(self, name: str) -> list[tuple[str, str | None]]:
        """The same for a field of EngineArgs or a parameter of LLM."""
        present: set[int] = set()
        for spans, field in self._data["fields"]:
            if field == name:
                present.update(_indexes(spans))
        for spans, names in self._data["llm"]:
            if name in names:
                present.update(_indexes(spans))
        return self._runs(present)

    def spans_of_variable(self, name: str) -> list[tuple[str, str | None]]:
        """The same for an environment variable."""
        present: set[int] = set()
        for spans, (variable, _) in self._data["variables"]:
            if variable == name:
                present.update(_indexes(spans))
        return self._runs(present)

    def last_row(self, option: str) -> Row | None:
        """The newest form of an option that some version had."""
        newest: tuple[int, Row] | None = None
        for spans, row in self._data["arguments"]:
            if option in row["options"] and (newest is None or spans[-1] > newest[0]):
                newest = spans[-1], row
        return newest[1] if newest else None

    def after(self, version: str) -> str | None:
        """The next release."""
        index = self.versions.index(version) + 1
        return self.versions[index] if index < len(self.versions) else None

    def _runs(self, present: set[int]) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = []
        for index in sorted(present):
            last = None if index == len(self.versions) - 1 else self.versions[index]
            if found and index - 1 in present:
                found[-1] = (found[-1][0], last)
            else:
                found.append((self.versions[index], last))
        return found


@cache
def catalogue() -> Catalogue:
    """The bundled one."""
    text = pkgutil.get_data("infer_doctor.catalog", "vllm_arguments.json") or b"{}"
    return Catalogue(json.loads(text))


POST = re.compile(r"\.post(\d{1,18})(?!\d)")


def ordered(version: str) -> tuple[int, ...]:
    """For comparing: the release number, then post; what follows "+", "rc", "dev" does not count."""
    post = POST.search(version.partition("+")[0])
    return (*(release(version, 4) or (0,) * 4), int(post[1]) if post else 0)


def _within(index: int, spans: Sequence[int]) -> bool:
    return any(first <= index <= last for first, last in _pairs(spans))


def _indexes(spans: Sequence[int]) -> Iterator[int]:
    for first, last in _pairs(spans):
        yield from range(first, last + 1)


def _pairs(spans: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(spans[::2], spans[1::2], strict=True)
