"""Equal things are decided once: probes and checks of many replayed machines.

A probe is a function of facts and of the answers it gets, so its result is found again by the facts
and, question by question, by the captures that answered and the variables that were looked at. `cluster/reading.py` makes equal captures one
object, and equal facts become one object here, so identity stands for equality. A thousand like nodes
cost little more than one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.engine import Subject, run_check
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.machine import Environ, Identity
from infer_doctor.facts.nodes import Getter, HeadNode
from infer_doctor.host import Capture, Host, key_of
from infer_doctor.model import CheckResult, Missing
from infer_doctor.registry import Check, Probe, Registry
from infer_doctor.snapshot import Snapshot

LOOKED_BACK = 8
"""Earlier facts of a probe that a new one is compared with; what differs on more nodes than that is
their own, such as a GPU's number."""


class Shared:
    """What was made so far, over all nodes of one run."""

    def __init__(self, registry: Registry) -> None:
        checks = [check.function.__module__ for check in registry.checks.values()]
        probes = [probe.function.__module__ for probe in registry.probes.values()]
        self.own = all(name.startswith("infer_doctor.") for name in (*checks, *probes))
        """Whether none of a plugin is there, which may read what ours do not: the host name."""
        self.checked: dict[tuple[object, ...], CheckResult] = {}
        self._trees: dict[tuple[object, ...], _Step] = {}
        self._facts: dict[Probe, list[object]] = {}
        self._given: dict[object, object] = {}
        self._identities: dict[str, Capture] = {}
        self._kept: list[object] = []
        """What identities stand for must stay alive."""

    def fact(self, probe: Probe, arguments: dict[str, object], subject: NodeSubject) -> object:
        """What the probe makes of these arguments, made only where it is new."""
        asked = _Asked(subject.host, arguments)
        start = (probe.function, *(id(v) for v in arguments.values() if not _is_asked(v)))
        step = self._trees.get(start)
        while step is not None and step.question is not None:
            step = step.next.get(asked.answer(step.question))
        if step is not None:
            return step.fact
        fact = self._one(probe, subject.make(probe, asked.arguments()))
        self._kept.append(arguments)
        self._remember(start, asked, fact)
        return fact

    def one(self, given: Any) -> Any:
        """The equal one of what is given to each node."""
        return self._given.setdefault(given, given)

    def without_name(self, capture: Capture) -> Capture:
        """The capture of `identity` without the host name: then it is equal on like nodes."""
        value = {**(capture.value or {}), "hostname": ""}
        text = json.dumps([value, capture.error, capture.version], sort_keys=True)
        return self._identities.setdefault(text, replace(capture, value=value))

    def _one(self, probe: Probe, fact: object) -> object:
        """The equal fact of another node, if there is one."""
        known = self._facts.setdefault(probe, [])
        for other in known:
            if type(other) is type(fact) and other == fact:
                return other
        known.insert(0, fact)
        self._kept += known[LOOKED_BACK:]
        del known[LOOKED_BACK:]
        return fact

    def _remember(self, start: tuple[object, ...], asked: _Asked, fact: object) -> None:
        step = self._trees.setdefault(start, _Step())
        for question in asked.questions:
            step.question = question
            step = step.next.setdefault(asked.answer(question), _Step())
        step.fact = fact


class _Step:
    """A question and what follows from each answer; the last one has the fact."""

    __slots__ = ("fact", "next", "question")

    def __init__(self) -> None:
        self.question: str | None = None
        self.next: dict[object, _Step] = {}
        self.fact: object = None


def _is_asked(value: object) -> bool:
    """Whether a need answers questions, so that not all of it has to be equal."""
    return isinstance(value, (Host, Environ))


class _Asked:
    """The host and the variables of one node, with a note of what of them was looked at."""

    def __init__(self, host: Host | None, arguments: dict[str, object]) -> None:
        self._host = host
        self._arguments = arguments
        environ = next((v for v in arguments.values() if isinstance(v, Environ)), None)
        self._variables: Mapping[str, str] = environ.variables if environ is not None else {}
        self._seen: dict[str, None] = {}

    @property
    def questions(self) -> list[str]:
        """Each once, in the order in which they were asked."""
        return list(self._seen)

    def answer(self, question: str) -> object:
        """What stands for the answer: equal answers, equal things."""
        kind, _, name = question.partition(" ")
        if kind == CAPTURE:
            return id(self._host.captures.get(name)) if self._host is not None else None
        return self._variables.get(name) if kind == VARIABLE else tuple(self._variables)

    def arguments(self) -> dict[str, object]:
        """The arguments of the probe, with listeners in place of the host and the variables."""
        made = dict(self._arguments)
        for name, value in made.items():
            if isinstance(value, Host):
                made[name] = _ListeningHost(value, self._seen)
            elif isinstance(value, Environ):
                listening = _Listening(value.variables, self._seen)
                made[name] = replace(value, variables=listening)
        return made


