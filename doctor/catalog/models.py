"""The config.json of well-known models, as published: `models.json`, made by scripts/make_models.py.

Only the keys that say sizes and limits. For launches whose model is not on this machine.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = pkgutil.get_data("infer_doctor.catalog", "models.json") or b"{}"
    found: dict[str, dict[str, Any]] = json.loads(text)
    return {name.lower(): config for name, config in found.items()}


def published(name: str) -> dict[str, Any] | None:
    """By the whole name of a repository, whatever its case."""
    return _table().get(name.lower())
