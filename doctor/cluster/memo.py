"""Equal things are decided once: probes and checks of many replayed machines.

A probe is a function of facts and of the answers it gets, so its result is found again by the facts
and, question by question, by the captures that answered. `cluster/reading.py` makes equal captures one
object, and equal facts become one object here, so identity stands for equality. A thousand like nodes
cost little more than one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.engine import Subject, run_check
from infer_doctor.facts.machine import Identity
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
        captures = subject.host.captures if subject.host is not None else {}
        start = (probe.function, *(id(v) for v in arguments.values() if not isinstance(v, Host)))
        step = self._trees.get(start)
        while step is not None and step.question is not None:
            step = step.next.get(id(captures.get(step.question)))
        if step is not None:
            return step.fact
        asked = _Asked(subject.host) if subject.host is not None else None
        fact = subject.make(
            probe,
            {name: asked if isinstance(v, Host) else v for name, v in arguments.items()},
        )
        fact = self._one(probe, fact)
        self._kept.append(arguments)
        self._remember(start, asked.questions if asked else [], captures, fact)
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

    def _remember(
        self,
        start: tuple[object, ...],
        questions: Sequence[str],
        captures: dict[str, Capture],
        fact: object,
    ) -> None:
        step = self._trees.setdefault(start, _Step())
        for question in questions:
            step.question = question
            step = step.next.setdefault(id(captures.get(question)), _Step())
        step.fact = fact


class _Step:
    """A question and what follows from each answer; the last one has the fact."""

    __slots__ = ("fact", "next", "question")

    def __init__(self) -> None:
        self.question: str | None = None
        self.next: dict[int, _Step] = {}
        self.fact: object = None


class _Asked(Host):
    """The host of one node, which notes what it is asked, each question once."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.captures = host.captures
        self._host = host
        self._seen: dict[str, None] = {}

    @property
    def questions(self) -> list[str]:
        return list(self._seen)

    def ask(self, operation: str, *, limit_s: float | None = None, **arguments: Any) -> Any:
        self._seen[key_of(operation, arguments)] = None
        return self._host.ask(operation, limit_s=limit_s, **arguments)


class NodeSubject(Subject):
    """A replayed machine among many: shares with the others what is equal."""

    def __init__(
        self, name: str, registry: Registry, *, snapshot: Snapshot, shared: Shared, **options: Any
    ) -> None:
        super().__init__(name, registry, host=snapshot.host, **options)
        self._shared = shared
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
        checked, name = self._shared.checked, self.name
        results: list[CheckResult] = []
        for check in checks:
            key: list[object] = [check.id]
            for need in check.needs:
                value = self.get(need.fact)
                missing = isinstance(value, Missing)
                key.append(value if missing else id(value))
            first = checked.get(tuple(key))
            if first is None:
                first = checked[tuple(key)] = run_check(check, self)
                results.append(first)
                continue
            found = tuple(replace(finding, subject=name) for finding in first.findings)
            results.append(
                CheckResult(
                    check=first.check,
                    subject=name,
                    outcome=first.outcome,
                    reason=first.reason,
                    duration_ms=0.0,
                    findings=found,
                )
            )
        return results
