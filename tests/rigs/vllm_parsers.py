"""What real parsers of vLLM said, and the same questions to ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.launch.command import read
from infer_doctor.vllm_arguments.options import options_of
from infer_doctor.vllm_arguments.table import Row, Table

FOLDER = Path(__file__).parent.parent / "captures" / "vllm-parsers"
VERSIONS = sorted(path.stem for path in FOLDER.glob("0.*.json"))

ACTIONS = {
    "BooleanOptionalAction": "flag-no",
    "StoreBoolean": "store-boolean",
    "_AppendAction": "append",
    "_StoreTrueAction": "flag",
}
KINDS = {
    "human_readable_int": "human",
    "human_readable_int_or_auto": "human-or-auto",
    "loads": "json",
    "nullable_kvs": "pairs",
    "union_dict_and_str": "json-or-str",
}

NOT_READ = {
    ("0.8.5", "--compilation-config"),
    ("0.8.5", "--kv-transfer-config"),
    ("0.8.5", "--override-pooler-config"),
    ("0.9.2", "--override-pooler-config"),
}
"""Their values go through a method of a config class (from_cli, from_json): taken as they are."""

LATE_CHOICES = {("0.8.5", "--reasoning-parser"), ("0.9.2", "--reasoning-parser")}
"""Choices that are a registry when the parser is built: `Table.parsers` has them."""


def real(version: str) -> dict[str, Any]:
    """The dump of a version."""
    found: dict[str, Any] = json.loads((FOLDER / f"{version}.json").read_text())
    return found


def by_name(dump: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Long option, or the name of a positional -> action; --help is argparse's own."""
    found = {_name(action["options"] or [action["dest"]]): action for action in dump["actions"]}
    found.pop("--help", None)
    return found


def ours(table: Table) -> dict[str, Row]:
    """The same of a table."""
    return {_name(row["options"]): row for row in table.rows}


def _name(options: Sequence[str]) -> str:
    return next((option for option in options if option.startswith("--")), options[0])


def kind_of(action: dict[str, Any]) -> str:
    """The kind of value, as the table calls it."""
    names = action["type"]
    if action["action"] == "LoRAParserAction":
        return "lora"
    if names is None:
        return "str"
    if any("lambda" in name for name in names):
        return "lower|ids"
    classes = [name for name in names if name.endswith(("Config", "ConfigArgs"))]
    if any("parse_dataclass" in name or "lambda" in name for name in names) and classes:
        return f"config:{classes[0]}"
    return next((KINDS[name] for name in names if name in KINDS), names[-1])


def read_line(words: Sequence[str], table: Table) -> EngineOptions:
    """The options of `vllm serve WORDS`."""
    return options_of(read(["vllm", "serve", *words]), table, "a test", exact=True)


def refused(options: EngineOptions) -> list[str]:
    """What argparse refuses; what the engine refuses later (bounds, keys of config classes, names
    of parsers) does not count here."""
    late = ("deprecated", "duplicate", "range")
    parsers = [options.given.get(name) for name in ("tool_call_parser", "reasoning_parser")]
    flags = [option.flag for option in parsers if option is not None]
    return [
        problem.message
        for problem in options.problems
        if problem.kind not in late
        and "has no key" not in problem.message
        and not (problem.kind == "choice" and problem.flag in flags)
    ]


def differences(
    line: Sequence[str], answer: dict[str, Any], table: Table, defaults: dict[str, Any]
) -> list[str]:
    """How our reading of a line differs from the real one."""
    options = read_line(line, table)
    wrong = refused(options)
    if bool(wrong) != ("error" in answer):
        return [f"{line}: really {answer.get('error', 'accepted')!r}, ours {wrong}"]
    if wrong:
        return []
    values = {**defaults, **answer["ok"]}
    found = []
    for name, option in options.given.items():
        if option.value != values.get(name) and "object" not in json.dumps(values.get(name)):
            found.append(f"{line}: {name} is {values.get(name)!r}, ours {option.value!r}")
    model = options.model.value if options.model else None
    if model != values.get("model_tag"):
        found.append(f"{line}: the model is {values.get('model_tag')!r}, ours {model!r}")
    return found
