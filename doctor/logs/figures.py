"""A number that stands in a log: mangled, endless and absurd ones are none."""

from __future__ import annotations

LARGEST = 1e15
"""Above any size in bytes, tokens or seconds that an engine prints; what is larger was mangled."""


def figure(text: str | None) -> float | None:
    """The number, or None: two interleaved lines make 3.73.7, a cut one a lone point."""
    try:
        value = float((text or "").replace(",", "").rstrip("."))
    except ValueError:
        return None
    return value if -LARGEST < value < LARGEST else None


def count(text: str | None) -> int:
    """A whole number of things; 0 for what is none."""
    return int(figure(text) or 0)
