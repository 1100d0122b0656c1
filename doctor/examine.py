"""From a command line to subjects: the live machine, a snapshot, or files that people have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from infer_doctor.cluster.memo import NodeSubject, Shared, getter, give_heads
from infer_doctor.cluster.reading import ReadNode
from infer_doctor.engine import Subject, run
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.environment import Question
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.hub_access import Online
from infer_doctor.facts.interpreter import read as read_interpreter
from infer_doctor.facts.locate import NotAnInterpreter, locate
from infer_doctor.facts.nodes import Node, Nodes
from infer_doctor.host import Capture, Host, Unavailable
from infer_doctor.launch.command import all_of as launches_of
from infer_doctor.launch.model import Launch
from infer_doctor.live import LiveHost
from infer_doctor.model import CheckResult, Missing, Redaction
from infer_doctor.redact import Redactor
from infer_doctor.registry import Check, Registry
from infer_doctor.snapshot import BadSnapshot, Snapshot
from infer_doctor.snapshot import read as read_snapshot
from infer_doctor.targets import Found, NoTarget, beside, snapshot_text

__all__ = ["Examination", "NoTarget"]

NO_LAUNCH = "no launch was given"
BESIDE_A_LOG = "not in a log; give --snapshot of its machine"

ELSEWHERE = "the machine that will run this launch is not known"

CLUSTER = "cluster"
"""The subject that stands for all machines together."""

OF_THE_HOST = (Gpus, Driver)
"""What a container sees as its host has it; all else is the image's or the container's own."""


class Examination:
    """The subjects of one run and what masks their report."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        *,
        replayed: Sequence[Snapshot] = (),
        about: Mapping[str, Collection[type]] | None = None,
    ) -> None:
        self.subjects = subjects
        self._replayed = replayed
        self._about = about or {}
        """By subject: only checks that need one of these facts are run."""
        self._redactor: Redactor | None = None

    @classmethod
    def of(
        cls,
        registry: Registry,
        *,
        targets: Sequence[Found] = (),
        snapshot: str | None = None,
        cluster: Sequence[ReadNode] = (),
        command: Sequence[str] = (),
        python: str | None = None,
        deep: bool = False,
        host: LiveHost | None = None,
        engine: EngineQuestion | None = None,
        online: bool = False,
    ) -> Examination:
        """What the command line names, `host` for this machine; raises NoTarget or BadSnapshot."""
        parts = _Parts(registry, python, deep, host, engine, online)
        given = launches_of(command, beside(".")) if command else []
        machines = [found for found in targets if found.machine]
        if snapshot is not None:
            if machines:
                raise NoTarget(f"give either --snapshot or {machines[0].target}, not both")
            machines = [Found(target=snapshot, snapshot=snapshot_text(snapshot))]
        if cluster and machines:
            raise NoTarget(f"give either snapshots or {machines[0].target}, not both")
        launches = [(found, row) for found in targets for row in found.launches]
        for found in machines:
            parts.machine(found, "host" if len(machines) == 1 else found.target)
        parts.nodes(cluster)
        if machines and (python or deep) and all(found.facts is not None for found in machines):
            option = "--python" if python else "--deep"
            raise NoTarget(f"{option} asks a machine; {machines[0].target} is only a file of one")
        if not machines and not cluster and (given or not targets):
            parts.live()
        parts.command(given)
        for found, row in launches:
            parts.launch(found, row, alone=len(machines) + len(cluster) <= 1)
        for found in targets:
            if found.code is not None:
                parts.code(found)
            if found.log is not None:
                parts.log(found)
        if not parts.live_used and not machines and not cluster and (python or deep):
            option = "--python" if python else "--deep"
            raise NoTarget(f"{option} asks this machine; {targets[0].target} is for another one")
        parts.cluster(given)
        return cls(parts.subjects, replayed=parts.replayed, about=parts.about)

    def run(self, checks: Iterable[Check], *, named: bool = False) -> list[CheckResult]:
        """The results of all subjects, subject by subject.

        `named`: these checks were asked for by name, so they run where they have nothing to judge.
        """
        wanted = list(checks)
        results: list[CheckResult] = []
        together = any(subject.name == CLUSTER for subject in self.subjects)
        for subject in self.subjects:
            kinds = self._about.get(subject.name)
            some = [c for c in wanted if named or kinds is None or subject.depends(c.needs, kinds)]
            if together:
                some = [c for c in some if _of_all(c) == (subject.name == CLUSTER)]
            results += subject.run(some) if isinstance(subject, NodeSubject) else run(some, subject)
        for subject in self.subjects:
            if isinstance(subject, NodeSubject):
                subject.told()
        return results

    @property
    def captures(self) -> list[Capture]:
        """Everything the hosts answered, in order."""
        hosts = (subject.host for subject in self.subjects)
        found = (capture for host in hosts if host for capture in host.captures.values())
        return list({id(capture): capture for capture in found}.values())

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


