"""Fixes for environment variables: they act on the next start."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.model import Action, Fix


def unset(name: str) -> Fix:
    """Start without a variable."""
    return Fix(
        id=f"unset-{name.lower().replace('_', '-')}",
        title=f"Start without {name}",
        safety="safe",
        restarts=True,
        actions=(Action(kind="command", text=f"unset {name}"),),
    )


def exempt_localhost(names: Sequence[str]) -> Fix:
    """Let requests to this machine pass by the proxy."""
    value = ",".join(names)
    return Fix(
        id="exempt-localhost",
        title="Exempt this machine from the proxy, for clients and for the engine",
        safety="safe",
        restarts=True,
        actions=(Action(kind="command", text=f"export no_proxy={value} NO_PROXY={value}"),),
    )
