"""Findings -> groups: for each finding the first fix that can be done, and why another is not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import COMMAND_LINE
from infer_doctor.model import Action, AnyAction, Edit, Finding, Fix, SetVariable
from infer_doctor.report import rank

State = Literal["ready", "held", "start", "manual"]
"""ready: done with --apply; held: only with --unsafe; start: another command line or variable, shown;
manual: for people."""


@frozen
class Group:
    """A fix and the findings it is for. `others` are the alternatives that were not chosen."""

    fix: Fix
    findings: tuple[Finding, ...]
    state: State
    others: tuple[Fix, ...] = ()

    @property
    def checks(self) -> tuple[str, ...]:
        """Ids of the checks, each once."""
        return tuple(dict.fromkeys(finding.check for finding in self.findings))


def can_do(action: AnyAction) -> bool:
    """Whether the doctor can carry it out itself."""
    if isinstance(action, Edit):
        return action.file != COMMAND_LINE
    return not isinstance(action, (Action, SetVariable))


def groups(findings: Iterable[Finding], *, unsafe: bool, here: Collection[str]) -> list[Group]:
    """One group for each fix that is chosen, worst finding first.

    `here` names the subjects of this machine: on another nothing but a file in our hands is changed.
    """
    chosen: dict[Fix, list[Finding]] = {}
    others: dict[Fix, list[Fix]] = {}
    for finding in sorted(findings, key=rank):
        if not finding.fixes:
            continue
        fix = _choose(finding, unsafe, here)
        chosen.setdefault(fix, []).append(finding)
        rest = [other for other in finding.fixes if other is not fix]
        others.setdefault(fix, []).extend(rest)
    return [
        Group(
            fix=fix,
            findings=tuple(found),
            state=_state(fix, found[0], unsafe, here),
            others=tuple(dict.fromkeys(others[fix])),
        )
        for fix, found in chosen.items()
    ]


ORDER: Mapping[State, int] = {"ready": 0, "held": 1, "start": 1, "manual": 2}
"""What is chosen first; where two are equal the check says which is better."""


def _choose(finding: Finding, unsafe: bool, here: Collection[str]) -> Fix:
    """The first that can be done now, else the first with --unsafe or another start, else any."""
    states = [_state(fix, finding, unsafe, here) for fix in finding.fixes]
    best = min(range(len(states)), key=lambda number: ORDER[states[number]])
    return finding.fixes[best]


def _state(fix: Fix, finding: Finding, unsafe: bool, here: Collection[str]) -> State:
    if fix.safety == "manual":
        return "manual"
    free = fix.safety == "safe" or unsafe
    steps = [action for action in fix.actions if not _is_note(action)]
    if steps and all(map(can_do, steps)):
        local = finding.subject in here or all(isinstance(step, Edit) for step in steps)
        if local:
            return "ready" if free else "held"
        return "manual"
    starts = [step for step in steps if isinstance(step, (Edit, SetVariable))]
    if not steps or len(starts) < len(steps):
        return "manual"
    return "start" if free else "held"


def _is_note(action: AnyAction) -> bool:
    return isinstance(action, Action) and action.kind == "text"
