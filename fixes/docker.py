"""Fixes for containers that are seen from outside."""

from __future__ import annotations

from infer_doctor.model import Action, Fix
from infer_doctor.units import gib


def more_memory(name: str, limit: int | None) -> Fix:
    """A larger limit, or none."""
    if limit is None:
        title = f"Give the host of {name} more memory, or start less on it"
        return Fix(id="more-memory", title=title, safety="manual", restarts=True)
    return Fix(
        id="more-memory",
        title=f"Make {name} anew with more than {gib(limit)} (--memory), or without a limit",
        safety="manual",
        restarts=True,
        why="the limit counts pinned and shared memory too",
        actions=(
            Action(kind="command", text=f"docker update --memory 0 --memory-swap -1 {name}"),
            Action(kind="text", text="in Compose: deploy: {resources: {limits: {memory: ...}}}"),
        ),
    )


def see_log(name: str) -> Fix:
    """The whole log, and what it means."""
    return Fix(
        id=f"diagnose-{name}",
        title=f"Read the cause out of the log of {name}",
        safety="manual",
        restarts=False,
        actions=(Action(kind="command", text=f"infer-doctor diagnose --container {name}"),),
    )


def stop_restarts(name: str) -> Fix:
    """End the loop, then look."""
    return Fix(
        id=f"stop-restarts-{name}",
        title=f"Stop {name}, let it restart at most three times, and read the cause out of its log",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="command", text=f"docker stop {name}"),
            Action(kind="command", text=f"docker update --restart on-failure:3 {name}"),
            Action(kind="command", text=f"infer-doctor diagnose --container {name}"),
        ),
    )


def pull_for(image: str, machine: str) -> Fix:
    """The image for the daemon's processor."""
    return Fix(
        id=f"pull-for-{machine}",
        title=f"Pull the image for linux/{machine}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"docker pull --platform linux/{machine} {image}"),),
    )


def secret_at_start(name: str) -> Fix:
    """A secret belongs to the start, not to the image."""
    return Fix(
        id=f"secret-at-start-{name.lower().replace('_', '-')}",
        title=f"Renew {name}, build the image without it, and give it at the start (-e {name})",
        safety="manual",
        restarts=True,
        why="a build needs it at most as a secret mount: RUN --mount=type=secret",
    )
