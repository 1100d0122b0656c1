"""What the image of this container requires of the driver: NVIDIA_REQUIRE_CUDA and its like.

The grammar and the rules are those of nvidia-container-toolkit: internal/requirements/constraints/
factory.go (spaces separate alternatives, commas conditions of one) and internal/config/image/
cuda_image.go (all NVIDIA_REQUIRE_* must hold, but for NVIDIA_REQUIRE_JETPACK*).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from infer_doctor.facts.machine import Environ
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent
from infer_doctor.registry import probe
from infer_doctor.versions import release

PREFIX = "NVIDIA_REQUIRE_"

CONDITION = re.compile(r"([a-z]+)(!=|<=|>=|=|<|>)(.+)")

VERSIONS = ("cuda", "driver", "arch")


@frozen
class ImageRequirements:
    """Variable -> its expression, as the image was built with."""

    expressions: Mapping[str, str]
    gaps: tuple[str, ...] = ()


@probe
def image_requirements(environ: Environ) -> ImageRequirements:
    """Absent when no such variable is set."""
    found = {
        name: value.strip()
        for name, value in environ.variables.items()
        if name.startswith(PREFIX) and not name.startswith(f"{PREFIX}JETPACK") and value.strip()
    }
    if not found:
        raise Absent(f"no {PREFIX}* is set: the image requires nothing")
    return ImageRequirements(expressions=found, gaps=environ.gaps)


def meets(expression: str, known: Mapping[str, str]) -> bool | None:
    """Whether one alternative holds; None when that depends on what is not known."""
    answers = [_all(part, known) for part in expression.split()]
    return True if True in answers else None if None in answers or not answers else False


def _all(alternative: str, known: Mapping[str, str]) -> bool | None:
    answers = [_one(part, known) for part in alternative.split(",") if part]
    return False if False in answers else None if None in answers else True


def _one(condition: str, known: Mapping[str, str]) -> bool | None:
    found = CONDITION.fullmatch(condition)
    if found is None:
        return None
    name, sign, wanted = found.groups()
    if name not in (*VERSIONS, "brand"):
        return True  # the toolkit passes over what it does not know
    value = known.get(name)
    if value is None:
        return None
    if name == "brand":
        return (value == wanted) is (sign == "=")
    order = _compare(value, wanted)
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[sign]


def _compare(left: str, right: str) -> int:
    """By numbers; 580 is 580.0.0."""
    a, b = release(left, 4), release(right, 4)
    return (a > b) - (a < b)


def without_exceptions(expression: str) -> str:
    """The alternatives that name no brand: "cuda>=13.0" of an expression of 70 alternatives."""
    plain = [part for part in expression.split() if "brand" not in part]
    return " or ".join(plain) or expression[:60]
