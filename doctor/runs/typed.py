"""A fact out of JSON: values of another form are refused there, and not met in a message later."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def typed(kind: type[T], values: Mapping[str, Any]) -> T:
    """One of this kind, lists as tuples; raises TypeError."""
    return kind(**checked(kind, values))


def checked(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Some of the values of this kind; raises TypeError."""
    hints = typing.get_type_hints(kind)
    made = {}
    for name, value in values.items():
        if name not in hints:
            raise TypeError(f"{kind.__name__} has no {name}")
        made[name] = _made(hints[name], value, name)
    return made


def _made(hint: Any, value: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        for one in arguments:
            try:
                return _made(one, value, name)
            except TypeError:
                continue
    elif origin is Literal and value in arguments:
        return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) == len(value):
            return tuple(_made(one, item, name) for one, item in zip(kinds, value, strict=True))
    elif origin is Mapping and isinstance(value, dict):
        return {
            _made(arguments[0], k, name): _made(arguments[1], v, name) for k, v in value.items()
        }
    elif hasattr(hint, "__dataclass_fields__") and isinstance(value, dict):
        return typed(hint, value)
    elif hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise TypeError(f"{name} is of another form: {value!r:.60}")
