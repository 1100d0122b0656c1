"""All texts of a value of JSON or of a fact, as lines: one look at them is faster than one at each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from typing import Any

from infer_doctor import secret_forms


def texts_within(value: object, name: object, lines: list[str]) -> None:
    """Every text within a value, a line each, behind the name of its field where that tells more."""
    if isinstance(value, str):
        lines.append(f"{name}: {value}" if _telling(str(name)) else value)
    elif isinstance(value, dict):
        if isinstance(name := value.get("name"), str) and isinstance(value.get("value"), str):
            lines.append(f"name: {name}\nvalue: {value['value']}")
        for key, item in value.items():
            lines.append(str(key))
            texts_within(item, key, lines)
    elif isinstance(value, (list, tuple)):
        if is_command(value):
            lines.append(" ".join(value))
        for item in value:
            texts_within(item, "", lines)
    elif dataclasses.is_dataclass(value):
        for field, item in vars(value).items():
            texts_within(item, field, lines)


def is_command(value: Sequence[Any]) -> bool:
    """Whether a list is a command line: the value of an option is then the word after it."""
    return any(isinstance(item, str) and item.startswith("--") for item in value) and all(
        isinstance(item, str) for item in value
    )


@cache
def _telling(name: str) -> bool:
    return name.lower() == "serial" or secret_forms.names_secret(name)
