"""The documentation of a check is its docstring."""

from __future__ import annotations

import inspect

from infer_doctor.registry import Check


def markdown(check: Check) -> str:
    """The docstring under a title, with severity, category and what the check needs to know."""
    needs = ", ".join(
        f"{need.fact.__name__}{' (optional)' if need.optional else ''}" for need in check.needs
    )
    return (
        f"# {check.id}\n\n"
        f"{inspect.cleandoc(check.function.__doc__ or '')}\n\n"
        f"severity {check.severity}, category {check.category}, since {check.since}; "
        f"decides on: {needs}\n"
    )
