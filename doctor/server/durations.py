"""Values that the configurations of gateways share: times as Go and Envoy write them, patterns."""

from __future__ import annotations

import math
import re

from infer_doctor.launch.document import Node

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)?")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_PATTERN = 200
MAY_TAKE_LONG = re.compile(r"[*+}]\)*[*+{]")
"""A repetition of a repetition, which Python's re may try for ever."""


def text_of(node: Node | None) -> str:
    """A plain value as text; "" for none."""
    return str(node.value) if node is not None and not (node.is_map or node.is_list) else ""


def seconds(text: str, unit: float = 1.0) -> float | None:
    """15s, 0.5s, 1h30m, 300 (in `unit`); None for anything else. 0 is "no limit"."""
    parts = DURATION.findall(text)
    if not parts or "".join(number + name for number, name in parts) != text:
        return None
    value = sum(float(number) * (UNITS[name] if name else unit) for number, name in parts)
    return value if math.isfinite(value) else None


def matches(pattern: str, path: str, *, whole: bool = False, ignore_case: bool = False) -> bool:
    """Whether a pattern takes the path; False for one that might take for ever to tell."""
    if len(pattern) > LONGEST_PATTERN or MAY_TAKE_LONG.search(pattern):
        return False
    test = re.fullmatch if whole else re.search
    try:
        return test(pattern, path, re.I if ignore_case else 0) is not None
    except re.error:
        return False
