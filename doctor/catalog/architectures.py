"""The architectures that vLLM knows, out of one release: `architectures.json` says which.

Made by scripts/make_architectures.py, with the hash of the source.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any

VERSION = "0.32.0"


@cache
def _table() -> dict[str, Any]:
    text = pkgutil.get_data("infer_doctor.catalog", "architectures.json") or b"{}"
    found: dict[str, Any] = json.loads(text)
    return found


def known() -> frozenset[str]:
    """The names that VERSION loads itself."""
    return frozenset(_table()["known"])


def removed() -> dict[str, str]:
    """Name -> the last version that had it."""
    found: dict[str, str] = _table()["removed"]
    return found
