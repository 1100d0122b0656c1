"""What FlexibleArgumentParser.parse_args() does to the words before argparse sees them.

Sources: utils/argparse_utils.py of vLLM 0.32 (utils.py, utils/__init__.py before 0.11.1); which of it
a version does is in `Table.marks`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Keyword, Place, Unknown, Word
from infer_doctor.vllm_arguments.table import Table
from infer_doctor.vllm_arguments.values import BadValue, human

FIRST_PART = re.compile(r"(?<=--)[^\.]*")
MODEL_OPTION = re.compile(r"--model(=.+|$)")
LEVELS = ("0", "1", "2", "3")


@frozen
class Token:
    """A word as argparse gets it; `written` is what stands in the file."""

    text: str
    written: str
    place: Place
    unknown: str | None = None
    """The expression whose value is not known; the text is then not to be judged."""
    config: bool = False
    """Whether it comes from the file of --config."""


def tokens_of(words: Sequence[Word]) -> list[Token]:
    """The words of a command line as they are."""
    return [
        Token(text=word.text, written=word.text, place=word.place, unknown=word.unknown)
        for word in words
    ]


def from_config(keys: Iterable[Keyword], table: Table) -> list[Token]:
    """The keys of a --config file as words (load_config_file)."""
    found: list[Token] = []
    for key in keys:

        def word(text: str, unknown: str | None = None, key: Keyword = key) -> Token:
            return Token(text=text, written=key.name, place=key.place, unknown=unknown, config=True)

        name, value = f"--{key.name}", key.value
        boolean = table.by_option.get(name.replace("_", "-"), {}).get("action") == "store-boolean"
        if isinstance(value, Unknown):
            found += [word(name), word(value.text, value.text)]
        elif isinstance(value, bool) and "config-bools" in table.marks and not boolean:
            negated = f"--no-{key.name}"
            if value:
                found.append(word(name))
            elif "config-no" in table.marks and negated in table.by_option:
                found.append(word(negated))
        elif isinstance(value, list) and "config-lists" in table.marks:
            found += [word(name)] * bool(value) + [word(str(item)) for item in value]
        elif isinstance(value, dict) and "config-dicts" in table.marks:
            found += [word(name), word(json.dumps(value, default=str))]
        else:
            found += [word(name), word(str(value))]
    return found


def without_config(tokens: list[Token]) -> list[Token]:
    """`--config FILE` is taken out; `--config=FILE` stays, and nobody reads that file."""
    for place, token in enumerate(tokens):
        if token.text == "--config":
            return tokens[:place] + tokens[place + 2 :]
    return tokens


def model_to_front(tokens: list[Token]) -> list[Token]:
    """`vllm serve --model X` as 0.11.1 and later rewrite it."""
    for place, token in enumerate(tokens):
        if not MODEL_OPTION.match(token.text):
            continue
        if token.text != "--model":
            moved = replace(token, text=token.text.removeprefix("--model="))
            return [moved, *tokens[:place], *tokens[place + 1 :]]
        if place + 1 < len(tokens):
            return [tokens[place + 1], *tokens[:place], *tokens[place + 2 :]]
    return tokens


def rewritten(tokens: Sequence[Token], marks: frozenset[str]) -> list[Token]:
    """Underscores to dashes in names, -O3 to what it stands for."""
    found: list[Token] = []
    for place, token in enumerate(tokens):
        text = token.text
        if text.startswith("--"):
            key, equals, value = text.partition("=")
            if "dotted" in marks:
                key = FIRST_PART.sub(lambda match: match[0].replace("_", "-"), key, count=1)
            else:
                key = "--" + key[2:].replace("_", "-")
            found.append(_with(token, key + equals + value))
        elif text.startswith("-O") and text != "-O" and not text.startswith("-O."):
            level = text[3:] if text[2] == "=" else text[2:]
            if "level-long" in marks:
                found += [_with(token, "--optimization-level"), _with(token, level)]
            elif "level" in marks:
                found.append(_with(token, f"-O.level={level}"))
            elif len(text) > 2 and "level-o" in marks:
                found += [_with(token, "-O"), _with(token, text[2:])]
            else:
                found.append(token)
        elif text == "-O" and place + 1 < len(tokens) and tokens[place + 1].text in LEVELS:
            name = "--optimization-level" if "level-long" in marks else "-O"
            found.append(_with(token, "-O.level" if "level" in marks else name))
        else:
            found.append(token)
    return found


def _with(token: Token, text: str) -> Token:
    known = text != token.text and "=" not in text
    return replace(token, text=text, unknown=None if known else token.unknown)


@frozen
class Joined:
    """Words after nested keys were put together."""

    words: tuple[Token, ...]
    repeated: tuple[Token, ...] = ()
    """Nested keys that overwrite another."""
    valueless: tuple[Token, ...] = ()
    """A nested key that is the last word."""


def joined(tokens: Sequence[Token], marks: frozenset[str]) -> Joined:
    """Nested keys (`--cfg.a.b v`, `--cfg.list+ x`) become one JSON value at the end."""
    if "dotted" not in marks:
        return Joined(words=tuple(tokens))
    valueless: list[Token] = []
    left: list[Token] = []
    nested: dict[str, dict[str, Any]] = {}
    first: dict[str, Token] = {}
    unknown: dict[str, str] = {}
    repeated: list[Token] = []
    waiting = iter(tokens)
    for token in waiting:
        name, equals, text = token.text.partition("=")
        short = "dotted-short" in marks and name.startswith("-") and not name.startswith("--")
        if "." not in name or not (name.startswith("--") or short):
            left.append(token)
            continue
        source = token
        if not equals:
            following = next(waiting, None)
            if following is None:
                valueless.append(token)
                continue
            source, text = following, following.text
        if name.endswith("+") and "dotted-lists" in marks:
            name, text = name[:-1], json.dumps(text.split(","))
        key, *keys = name.split(".")
        if source.unknown:
            unknown[key] = source.unknown
        value: Any = nested_value(text, marks)
        for part in reversed(keys):
            value = {part: value}
        if _update(nested.setdefault(key, {}), value):
            repeated.append(token)
        first.setdefault(key, token)
    for key, value in nested.items():
        token = first[key]
        left.append(replace(token, text=key, unknown=None))
        left.append(replace(token, text=json.dumps(value), unknown=unknown.get(key)))
    return Joined(words=tuple(left), repeated=tuple(repeated), valueless=tuple(valueless))


def nested_value(text: str, marks: frozenset[str]) -> Any:
    """JSON where it is JSON; 80g where the version reads that; else the word."""
    if "dotted-lists" not in marks:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if "dotted-human" in marks:
        try:
            return human(text)
        except (ValueError, BadValue):
            pass
    return text


def _update(original: dict[str, Any], update: dict[str, Any]) -> bool:
    """Merge; whether a key was overwritten."""
    repeated = False
    for key, value in update.items():
        if isinstance(value, dict) and isinstance(original.get(key), dict):
            repeated |= _update(original[key], value)
        elif isinstance(value, list) and isinstance(original.get(key), list):
            original[key] += value
        else:
            repeated |= key in original
            original[key] = value
    return repeated
