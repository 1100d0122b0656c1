"""Carry out groups: the journal first, then the step; a group whole or not at all."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from infer_doctor.engine import Subject
from infer_doctor.fixing.actions import prepared
from infer_doctor.fixing.drafts import Drafts
from infer_doctor.fixing.files import Refused
from infer_doctor.fixing.journal import Journal, Record, Run, read
from infer_doctor.fixing.plan import Group
from infer_doctor.fixing.steps import Stage, Step
from infer_doctor.fixing.undo import above, drop_kept, require_own, take_back
from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Launch
from infer_doctor.model import (
    Action,
    CheckResult,
    Edit,
    EndProcess,
    Finding,
    SetVariable,
    WriteFile,
)

Result = Literal["applied", "refused", "declined", "cured", "not cured", "taken back", "undecided"]

TEXT = (Action, Edit, SetVariable, WriteFile)
"""Actions that can be done once more, on other text, at no cost."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C as the exception that takes a group back, instead of the end of everything at once."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@frozen
class Outcome:
    """What came of a group; `why` for what did not go as planned."""

    group: Group
    result: Result
    why: str | None = None


def moves(before: Iterable[Subject], after: Iterable[Subject]) -> dict[str, str | None]:
    """What each launch of a file is called after a fix.

    Many are called by their line, which a fix moves; their order stays. Where a file holds fewer or
    more of them than before, none can be said to be the same.
    """
    old, new = _by_file(before), _by_file(after)
    found: dict[str, str | None] = {}
    for file, names in old.items():
        others = new.get(file, [])
        same = len(names) == len(others)
        found |= zip(names, others, strict=True) if same else dict.fromkeys(names)
    return found


