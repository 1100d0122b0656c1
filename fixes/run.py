"""Fixes for what a run showed: whoever starts the engine or asks it makes the change."""

from __future__ import annotations

from infer_doctor.model import Action, Fix


def cure(id: str, title: str, *commands: str, why: str | None = None) -> Fix:
    """A change of the launch or the client; `commands` look, they change nothing."""
    return Fix(
        id=f"run-{id}",
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=tuple(Action(kind="command", text=command) for command in commands),
    )
