"""`@frozen`: a frozen keyword-only dataclass that costs a tenth at import.

`dataclasses.dataclass` compiles up to six methods for each class, some 0.5 ms; a hundred types would
take a tenth of the half second that `check` may take. Here the fields are the standard library's
own, so `fields`, `replace`, `asdict` and `is_dataclass` work, and the methods are shared.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(
        kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,)
    )
    def frozen(cls: type[T]) -> type[T]:
        """Make a class a frozen keyword-only dataclass."""

else:

    def frozen(cls):
        """Make a class a frozen keyword-only dataclass."""
        made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
        for method in (__init__, __setattr__, __delattr__, __eq__, __hash__, __repr__):
            setattr(made, method.__name__, method)
        return made


def __init__(self: Any, **values: Any) -> None:
    missing = []
    for name, field in self.__dataclass_fields__.items():
        if name in values:
            value = values.pop(name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        else:
            missing.append(name)
            continue
        object.__setattr__(self, name, value)
    if missing or values:
        problem = f"misses {', '.join(missing)}" if missing else f"has no {', '.join(values)}"
        raise TypeError(f"{type(self).__name__} {problem}")


def __setattr__(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def __eq__(self: Any, other: object) -> Any:
    return vars(self) == vars(other) if type(self) is type(other) else NotImplemented


def __hash__(self: Any) -> int:
    return hash(tuple(vars(self).values()))


def __repr__(self: Any) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
    return f"{type(self).__qualname__}({values})"
