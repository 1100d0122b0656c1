"""Facts of the machine that a launch is for."""

from __future__ import annotations

from infer_doctor.model import Action, Fix


def judge_for_machine(target: str) -> Fix:
    """Take a snapshot there and judge the launch with it."""
    return Fix(
        id="judge-for-machine",
        title="Take a snapshot on that machine and judge the launch with it",
        safety="manual",
        restarts=False,
        actions=(
            Action(kind="command", text="infer-doctor snapshot -o host.json"),
            Action(kind="command", text=f"infer-doctor check {target} --snapshot host.json"),
        ),
    )
