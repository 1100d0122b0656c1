"""What every step can do: be recorded, be done, tell its state, be taken back."""

from __future__ import annotations

from typing import Literal, Protocol

from infer_doctor.fixing.journal import Journal, Record, Run

State = Literal["old", "new", "half", "changed"]
"""old: as before the step; new: as after it; half: a package installer, or its undo, was killed at work;
changed: neither, somebody else changed it since."""


class Step(Protocol):
    """One step that was looked at and can be done: nothing is written before `do`."""

    @property
    def text(self) -> str:
        """What it does, in one line."""

    def record(self, journal: Journal) -> Record:
        """Save what taking it back needs; what the journal says of it."""

    def do(self, record: Record) -> Record:
        """Do it; what more the journal must know. Raises Refused or OSError when it failed."""


class Stage(Protocol):
    """What has to be made first, beside the files that it will replace: a download, a conversion."""

    @property
    def text(self) -> str:
        """What it does, in one line."""

    def steps(self, journal: Journal) -> list[Step]:
        """Make it; the steps that put it in its place."""


class Kind(Protocol):
    """What a kind of recorded steps can tell and undo; a module."""

    def state(self, run: Run, record: Record) -> State: ...

    def take_back(self, run: Run, record: Record) -> None: ...

    def difference(self, run: Run, record: Record) -> str:
        """Before, after and now, for a step that was changed since."""

    def forget(self, record: Record) -> None:
        """Let go of what was kept outside the journal, once it stands in its place again."""


def kind_of(record: Record) -> Kind:
    """The module of a recorded step."""
    from infer_doctor.fixing import asides, packages, processes, replacing

    modules: dict[str, Kind] = {
        "replace": replacing,
        "aside": asides,
        "packages": packages,
        "process": processes,
    }
    return modules[record["kind"]]
