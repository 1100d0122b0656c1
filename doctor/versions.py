"""Version numbers for comparing: what the release of a version says, and nothing else.

The rules of PEP 440, where requirements are judged, are those of `packaging` (requirements.py); its
import takes 50 ms.
"""

from __future__ import annotations

import re

RELEASE = re.compile(r"v?(\d{1,18}(?:\.\d{1,18})*)(?!\d)", re.ASCII)
"""No release has more digits, and int() refuses thousands of them."""


def release(version: str | None, parts: int | None = None) -> tuple[int, ...]:
    """(0, 10, 1, 1) of "v0.10.1.1.post2+cu128"; (0, 10, 1) in three parts, which 0 fills up.

    Empty for what is no version.
    """
    found = RELEASE.match(version or "")
    if found is None:
        return ()
    numbers = tuple(map(int, found[1].split(".")))
    return numbers if parts is None else (*numbers, *[0] * parts)[:parts]


def series(version: str | None) -> tuple[int, ...] | None:
    """(0, 27) of "0.27.1"; None when it says nothing: builds of a branch call themselves 0.1.devN."""
    found = release(version)
    return found[:2] if len(found) > 1 and "dev" not in (version or "") else None
