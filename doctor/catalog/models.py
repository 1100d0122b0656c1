"""The config.json of well-known models, as published: `models.json`, made by scripts/make_models.py.

Only the keys that say sizes and limits. For launches whose model is not on this machine.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import Any


@cache
def _table() -> dict[str, dict[str, Any]]:
    text = pkgutil.get_data("infer_doctor.catalog", "models.json") or b"{}"
    found: dict[str, dict[str, Any]] = json.loads(text)
    return {name.lower(): config for name, config in found.items()}


QUANTISED = re.compile(
    r"[-_.](?:nvfp4|mxfp4|fp4|fp8|int4|int8|awq|gptq|bnb|[48]-?bit|w\d+a\d+)(?:[-_.]|$)", re.I
)
"""Names of repositories whose weights are quantised. ModelOpt writes how into hf_quant_config.json."""


def hides_quantization(name: str, config: Mapping[str, Any]) -> bool:
    """Whether the weights are quantised, by the name, and config.json does not say how."""
    parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
    said = any("quantization_config" in part for part in parts)
    return not said and QUANTISED.search(name) is not None


def published(name: str) -> dict[str, Any] | None:
    """By the whole name of a repository, whatever its case."""
    return _table().get(name.lower())
