"""From a command line to subjects: the live machine, a snapshot, or files that people have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infer_doctor.engine import Subject, run
from infer_doctor.facts.environment import Question
from infer_doctor.facts.interpreter import read as read_interpreter
from infer_doctor.facts.locate import NotAnInterpreter, locate
from infer_doctor.host import Capture, Unavailable
from infer_doctor.launch.command import read as read_command
from infer_doctor.launch.model import Launch
from infer_doctor.live import LiveHost
from infer_doctor.model import CheckResult, Missing, Redaction
from infer_doctor.redact import Redactor
from infer_doctor.registry import Check, Registry
from infer_doctor.snapshot import BadSnapshot, Snapshot
from infer_doctor.snapshot import read as read_snapshot
from infer_doctor.targets import NoTarget, facts_of, is_snapshot, read_text

__all__ = ["Examination", "NoTarget"]

NO_LAUNCH = "no launch was given"


class Examination:
    """The subjects of one run and what masks their report."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        replayed: Sequence[Snapshot] = (),
    ) -> None:
        self.subjects = subjects
        self._replayed = replayed
        self._redactor: Redactor | None = None

    @classmethod
    def of(
        cls,
        registry: Registry,
        *,
        targets: Sequence[str] = (),
        snapshot: str | None = None,
        command: Sequence[str] = (),
        python: str | None = None,
        deep: bool = False,
        host: LiveHost | None = None,
    ) -> Examination:
        """What the command line names, `host` for this machine; raises NoTarget or BadSnapshot."""
        launch = read_command(command) if command else None
        if targets and snapshot is not None:
            raise NoTarget("give either --snapshot or targets, not both")
        if snapshot is not None:
            targets = [snapshot]
        if targets:
            replayed: list[Snapshot] = []
            subjects = []
            for target in dict.fromkeys(targets):
                if snapshot is None and not is_snapshot(target):
                    subjects.append(_foreign(registry, target, launch))
                    continue
                replayed.append(load_snapshot(target))
                name = "host" if len(targets) == 1 else target
                subjects.append(_replay(registry, name, replayed[-1], python, launch, deep))
            return cls(subjects, replayed=replayed)
        if host is None:
            raise NoTarget("there is nothing to examine")
        question = Question(python=python)
        if python is not None:
            _require_interpreter(host, question)
        subject = Subject("host", registry, host=host, given=[question], deep=deep)
        _give(subject, launch)
        return cls([subject])

    def run(self, checks: Iterable[Check]) -> list[CheckResult]:
        """The results of all subjects, subject by subject."""
        wanted = list(checks)
        return [result for subject in self.subjects for result in run(wanted, subject)]

    @property
    def captures(self) -> list[Capture]:
        """Everything the hosts answered, in order."""
        hosts = (subject.host for subject in self.subjects)
        return [capture for host in hosts if host for capture in host.captures.values()]

    @property
    def redactor(self) -> Redactor:
        """The masks for what was captured; ask after the run."""
        if self._redactor is None:
            self._redactor = Redactor(self.captures)
        return self._redactor

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        """What was masked; a replay repeats what its snapshot says."""
        if not self._replayed:
            return self.redactor.redactions
        counts: dict[str, int] = {}
        for row in (row for snapshot in self._replayed for row in snapshot.redactions):
            counts[row.kind] = counts.get(row.kind, 0) + row.count
        return tuple(Redaction(kind=kind, count=count) for kind, count in counts.items())


def _require_interpreter(host: LiveHost, question: Question) -> None:
    """Raise NoTarget when `--python` names nothing that can be examined.

    What cannot be known, such as a path that does not answer, is left to the facts.
    """
    try:
        read_interpreter(host, locate(host, question))
    except NotAnInterpreter as error:
        raise NoTarget(f"--python {error}") from None
    except Unavailable as error:
        if error.code not in ("timeout", "died"):
            raise NoTarget(f"--python {question.python}: {error.reason}") from None


def load_snapshot(path: str) -> Snapshot:
    """Read a snapshot file; raises NoTarget or BadSnapshot."""
    text = read_text(path)
    try:
        return read_snapshot(text)
    except BadSnapshot as error:
        raise BadSnapshot(f"{path}: {error}") from None


def _replay(
    registry: Registry,
    name: str,
    replayed: Snapshot,
    python: str | None,
    launch: Launch | None,
    deep: bool,
) -> Subject:
    """The machine of a snapshot as a subject."""
    question = Question(python=python or replayed.python)
    subject = Subject(
        name, registry, host=replayed.host, given=[question], deep=deep, replayed=True
    )
    _give(subject, launch)
    return subject


def _give(subject: Subject, launch: Launch | None) -> None:
    """The launch as a fact, or the proof that there is none to judge."""
    none = Missing(fact="Launch", reason=NO_LAUNCH, kind="absent")
    subject.give(Launch, none if launch is None else launch)


def _foreign(registry: Registry, target: str, launch: Launch | None) -> Subject:
    """A file as a subject: only the facts it holds."""
    subject = Subject(target, registry, host=None, unasked="not in this file")
    _give(subject, launch)
    for kind, fact in facts_of(target).items():
        subject.give(kind, fact)
    return subject
