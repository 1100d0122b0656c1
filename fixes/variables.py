"""Fixes for environment variables: they act on the next start."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.fixes.environment import quoted
from infer_doctor.model import Fix, SetVariable


def set_variable(name: str, value: str | None) -> SetVariable:
    """For the shell or program that starts the engine next; None takes the variable out."""
    line = f"unset {name}" if value is None else f"export {name}={quoted(value)}"
    return SetVariable(text=line, name=name, value=value)


def unset(name: str) -> Fix:
    """Start without a variable."""
    return Fix(
        id=f"unset-{name.lower().replace('_', '-')}",
        title=f"Start without {name}",
        safety="safe",
        restarts=True,
        actions=(set_variable(name, None),),
    )


def exempt_localhost(names: Sequence[str]) -> Fix:
    """Let requests to this machine pass by the proxy."""
    value = ",".join(names)
    return Fix(
        id="exempt-localhost",
        title="Exempt this machine from the proxy, for clients and for the engine",
        safety="safe",
        restarts=True,
        actions=(set_variable("no_proxy", value), set_variable("NO_PROXY", value)),
    )
