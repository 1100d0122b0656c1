"""Fields of LlmArgs: keys of the extra options, keywords of LLM(...), and what a version refuses."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from infer_doctor.catalog import trtllm_options as fields
from infer_doctor.catalog.trtllm_releases import CLI_WINS_SINCE, numbers, reaches
from infer_doctor.facts.engine_options import Option, OptionProblem
from infer_doctor.launch.model import Keyword, Launch, Unknown

PLACEHOLDERS = ("$", "{{", "<")
"""Marks of what a script or chart replaces; the loader of TensorRT-LLM fills in nothing."""


class Fields:
    """Takes fields one by one and keeps what is wrong with them."""

    def __init__(self, launch: Launch, version: str | None, basis: str, exact: bool) -> None:
        self.launch = launch
        self.written = version
        self.version = numbers(version)
        self.basis = basis
        self.exact = exact
        self.given: dict[str, Option] = {}
        self.problems: list[OptionProblem] = []
        self.model: Option | None = None
        self.gaps = list(launch.gaps)
        self.foreign = False
        """Whether another class than LlmArgs takes the fields, whose names are not catalogued."""

    @property
    def named(self) -> str:
        return f"TensorRT-LLM {self.written}" if self.written else "TensorRT-LLM"

    def keyword(self, keyword: Keyword, command: Mapping[str, Option] | None) -> None:
        """A key of the file or a keyword of the call, and what stands in its section."""
        value = keyword.value
        section = value if isinstance(value, dict) else called(value)
        if (command is not None or self.launch.entry == "LLM") and not self.foreign:
            self._judge_field(keyword, section)
        if section is not None:
            for name, inner in section.items():
                self._field(f"{keyword.name}.{name}", inner, keyword, command)
            self._field(keyword.name, section, keyword, None)
            return
        self._field(keyword.name, value, keyword, command)
        if keyword.name == "model" and command is None:
            self.model = self.given["model"]

    def _field(
        self, name: str, value: Any, keyword: Keyword, command: Mapping[str, Option] | None
    ) -> None:
        before = command.get(name) if command is not None else None
        text = value.text if isinstance(value, Unknown) else str(value)
        option = Option(name=name, flag=name, value=value, text=text, place=keyword.place)
        if before is not None and before.value != value:
            wins = reaches(self.written, CLI_WINS_SINCE)
            lost, kept = (option, before) if wins else (before, option)
            message = f"{_shown(lost)} is overridden by {_shown(kept)} of {kept.place.file}"
            if wins is None:
                message += " (up to 1.2; explicit flags win later)"
            self.problems.append(
                OptionProblem(
                    kind="duplicate",
                    flag=lost.flag,
                    text=lost.text,
                    place=lost.place,
                    message=message,
                    successor=None,
                )
            )
            if wins:
                return
        self.given[name] = option

    def _judge_field(self, keyword: Keyword, section: Mapping[str, Any] | None) -> None:
        name = keyword.name
        earlier = fields.EARLIER.get(name)
        if earlier is not None:
            gone, instead = earlier
            late = reaches(self.written, gone)
            if late is None:
                self._undecided(keyword, name)
            elif late:
                self._field_problem(
                    "renamed",
                    keyword,
                    name,
                    f"{self.named} has no {name} any more: {instead}",
                    successor=instead if _plain(instead) else None,
                )
        elif name not in fields.ARGUMENTS and not name.startswith("_"):
            near = fields.KNOWN_WRONG.get(name) or nearest(name, fields.ARGUMENTS)
            where = "LLM(...)" if self.launch.kind == "python" else "its extra options"
            message = f"no TensorRT-LLM that is known takes {name} in {where}"
            self._field_problem("unknown", keyword, name, message, nearest=near)
        for inner, value in (section or {}).items():
            self._judge_inner(keyword, f"{name}.{inner}", value)
        if name == "cuda_graph_config":
            self._judge_graphs(keyword, section or {})
        value = keyword.value
        if section is not None or isinstance(value, Unknown):
            return
        if name in fields.NESTED and value is not None:
            message = f"{name} is a section with keys of its own; {_text(value)} is none"
            self._field_problem("type", keyword, name, message)
        else:
            self._judge_choice(keyword, name, value)

    def _judge_inner(self, keyword: Keyword, name: str, value: Any) -> None:
        section, _, inner = name.partition(".")
        earlier = fields.NESTED_EARLIER.get(name)
        if earlier is not None:
            gone, instead = earlier
            late = gone == (0, 0) or reaches(self.written, gone)
            if late is None:
                self._undecided(keyword, name)
            elif late:
                self._field_problem(
                    "renamed",
                    keyword,
                    name,
                    f"{section} has no {inner}; it is called {instead.partition('.')[2]}",
                    successor=instead,
                )
            return
        known = fields.NESTED.get(section)
        if known is not None and inner not in known:
            near = nearest(inner, known)
            self._field_problem(
                "unknown",
                keyword,
                name,
                f"{section} of no TensorRT-LLM that is known has {inner}",
                nearest=f"{section}.{near}" if near else None,
            )
            return
        self._judge_choice(keyword, name, value)

    def _judge_choice(self, keyword: Keyword, name: str, value: Any) -> None:
        if isinstance(value, str) and name in fields.NUMBERS and not _number(value):
            if any(mark in value for mark in PLACEHOLDERS):
                self.gaps.append(f"{name} is {value}, which something is to fill in")
            else:
                message = f"{name} takes a number; {value} is none"
                self._field_problem("type", keyword, name, message, text=value)
            return
        choices = self._choices(name)
        if choices is not None and isinstance(value, str) and value not in choices:
            instead = fields.IGNORED.get(name)
            message = f"{name} takes {', '.join(choices)}; {value} is none of them"
            self._field_problem(
                "ignored" if instead else "choice",
                keyword,
                name,
                f"{message}, and {instead} is taken" if instead else message,
                text=value,
                nearest=nearest(value, choices, 0.4),
            )
        share = name == "kv_cache_config.free_gpu_memory_fraction" and isinstance(
            value, (int, float)
        )
        if share and not isinstance(value, bool) and not 0 <= value <= 1:
            self._field_problem(
                "range", keyword, name, f"{name} is a share from 0 to 1; it is {value}"
            )

    def _judge_graphs(self, keyword: Keyword, section: Mapping[str, Any]) -> None:
        """1.0 takes both only where the list is the one that it makes of the number, whose last item
        is the number; later releases where the number is the greatest (llmapi/llm_args.py)."""
        sizes, greatest = section.get("batch_sizes"), section.get("max_batch_size")
        if not isinstance(sizes, list) or not all(type(size) is int for size in sizes):
            return
        if sizes and type(greatest) is int and greatest not in (0, max(sizes)):
            message = f"cuda_graph_config has batch_sizes up to {max(sizes)} and max_batch_size "
            message += f"{greatest}: refused; one of them is enough"
            self._field_problem("range", keyword, "cuda_graph_config.max_batch_size", message)

    def _choices(self, name: str) -> tuple[str, ...] | None:
        before = reaches(self.written, fields.KV_DTYPES_UNTIL) is False
        if name == "kv_cache_config.dtype" and before:
            backend = self.given.get("backend")
            if backend is not None and backend.value in ("tensorrt", "trt"):
                return None
            return fields.KV_DTYPES
        return fields.CHOICES.get(name)

    def _undecided(self, keyword: Keyword, name: str) -> None:
        message = f"whether {self.named}"
        message += " has" if self.written else ", whose version is not known, has"
        self._field_problem("undecided", keyword, name, f"{message} {name} is not known")

    def _field_problem(
        self, kind: Any, keyword: Keyword, name: str, message: str, **more: Any
    ) -> None:
        text = more.pop("text", None)
        self.problems.append(
            OptionProblem(
                kind=kind, flag=name, text=text, place=keyword.place, message=message, **more
            )
        )


def called(value: Any) -> dict[str, Any] | None:
    """The keywords of an expression such as `KvCacheConfig(dtype="fp8")` that is written in place."""
    if not isinstance(value, Unknown):
        return None
    try:
        node = ast.parse(value.text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Call) or node.args:
        return None
    found: dict[str, Any] = {}
    for word in node.keywords:
        if word.arg is None:
            return None
        try:
            found[word.arg] = ast.literal_eval(word.value)
        except (ValueError, TypeError, SyntaxError):
            found[word.arg] = Unknown(ast.unparse(word.value))
    return found


def nearest(name: str, names: Any, cutoff: float = 0.75) -> str | None:
    found = get_close_matches(name, sorted(names), n=1, cutoff=cutoff)
    return found[0] if found else None


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    return str(value)[:40]


def _plain(text: str) -> bool:
    return " " not in text and ":" not in text


def _shown(option: Option) -> str:
    joint = " " if option.flag.startswith("-") else ": "
    return f"{option.flag}{joint}{option.text}"