class _Parts:
    """The subjects while they are put together."""

    def __init__(
        self,
        registry: Registry,
        python: str | None,
        deep: bool,
        host: LiveHost | None,
        engine: EngineQuestion | None = None,
        online: bool = False,
    ) -> None:
        self.subjects: list[Subject] = []
        self.replayed: list[Snapshot] = []
        self.about: dict[str, Collection[type]] = {}
        self.live_used = False
        self._registry = registry
        self._python = python
        self._deep = deep
        self._host = host
        self._engine = engine
        self._online = online
        self._machines: list[Subject] = []
        self._rows: dict[str, ReadNode] = {}
        self._free = False
        """Whether the machine that stands first has no launch yet."""

    def machine(self, found: Found, name: str) -> None:
        """A snapshot, or a file of a machine as a subject that holds only its facts."""
        if found.snapshot is not None:
            replayed = _snapshot(found.snapshot, found.target)
            self.replayed.append(replayed)
            subject = self._on(name, replayed.host, replayed.python)
        else:
            subject = Subject(found.target, self._registry, host=None, whole=True)
            for kind, fact in (found.facts or {}).items():
                subject.give(kind, fact)
        self._add(subject)
        self._machines.append(subject)
        self._free = True

    def nodes(self, rows: Sequence[ReadNode]) -> None:
        """The machines of a cluster, which share what is equal."""
        shared = Shared(self._registry)
        for row in rows:
            self.replayed.append(row.snapshot)
            question = Question(python=self._python or row.snapshot.python)
            subject = NodeSubject(
                row.name,
                self._registry,
                snapshot=row.snapshot,
                shared=shared,
                silence=row.silence,
                given=[shared.one(question), *row.given],
                deep=self._deep,
                whole=True,
                replayed=True,
            )
            self._add(subject)
            self._machines.append(subject)
            self._rows[subject.name] = row

    def cluster(self, given: Sequence[Launch]) -> None:
        """What is judged over all machines, when there are several."""
        if not self._rows:
            return
        give_heads(self._machines)
        subject = Subject(CLUSTER, self._registry, host=None, unasked="told of each node")
        self._add(subject)
        nodes = (
            Node(
                name=row.name,
                get=getter(row, self._rows[row.name].silence, self._rows[row.name].given),
                key=self._rows[row.name].snapshot.key,
                machine=self._rows[row.name].snapshot.machine,
                silence=self._rows[row.name].silence,
            )
            for row in self._machines
        )
        subject.give(Nodes, Nodes(nodes=tuple(nodes)))
        if given:
            subject.give(Launch, given[0])

    def live(self) -> None:
        """This machine."""
        if self._host is None:
            raise NoTarget("there is nothing to examine")
        if self._python is not None and not self.live_used:
            _require_interpreter(self._host, Question(python=self._python))
        self._add(self._on("host", self._host, None))
        self._machines.append(self.subjects[-1])
        self.live_used = self._free = True

    def command(self, given: Sequence[Launch]) -> None:
        """What stands after `--`: it runs on each machine that is examined."""
        for machine in list(self._machines):
            for index, row in enumerate(given):
                if row.machine == "another":
                    self._contained(row, machine)
                    if row.engine == "tensorrt-llm":
                        from infer_doctor.trtllm.mounted import give_mounted

                        give_mounted(self.subjects[-1], machine.host)
                elif index == 0:
                    machine.give(Launch, row)
                    self._free = False
                else:
                    self._beside(row, machine)

    def launch(self, found: Found, row: Launch, *, alone: bool) -> None:
        """A launch of a file: on the machine that is given, else here, else on an unknown one."""
        machine = self._machines[0] if self._machines and alone else None
        if row.machine == "another":
            self._contained(row, machine)
        elif machine is None and self._host is not None:
            if self._python is not None and not self.live_used:
                _require_interpreter(self._host, Question(python=self._python))
            subject = self._on(row.name, self._host, None)
            self._add(subject)
            subject.give(Launch, row)
            self._machines.append(subject)
            self.live_used = True
        elif machine is not None:
            self._beside(row, machine)
        else:
            self._contained(row, None)

    def code(self, found: Found) -> None:
        """What Python code does, without a machine."""
        from infer_doctor.facts.client_code import ClientCode

        subject = Subject(f"{found.target}: code", self._registry, host=None, whole=True)
        self._add(subject, (ClientCode,))
        subject.give(ClientCode, found.code)

    def log(self, found: Found) -> None:
        """A log; what is known of the machine beside it may raise or refute its cause."""
        from infer_doctor.logs.subject import ABOUT, JOINED, give

        subject = Subject(found.target, self._registry, host=None, unasked=BESIDE_A_LOG)
        self._add(subject, ABOUT)
        give(subject, found.log or {})
        for kind in JOINED if self._machines else ():
            subject.give(kind, self._machines[0].get(kind))

    def _on(self, name: str, host: Host, python: str | None) -> Subject:
        return Subject(
            name,
            self._registry,
            host=host,
            given=[Question(python=self._python or python)],
            deep=self._deep,
            whole=True,
            replayed=not isinstance(host, LiveHost),
        )

    def _add(self, subject: Subject, about: Collection[type] | None = None) -> None:
        subject.give(Launch, Missing(fact="Launch", reason=NO_LAUNCH, kind="absent"))
        if self._engine is not None:
            subject.give(EngineQuestion, self._engine)
        if self._online:
            subject.give(Online, Online())
        self.subjects.append(subject)
        if about is not None:
            self.about[subject.name] = about

    def _beside(self, row: Launch, machine: Subject) -> None:
        """A further launch on a machine whose own checks have run: only what a launch decides."""
        if machine.host is None:
            self._contained(row, machine)
            return
        subject = self._on(row.name, machine.host, None)
        self._add(subject, (Launch,))
        subject.give(Launch, row)

    def _contained(self, row: Launch, machine: Subject | None) -> None:
        """A launch whose environment is not that of a machine here: at most the GPUs are."""
        subject = Subject(row.name, self._registry, host=None, unasked=ELSEWHERE, whole=True)
        self._add(subject, (Launch,))
        subject.give(Launch, row)
        if machine is not None:
            for kind in OF_THE_HOST:
                subject.give(kind, machine.get(kind))


def _of_all(check: Check) -> bool:
    """Whether a check judges all machines together."""
    return any(need.fact is Nodes for need in check.needs)


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
    return _snapshot(snapshot_text(path), path)


def _snapshot(text: str, path: str) -> Snapshot:
    try:
        return read_snapshot(text)
    except BadSnapshot as error:
        raise BadSnapshot(f"{path}: {error}") from None
