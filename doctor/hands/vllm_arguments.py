"""The arguments and variables of an installed vLLM, read from its sources without importing them.

`vllm serve` builds its parser in ServeSubcommand.subparser_init (0.8 on) or in main() of
vllm/scripts.py (before). What that calls is played by `vllm_values.Interpreter`; get_kwargs(), which
turns the fields of a config class into arguments, is done here.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import os
from typing import Any

from .files import read_bytes
from .vllm_classes import Ref
from .vllm_fields import Fields, type_name
from .vllm_parsers import parser_names
from .vllm_source import FILE_LIMIT, UNKNOWN, Module, Source
from .vllm_statements import PLAIN

Json = dict[str, Any]

DIGESTED = (
    "config.py",
    "config",
    "engine/arg_utils.py",
    "entrypoints/cli/serve.py",
    "entrypoints/common/cli_args.py",
    "entrypoints/launchers/cli_args.py",
    "entrypoints/llm.py",
    "entrypoints/openai/cli_args.py",
    "envs.py",
    "scripts.py",
    "utils/__init__.py",
    "utils/argparse_utils.py",
    "utils.py",
    "v1/attention/backends/registry.py",
)
"""Files and folders whose text decides which arguments there are."""

PARSER_MARKS = {
    "dotted": b"dict_args",
    "dotted-short": b'processed_arg.startswith("-") and',
    "dotted-lists": b'endswith("+")',
    "dotted-human": b"value = human_readable_int(value_str)",
    "level": b"-O.level",
    "level-long": b'"--optimization-level"',
    "level-o": b"startswith('-O')",
    "model-moved": b"rest_start_idx",
    "config-bools": b"isinstance(value, bool)",
    "config-no": b'f"--no-{key}"',
    "config-lists": b"isinstance(value, list)",
    "config-dicts": b"isinstance(value, dict)",
    "name-before-model": b"should be provided as the first positional argument",
}
"""What the parser of a version can do -> words of its source that show it."""

ACTIONS = {
    "BooleanOptionalAction": "flag-no",
    "StoreBoolean": "store-boolean",
    "append": "append",
    "count": "count",
    "help": "help",
    "store_const": "const",
    "store_false": "flag-false",
    "store_true": "flag",
}


def vllm_digest(package: str) -> Json:
    """One hash of the files that declare arguments; the catalogue knows those of releases."""
    total = hashlib.sha256()
    count = 0
    for entry in DIGESTED:
        place = os.path.join(package, entry)
        names = [entry]
        if os.path.isdir(place):
            names = [
                f"{entry}/{name}" for name in sorted(os.listdir(place)) if name.endswith(".py")
            ]
        for name in names:
            try:
                data, _ = read_bytes(os.path.join(package, name), FILE_LIMIT)
            except (FileNotFoundError, NotADirectoryError):
                continue
            total.update(f"{name}\0{len(data)}\0".encode() + data)
            count += 1
    return {"sha256": total.hexdigest(), "files": count}


def vllm_arguments(package: str) -> Json:
    """The table: arguments, fields of the Python classes, environment variables."""
    gc.disable()  # half a million nodes are made and all kept: collecting takes half of the time
    try:
        return _read(package)
    finally:
        gc.enable()


def _read(package: str) -> Json:
    reader = Reader(Source(package))
    return {
        "arguments": reader.arguments(),
        "fields": reader.field_names("engine.arg_utils", "EngineArgs", "AsyncEngineArgs"),
        "llm": reader.parameters(),
        "classes": reader.classes,
        "variables": variables(reader),
        "parser": reader.parser_marks(),
        "tool_parsers": parser_names(reader.source, "tool"),
        "reasoning_parsers": parser_names(reader.source, "reasoning"),
    }


class _Parser:
    """A parser or a group of one."""

    def __init__(self, command: str | None, group: str | None = None) -> None:
        self.command = command
        self.group = group


class Reader(Fields):
    """Plays the functions that declare arguments and notes what they declare."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.rows: list[Json] = []
        self._seen: set[str] = set()

    def arguments(self) -> list[Json]:
        """Every argument of `vllm serve`, in the order in which it is declared."""
        serve = self.source.module("entrypoints.cli.serve")
        if serve is not None and "ServeSubcommand" in serve.defined:
            holder = self.named("ServeSubcommand", serve, {})
            self.run(self.attribute(holder, "subparser_init"), [_Parser(None)], {})
        elif (scripts := self.source.module("scripts")) is not None:
            self.run(self.named("main", scripts, {}), [], {})
        return self.rows

    def on_call(
        self, name: str, target: Any, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        if isinstance(target, _Parser):
            return self._on_parser(name, target, arguments, keywords)
        if name in ("FlexibleArgumentParser", "ArgumentParser"):
            return _Parser(None)
        if name in ("get_kwargs", "_compute_kwargs") and arguments:
            return self.kwargs(arguments[0])
        if name == "get_field" and len(arguments) == 2:
            return self.attribute(arguments[0], arguments[1])
        if name in ("typing.get_args", "get_args") and arguments:
            return UNKNOWN if arguments[0] is UNKNOWN else arguments[0]
        if name in ("parse_type", "optional_type") and arguments:
            kind = type_name(arguments[0])
            return kind + "?" if name == "optional_type" and not kind.endswith("?") else kind
        return NotImplemented

    def _on_parser(
        self, name: str, parser: _Parser, arguments: list[Any], keywords: dict[str, Any]
    ) -> Any:
        if name == "add_argument":
            if parser.command == "serve":
                self._add(parser, arguments, keywords)
            return UNKNOWN
        if name == "add_parser":
            command = arguments[0] if arguments else UNKNOWN
            return _Parser(command if isinstance(command, str) else "serve")
        if name == "add_argument_group":
            title = keywords.get("title", arguments[0] if arguments else None)
            return _Parser(parser.command, title if isinstance(title, str) else None)
        if name in ("add_subparsers", "add_mutually_exclusive_group"):
            return _Parser(parser.command, parser.group)
        return UNKNOWN

    def _Subscript(self, node: ast.Subscript, module: Module, local: dict[str, Any]) -> Any:
        if getattr(node.value, "id", getattr(node.value, "attr", "")) == "Literal":
            return self.literal(node, module)
        return super()._Subscript(node, module, local)

    def _add(self, parser: _Parser, arguments: list[Any], keywords: dict[str, Any]) -> None:
        options = [word for word in arguments if isinstance(word, str)]
        if not options or options[0] in self._seen:
            return
        self._seen.add(options[0])
        action = keywords.get("action")
        row: Json = {"options": options, "dest": _dest(options, keywords.get("dest"))}
        named = action.name.rpartition(".")[2] if isinstance(action, Ref) else action
        if isinstance(named, str) and named != "store":
            row.update({"action": ACTIONS[named]} if named in ACTIONS else {})
        if row.get("action") == "flag-no":
            longs = [word for word in options if word.startswith("--")]
            row["options"] = options + [f"--no-{word[2:]}" for word in longs]
        flag = row.get("action") in ("flag", "flag-no", "flag-false", "const", "help", "count")
        if not flag:
            kind = type_name(keywords["type"]) if keywords.get("type") is not None else "str"
            if kind.startswith("human") and not self._tera():
                kind = kind.replace("human", "human-g", 1)
            row["type"] = "lora" if named == "LoRAParserAction" else kind
        for key in ("nargs", "const", "choices", "suggested", "bounds"):
            value = plain(keywords.get(key))
            if value is not None and value != []:
                row[key] = value
        if "default" in keywords:
            row["default"] = plain(keywords["default"])
        elif row.get("action") == "flag":
            row["default"] = False
        if row.get("default") is None:
            row.pop("default", None)
        if parser.group:
            row["group"] = parser.group
        help_ = keywords.get("help")
        if keywords.get("deprecated") is True or (
            isinstance(help_, str) and "deprecated" in help_[:60].lower()
        ):
            row["deprecated"] = True
        self.rows.append(row)

    def _tera(self) -> bool:
        """Whether human_readable_int() knows t and T (0.13 on)."""
        self.source.module("utils.argparse_utils")
        names = ("engine/arg_utils.py", "utils/argparse_utils.py")
        return any(b"10**12" in self.source.files.get(name, b"") for name in names)

    def parser_marks(self) -> list[str]:
        """What the parser itself can do, off the text of FlexibleArgumentParser."""
        for name in ("utils.argparse_utils", "utils"):
            module = self.source.module(name)
            node = module.defined.get("FlexibleArgumentParser") if module else None
            if module is None or not isinstance(node, ast.ClassDef):
                continue
            for path in (f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"):
                lines = self.source.files.get(path, b"").splitlines()
                text = b"\n".join(lines[node.lineno - 1 : node.end_lineno])
                if text:
                    return [mark for mark, words in PARSER_MARKS.items() if words in text]
        return []

    # Python
    def field_names(self, module_name: str, *classes: str) -> list[str]:
        """The fields of dataclasses, each name once."""
        module = self.source.module(module_name)
        found: dict[str, None] = {}
        for name in classes:
            holder = self.named(name, module, {}) if module else UNKNOWN
            if isinstance(holder, Ref) and holder.kind == "class":
                found.update(dict.fromkeys(self.fields(holder)))
        return list(found)

    def parameters(self) -> list[str]:
        """The parameters of LLM.__init__, in order; "*" before those that need a keyword."""
        module = self.source.module("entrypoints.llm")
        holder = self.named("LLM", module, {}) if module else UNKNOWN
        if not isinstance(holder, Ref) or holder.kind != "class":
            return []
        for node in holder.node.body:
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                spec = node.args
                words = [one.arg for one in (*spec.posonlyargs, *spec.args)][1:]
                later = [one.arg for one in spec.kwonlyargs]
                return [*words, *(["*"] if later else []), *later]
        return []


def plain(value: Any) -> Any:
    """The value as JSON; None for what cannot be told, a note for an object."""
    if isinstance(value, Ref):
        if value.kind == "member":
            return plain(value.node)
        return {"object": value.name} if value.kind == "object" else None
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return None


def _dest(options: list[str], dest: Any) -> str:
    if isinstance(dest, str):
        return dest
    long = next((word for word in options if word.startswith("--")), options[0])
    return long.lstrip("-").replace("-", "_")


def variables(reader: Reader) -> Json:
    """Name -> {"type", "default", "choices"} of vllm/envs.py, as the sources write them."""
    module = reader.source.module("envs")
    table = module.defined.get("environment_variables") if module else None
    if module is None or not isinstance(table, ast.Dict):
        return {}
    written = _annotations(module.body)
    found: Json = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        row: Json = dict(written.get(key.value, {}))
        if isinstance(value, ast.Call) and "choices" in getattr(value.func, "id", ""):
            for part in (*value.args, *(one.value for one in value.keywords)):
                choices = reader.value(part, module, {})
                if isinstance(choices, list) and all(isinstance(c, str) for c in choices):
                    row["choices"] = choices
                    break
        found[key.value] = row
    return found


def _annotations(body: list[ast.stmt]) -> Json:
    """NAME: type = default of the block that only type checkers run."""
    found: Json = {}
    for node in body:
        if isinstance(node, ast.If):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    row = {"type": ast.unparse(line.annotation)}
                    if line.value is not None:
                        row["default"] = ast.unparse(line.value)
                    found[line.target.id] = row
    return found
