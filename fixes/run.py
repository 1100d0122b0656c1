"""Fixes for what a run showed: whoever starts the engine or asks it makes the change."""

from __future__ import annotations

from infer_doctor.model import Action, Fix


def cure(id: str, title: str, *commands: str, why: str | None = None, restarts: bool = True) -> Fix:
    """A change of the launch, which restarts the engine, or of the client; `commands` only look."""
    return Fix(
        id=f"run-{id}",
        title=title,
        safety="manual",
        restarts=restarts,
        why=why,
        actions=tuple(Action(kind="command", text=command) for command in commands),
    )
