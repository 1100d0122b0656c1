"""What a number function gives back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from infer_doctor.frozen import frozen
from infer_doctor.logs.figures import figure
from infer_doctor.logs.story import Hit, Start
from infer_doctor.model import Category, Fix


@frozen
class Answer:
    """What the numbers of a case say; None leaves what the signature says."""

    message: str | None = None
    fixes: tuple[Fix, ...] = ()
    category: Category | None = None
    wrong: str | None = None
    support: tuple[str, ...] = ()
    """Names of values of the start whose lines belong to the evidence."""
    values: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False
    """The numbers refute the hit."""
    unsure: bool = False
    """The message is certain, and what it stands for is not."""


def number(hit: Hit, name: str) -> float | None:
    """A group of the match as a number."""
    return figure(hit.match.groupdict().get(name))


def since(start: Start, *version: int) -> bool:
    """Whether the engine of this start is known to be this version or a later one."""
    found = tuple(int(part[:6]) for part in re.findall(r"\d+", start.version or "")[:3])
    return len(found) >= 2 and found >= version
