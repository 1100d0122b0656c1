"""The text of an argument -> its value, as vLLM's own functions read it.

Sources: engine/arg_utils.py (parse_type, optional_type, union_dict_and_str, nullable_kvs) and
utils/argparse_utils.py (human_readable_int), 0.6 to 0.33.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infer_doctor.vllm_arguments.table import Row

HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

LIMITS: Mapping[str, Mapping[str, int]] = {"port": {"ge": 0, "le": 65535}}
"""Bounds that no class of the engine declares: bind() refuses another port after the model's load."""

MOST_SHOWN = 20
"""Choices that a message names one by one."""

HUMAN_WORDS = "a whole number, or one with k, m, g (thousand ...) or K, M, G (1024 ...)"
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "human": HUMAN_WORDS,
    "human-g": HUMAN_WORDS,
    "human-or-auto": "a whole number, one with k or K, or auto",
    "json": "a JSON object",
    "json-or-str": "a JSON object or a word",
    "pairs": "KEY=NUMBER pairs with commas between",
    "bool": "true or false",
}
"""What a value must be, in words."""


class BadValue(Exception):
    """The engine refuses the text; the words complete "--x VALUE: "."""


def convert(text: str, row: Row) -> Any:
    """The value of one word; raises BadValue. `any` is taken as it is."""
    kind = str(row.get("type", "str"))
    if row.get("action") == "store-boolean":
        if text.lower() not in ("true", "false"):
            raise BadValue("is neither true nor false")
        return text.lower() == "true"
    if kind.endswith("?"):
        if text in ("", "None"):
            return None
        kind = kind[:-1]
    if kind.startswith("config:"):
        kind = "object"
    try:
        return READERS.get(kind, str)(text)
    except ValueError:
        raise BadValue(f"is not {WORDS.get(kind, 'a value of this kind')}") from None


def human(text: str) -> int:
    """32k, 32K, 25.6k, 4096."""
    text = text.strip()
    found = HUMAN.fullmatch(text)
    if found is None:
        return int(text)
    number, unit = found.groups()
    if unit in DECIMAL:
        return int(float(number) * DECIMAL[unit])
    if "." in number:
        raise BadValue(f"has decimals before {unit}, which counts in 1024; {number}{unit.lower()}?")
    return int(number) * BINARY[unit]


def human_to_g(text: str) -> int:
    """The same without t and T, as 0.12 and older read it."""
    if text.strip()[-1:] in ("t", "T"):
        raise ValueError(text)
    return human(text)


def human_or_auto(text: str) -> int:
    """The same, and auto or -1 for -1."""
    return -1 if text.strip().lower() in ("-1", "auto") else human(text)


def read_json(text: str) -> Any:
    """json.loads with what is wrong in words."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        hint = ""
        if re.match(r"\s*[{\[]", text) and "'" in text and '"' not in text:
            hint = "; JSON wants double quotes"
        elif re.match(r"\s*\{[^\"']*\}\s*$", text):
            hint = "; the shell took the quotes away: put the whole in single quotes"
        raise BadValue(f"is no JSON ({error.msg} at character {error.pos + 1}){hint}") from None
    except RecursionError:
        raise BadValue("is nested too deep") from None


def read_object(text: str) -> Any:
    """A JSON object for a config class; numbers such as 80m within it are expanded."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(
            r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", lambda found: str(human(found[0])), parts[place]
        )
    value = read_json("".join(parts))
    if not isinstance(value, dict):
        raise BadValue("is no JSON object")
    return value


def device_ids(text: str) -> list[int | str]:
    """0,1 or UUIDs."""
    parts = (part.strip() for part in text.split(","))
    return [int(part) if part.isdigit() else part for part in parts]


def lora_module(text: str) -> Any:
    """NAME=PATH, or JSON with name and path, as LoRAParserAction takes them."""
    if text in ("", "None"):
        return None
    if "=" in text and "," not in text:
        name, _, path = text.partition("=")
        if "=" in path:
            raise BadValue("is no NAME=PATH")
        return {"name": name, "path": path}
    value = read_json(text)
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) and {"name", "path"} <= one.keys() for one in found):
        raise BadValue("names no adapter: NAME=PATH or JSON with name and path")
    return value


def object_or_word(text: str) -> Any:
    """JSON when it is in braces, else the word itself."""
    return read_json(text) if re.match(r"(?s)^\s*{.*}\s*$", text) else text


def pairs(text: str) -> dict[str, int]:
    """image=4,video=1; JSON too, as 0.8 and 0.9 read it."""
    if re.match("^{.*}$", text):
        value = read_json(text)
        return dict(value) if isinstance(value, dict) else {}
    found = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(item)
        found[key.strip().lower()] = int(value)
    return found


READERS: Mapping[str, Callable[[str], Any]] = {
    "any": str,
    "float": float,
    "human": human,
    "human-g": human_to_g,
    "human-g-or-auto": human_or_auto,
    "human-or-auto": human_or_auto,
    "ids": device_ids,
    "int": int,
    "json": read_json,
    "lower": lambda text: text.lower().replace("-", "_"),
    "json-or-str": object_or_word,
    "lora": lora_module,
    "object": read_object,
    "pairs": pairs,
}


def choice_problem(value: Any, row: Row) -> str | None:
    """Why argparse refuses the value, if it does."""
    choices = row.get("choices")
    if not choices or value in choices:
        return None
    return f"is none of {listed(choices)}"


def listed(choices: Sequence[Any]) -> str:
    """The choices in words; of many only the number."""
    known = [str(choice) for choice in choices if choice is not None]
    return ", ".join(known) if len(known) <= MOST_SHOWN else f"the {len(known)} that it takes"


def range_problem(value: Any, row: Row) -> str | None:
    """Why the config class refuses a number, if it does."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    bounds = row.get("bounds", {}) or LIMITS.get(str(row.get("dest")), {})
    for key, word in (
        ("gt", "more than"),
        ("ge", "at least"),
        ("lt", "less than"),
        ("le", "at most"),
    ):
        bound = bounds.get(key)
        if not isinstance(bound, (int, float)):
            continue
        fits = {
            "gt": value > bound,
            "ge": value >= bound,
            "lt": value < bound,
            "le": value <= bound,
        }[key]
        if not fits:
            return f"must be {word} {bound:g}"
    return None
