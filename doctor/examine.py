"""From a command line to subjects: the live machine, a snapshot, or files that people have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from infer_doctor.engine import Subject, run
from infer_doctor.facts.environment import Question
from infer_doctor.facts.launch import launch_of
from infer_doctor.host import Capture
from infer_doctor.live import LiveHost
from infer_doctor.model import CheckResult, Redaction
from infer_doctor.redact import Redactor
from infer_doctor.registry import Check, Registry
from infer_doctor.snapshot import BadSnapshot, Snapshot
from infer_doctor.snapshot import read as read_snapshot
from infer_doctor.targets import NoTarget, facts_of, read_text

__all__ = ["Examination", "NoTarget"]


class Examination:
    """The subjects of one run and what masks their report."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        live: LiveHost | None = None,
        replayed: Snapshot | None = None,
    ) -> None:
        self.subjects = subjects
        self._live = live
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
        timeout_s: float = 20.0,
        on_wait: Callable[[], None] | None = None,
    ) -> Examination:
        """What the command line names; raises NoTarget or BadSnapshot."""
        launch = [launch_of(command)] if command else []
        if targets:
            if snapshot:
                raise NoTarget("give either --snapshot or targets, not both")
            return cls([_foreign(registry, target, launch) for target in targets])
        if snapshot is not None:
            replayed = load_snapshot(snapshot)
            question = Question(python=python or replayed.python)
            subject = Subject(
                "host", registry, host=replayed.host, given=[question, *launch], deep=deep
            )
            return cls([subject], replayed=replayed)
        host = LiveHost(timeout_s, on_wait)
        subject = Subject(
            "host", registry, host=host, given=[Question(python=python), *launch], deep=deep
        )
        return cls([subject], live=host)

    def __enter__(self) -> Examination:
        if self._live is not None:
            self._live.prefetch()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.close()

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
        return self._replayed.redactions if self._replayed else self.redactor.redactions


def load_snapshot(path: str) -> Snapshot:
    """Read a snapshot file; raises NoTarget or BadSnapshot."""
    text = read_text(path)
    try:
        return read_snapshot(text)
    except BadSnapshot as error:
        raise BadSnapshot(f"{path}: {error}") from None


def _foreign(registry: Registry, target: str, launch: Sequence[object]) -> Subject:
    """A file as a subject: only the facts it holds."""
    return Subject(
        target, registry, host=None, given=[*facts_of(target), *launch], unasked="not in this file"
    )