def _by_file(subjects: Iterable[Subject]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for subject in subjects:
        launch = subject.facts.get(Launch)
        if isinstance(launch, Launch):
            found.setdefault(launch.place.file, []).append(subject.name)
    return found


class Applying:
    """One run of `fix --apply`. Its journal begins with the first step."""

    def __init__(self, folder: str, at: str, command: list[str], drafts: Drafts) -> None:
        self._folder = folder
        self._at = at
        self._command = command
        self._drafts = drafts
        self.journal: Journal | None = None
        self._count = 0
        self._steps: dict[int, list[int]] = {}
        self._groups: list[Group] = []
        self._went: dict[int, str] = {}

    def look(self, group: Group) -> list[str]:
        """What would be done, after a look at everything that may be in the way; or Refused."""
        steps, _ = prepared(group.fix.actions, self._drafts, self._folder)
        return [step.text for step in steps]

    def do(self, group: Group) -> Outcome:
        """All steps of a group. When one fails, those before it are taken back."""
        try:
            steps, texts = prepared(group.fix.actions, self._drafts, self._folder)
        except (Refused, OSError) as error:
            return Outcome(group=group, result="refused", why=_words(error))
        numbers: list[int] = []
        try:
            if self.journal is None:
                self.journal = Journal.begin(self._folder, self._at, self._command)
            for step in steps:
                self._do(step, group, numbers)
        except (Refused, OSError) as error:
            why = _words(error)
            try:
                self._take_back(numbers)
            except (Refused, OSError) as second:
                why += f"; and taking back what was done failed: {_words(second)}"
            return Outcome(group=group, result="refused", why=why)
        except BaseException:  # Ctrl-C: a group is whole or not there
            self._take_back(numbers)
            raise
        self._drafts.take(texts)
        self._steps[id(group)] = numbers
        if not any(group is other for other in self._groups):
            self._groups.append(group)
        return Outcome(group=group, result="applied")

    def _do(self, step: Step | Stage, group: Group, numbers: list[int]) -> None:
        assert self.journal is not None
        if hasattr(step, "steps"):
            for made in step.steps(self.journal):
                self._do(made, group, numbers)
            return
        self._count += 1
        number = self._count
        record: Record = step.record(self.journal)
        record |= {"event": "step", "n": number, "fix": group.fix.id, "title": group.fix.title}
        self.journal.write(record)
        numbers.append(number)
        more = step.do(record)
        self.journal.write({"event": "done", "n": number, "more": more})

    def _run(self) -> Run:
        assert self.journal is not None
        return read(self._folder, self.journal.id)

    def _take_back(self, numbers: Collection[int]) -> None:
        if numbers and self.journal is not None:
            take_back(self._run(), self.journal, set(numbers), forced=True)

    def judged(
        self,
        outcomes: Sequence[Outcome],
        results: Sequence[CheckResult],
        moved: Mapping[str, str | None],
    ) -> list[Outcome]:
        """What a second look says of those that were applied."""
        return [
            self.judge(row, results, moved) if row.result == "applied" else row for row in outcomes
        ]

    def all_back(self, outcomes: Sequence[Outcome], why: str) -> list[Outcome]:
        """As before, where there could be no second look."""
        rows = [
            self.taken_back(row, why) if row.result == "applied" else row
            for row in reversed(outcomes)
        ]
        return rows[::-1]

    def judge(
        self,
        outcome: Outcome,
        results: Sequence[CheckResult],
        moved: Mapping[str, str | None] = MappingProxyType({}),
    ) -> Outcome:
        """What a second look at the checks says; a fix that cured nothing is taken back.

        `moved` is how a launch is called now; None is for one that is no longer there.
        """
        group = outcome.group
        if (why := self._went.get(id(group))) is not None:  # the second look came before that
            return self._told(outcome, "taken back", why)
        rows = {(row.check, row.subject): row for row in results}
        left: list[Finding] = []
        idle: list[str] = []
        for finding in group.findings:
            subject = moved.get(finding.subject, finding.subject)
            row = rows.get((finding.check, subject)) if subject is not None else None
            if row is None and all(isinstance(action, TEXT) for action in group.fix.actions):
                return self.taken_back(outcome, f"{finding.subject} is no longer found")
            if row is None or row.outcome in ("blocked", "crashed"):
                reason = row.reason if row else "it was not examined again"
                return self._told(outcome, "undecided", f"{finding.check}: {reason}")
            if any(found.fingerprint == finding.fingerprint for found in row.findings):
                left.append(finding)
            if row.outcome == "not_applicable":
                idle.append(f"{finding.check} has nothing to judge any more: {row.reason}")
        if not left:
            return self._told(outcome, "cured", "; ".join(dict.fromkeys(idle)) or None)
        ends = any(isinstance(action, EndProcess) for action in group.fix.actions)
        if ends or len(left) < len(group.findings):
            return self._told(outcome, "not cured", f"still there: {left[0].message}")
        return self.taken_back(outcome, f"still there: {left[0].message}")

    def taken_back(self, outcome: Outcome, why: str) -> Outcome:
        """Without this group; what later ones did to the same files is done again without it."""
        numbers = set(self._steps[id(outcome.group)])
        try:
            later = self._above(numbers)
            every = numbers.union(*(self._steps[id(group)] for group in later))
            require_own(self._run(), every)
            self._take_back(every)
        except (Refused, OSError) as error:
            return self._told(outcome, "not cured", f"{why}; it stays: {_words(error)}")
        self._drafts.reread()
        for group in later:
            again = self.do(group)
            if again.result != "applied":
                why += f"; with it went {group.fix.title}: {again.why}"
                self._went[id(group)] = f"with {outcome.group.fix.title}: {again.why}"
        return self._told(outcome, "taken back", why)

    def _above(self, numbers: Collection[int]) -> list[Group]:
        """The later groups that stand on top of these steps, in order; raises Refused for one that
        is more than text."""
        found: list[Group] = []
        every = set(numbers)
        while True:
            wanted = above(self._run(), every)
            if not wanted:
                return sorted(found, key=lambda group: self._steps[id(group)])
            for group in self._groups:
                own = self._steps[id(group)]
                if wanted.isdisjoint(own):
                    continue
                if not all(isinstance(row, TEXT) for row in group.fix.actions):
                    raise Refused(f"on top of it stands {group.fix.title}")
                found.append(group)
                every.update(own)

    def _told(self, outcome: Outcome, result: Result, why: str | None) -> Outcome:
        if self.journal is not None:
            fix = outcome.group.fix.id
            self.journal.write({"event": "result", "fix": fix, "result": result, "why": why})
        return Outcome(group=outcome.group, result=result, why=why)

    def end(self) -> None:
        """Everything was done and looked at; what was only in the making goes."""
        if self.journal is None:
            return
        run = self._run()
        used = {step.get("kept") for step in run.left}
        drop_kept(path for path in run.keeping if path not in used)
        self.journal.write({"event": "end"})


def _words(error: Refused | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)
