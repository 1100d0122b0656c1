"""Fixes for what a log says: whoever started the engine changes its launch, so all are manual."""

from __future__ import annotations

from dataclasses import replace

from infer_doctor.model import Action, Fix


def cure(id: str, title: str, *commands: str, why: str | None = None, text: str = "") -> Fix:
    """A change of the launch or of what surrounds it; `commands` look, they change nothing."""
    actions = [Action(kind="command", text=command) for command in commands]
    if text:
        actions.append(Action(kind="text", text=text))
    return Fix(
        id=f"log-{id}", title=title, safety="manual", restarts=True, why=why, actions=tuple(actions)
    )


def confirm_first(fix: Fix, how: str) -> Fix:
    """The same fix, with what would prove the cause before anything is changed."""
    step = Action(kind="text", text=f"confirm first: {how}")
    return replace(fix, actions=(step, *fix.actions))