CAPTURE, VARIABLE, NAMES = "capture", "variable", "names"


class _ListeningHost(Host):
    """Notes the questions to a host."""

    def __init__(self, host: Host, seen: dict[str, None]) -> None:
        super().__init__()
        self.captures = host.captures
        self._host = host
        self._seen = seen

    def ask(self, operation: str, *, limit_s: float | None = None, **arguments: Any) -> Any:
        self._seen[f"{CAPTURE} {key_of(operation, arguments)}"] = None
        return self._host.ask(operation, limit_s=limit_s, **arguments)


class _Listening(Mapping[str, str]):
    """Notes which variables are looked at; whoever walks over them looks at all their names."""

    def __init__(self, variables: Mapping[str, str], seen: dict[str, None]) -> None:
        self._variables = variables
        self._seen = seen

    def __getitem__(self, name: str) -> str:
        self._seen[f"{VARIABLE} {name}"] = None
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        self._seen[NAMES] = None
        return iter(self._variables)

    def __len__(self) -> int:
        self._seen[NAMES] = None
        return len(self._variables)


class NodeSubject(Subject):
    """A replayed machine among many: shares with the others what is equal."""

    def __init__(
        self,
        name: str,
        registry: Registry,
        *,
        snapshot: Snapshot,
        shared: Shared,
        silence: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, registry, host=snapshot.host, **options)
        self._shared = shared
        self._silence = silence
        self._hostname: str | None = None
        captures = snapshot.host.captures
        key = key_of("identity", {})
        found = captures[key].value if shared.own and key in captures else None
        if found is not None and isinstance(found.get("hostname"), str):
            self._hostname = found["hostname"]
            captures[key] = shared.without_name(captures[key])

    def told(self) -> None:
        """Put the host name back where the report reads it."""
        identity = self.facts.get(Identity)
        if self._hostname is not None and isinstance(identity, Identity):
            self.give(Identity, replace(identity, hostname=self._hostname))

    def called(self, probe: Probe, arguments: dict[str, object]) -> object:
        return self._shared.fact(probe, arguments, self)

    def make(self, probe: Probe, arguments: dict[str, object]) -> object:
        """As for a machine alone."""
        return super().called(probe, arguments)

    def run(self, checks: Iterable[Check]) -> list[CheckResult]:
        """One result for each check; what was decided on the same facts is taken over."""
        if self._silence is not None:
            return [self._undecided(check, self._silence) for check in checks]
        checked, name = self._shared.checked, self.name
        marks = _Marks(self, self._shared)
        results: list[CheckResult] = []
        for check in checks:
            key = (check.id, *[marks[need.fact] for need in check.needs])
            first = checked.get(key)
            if first is None:
                first = checked[key] = run_check(check, self)
                results.append(first)
                continue
            results.append(
                CheckResult(
                    check=first.check,
                    subject=name,
                    outcome=first.outcome,
                    reason=first.reason,
                    duration_ms=0.0,
                    findings=tuple(replace(finding, subject=name) for finding in first.findings)
                    if first.findings
                    else (),
                )
            )
        return results

    def _undecided(self, check: Check, why: str) -> CheckResult:
        return CheckResult(
            check=check.id, subject=self.name, outcome="blocked", reason=why, duration_ms=0.0
        )


class _Marks(dict[type, int]):
    """What stands for each fact of a node in the key of a result; the fact is asked for once."""

    def __init__(self, subject: Subject, shared: Shared) -> None:
        super().__init__()
        self._subject = subject
        self._shared = shared

    def __missing__(self, kind: type) -> int:
        value = self._subject.get(kind)
        self[kind] = mark = id(self._shared.one(value) if isinstance(value, Missing) else value)
        return mark


SILENT = "it is silent (cluster-node-silent)"


def getter(subject: Subject, silence: str | None, given: Iterable[object]) -> Getter:
    """The facts of a node; of one that was silent only what was given, and one reason for the rest."""
    if silence is None:
        return subject.get
    known = {type(fact): fact for fact in given}

    def get(kind: type) -> Any:
        return known.get(kind, Missing(fact=kind.__name__, reason=SILENT, kind="unavailable"))

    return get


def give_heads(subjects: Sequence[Subject]) -> None:
    """Tell the nodes that provably have no GPU how many others have some."""
    gpus = [subject.get(Gpus) for subject in subjects]
    have = sum(not isinstance(found, Missing) for found in gpus)
    for subject, found in zip(subjects, gpus, strict=True):
        if have and isinstance(found, Missing) and found.kind == "absent":
            subject.give(HeadNode, HeadNode(others=have))
