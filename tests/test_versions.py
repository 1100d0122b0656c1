"""Versions for comparing."""

from __future__ import annotations

import pytest

from infer_doctor.versions import release, series


@pytest.mark.parametrize(
    ("text", "parts", "numbers"),
    [
        ("v0.10.1.1.post2+cu128", None, (0, 10, 1, 1)),
        ("0.32.0rc1", None, (0, 32, 0)),
        ("1.2.0rc8", 3, (1, 2, 0)),
        ("0.26", 3, (0, 26, 0)),
        ("0.9.2.1", 3, (0, 9, 2)),
        ("550.54.14", None, (550, 54, 14)),
        ("13", 2, (13, 0)),
        ("latest", None, ()),
        ("latest", 3, ()),
        ("", None, ()),
        (None, None, ()),
        ("\u0661.2", None, ()),
        ("v" + "9" * 5000, None, ()),
    ],
)
def test_release(text: str | None, parts: int | None, numbers: tuple[int, ...]) -> None:
    assert release(text, parts) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.27.1", (0, 27)),
        ("0.27", (0, 27)),
        ("0.27.1+cu130", (0, 27)),
        ("0.1.dev5+g1234", None),
        ("0.1.dev5+g1234.cu130", None),
        ("7", None),
        (None, None),
    ],
)
def test_series(text: str | None, numbers: tuple[int, ...] | None) -> None:
    assert series(text) == numbers
