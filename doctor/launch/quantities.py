"""Sizes and times as Docker and Kubernetes write them."""

from __future__ import annotations

import re

BINARY = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
DOCKER_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([kmgtp]?)i?b?", re.I)
"""github.com/docker/go-units: all units are powers of 1,024."""

SI = {"": 1, "m": 1e-3, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
QUANTITY = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{0,9})?)(?:([kMGTPE])i|([mkMGTPE])|[eE]([0-9]{1,2}))?"
)
"""kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity."""

GO_TIME = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(h|ms|m|us|s)")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


def docker_size(text: str | None) -> int | None:
    """Bytes of 16g, 512mb or 1073741824; None when it is none."""
    found = DOCKER_SIZE.fullmatch((text or "").strip())
    return int(float(found[1]) * BINARY[found[2].lower()]) if found else None


def quantity(text: str | None) -> float | None:
    """The number of 16Gi, 500m or 1e3; None when it is none."""
    found = QUANTITY.fullmatch((text or "").strip())
    if found is None:
        return None
    number = float(found[1])
    if found[2]:
        return float(number * 1024 ** ("kMGTPE".index(found[2]) + 1))
    if found[3]:
        return float(number * SI[found[3]])
    return float(number * 10 ** int(found[4] or 0))


def kubernetes_size(text: str | None) -> int | None:
    value = quantity(text.replace("Ki", "ki") if text else None)
    return None if value is None else int(value)


def go_time(text: str | None) -> float | None:
    """Seconds of 1m30s; None when it is none."""
    text = (text or "").strip()
    if not text or GO_TIME.sub("", text):
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in GO_TIME.findall(text))
