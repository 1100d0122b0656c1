"""`@frozen` is what `@dataclass(frozen=True, kw_only=True)` is."""

from __future__ import annotations

import dataclasses
from dataclasses import field

import pytest

from infer_doctor.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 0
    names: list[str] = field(default_factory=list)


def test_values_defaults_and_a_fresh_default_each_time() -> None:
    first, second = Point(x=1), Point(x=1, y=0)
    assert (first.x, first.y, first.names) == (1, 0, [])
    assert first == second
    assert first.names is not second.names
    assert repr(first).endswith("Point(x=1, y=0, names=[])")


def test_it_is_a_dataclass() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "y", "names"]
    assert dataclasses.replace(Point(x=1), x=2) == Point(x=2)
    assert dataclasses.asdict(Point(x=1)) == {"x": 1, "y": 0, "names": []}


def test_it_is_frozen() -> None:
    point = Point(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x


def test_equal_values_hash_alike_and_types_differ() -> None:
    @frozen
    class Other:
        x: int

    @frozen
    class Twin:
        x: int

    assert hash(Other(x=1)) == hash(Other(x=1))
    assert Other(x=1) != Twin(x=1)


@pytest.mark.parametrize("values", [{}, {"x": 1, "z": 2}])
def test_wrong_arguments_are_a_type_error(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(**values)
