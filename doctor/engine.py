"""Wanted checks -> wanted facts -> results. Contains crashes and times every check."""

from __future__ import annotations

import time
import traceback
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.model import CheckResult, Finding, Missing
from infer_doctor.registry import Check, Need, Probe, Registry

OTHER_FORM = (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, AssertionError)
"""What a probe raises when an answer in somebody's snapshot is not what its operation returns."""


class NotApplicable(Exception):
    """Raised by a check whose facts prove that there is nothing to judge."""


class Subject:
    """One host, its engine environment and at most one launch, with the facts found so far.

    `given` are facts that did not come from the host: the launch, what a foreign file holds.
    `host` is None when there is no machine to ask; `unasked` then says why. `whole`: what is only ever
    given (registry.given) and was not is not there; else it may be elsewhere.
    """

    def __init__(
        self,
        name: str,
        registry: Registry,
        *,
        host: Host | None,
        given: Iterable[object] = (),
        deep: bool = False,
        unasked: str = "not in this file",
        replayed: bool = False,
        whole: bool = False,
    ) -> None:
        self.name = name
        self.host = host
        self._probes = registry.probes
        self._deep = deep
        self._unasked = unasked
        self.replayed = replayed
        self._whole = whole
        self._known: dict[type, object] = {type(fact): fact for fact in given}

    @property
    def facts(self) -> Mapping[type, object]:
        """All facts asked for so far; what could not be had is a Missing."""
        return self._known

    def give(self, kind: type, fact: object) -> None:
        """Set a fact of this kind, or the Missing that stands for it."""
        self._known[kind] = fact

    def get(self, fact: type) -> Any:
        """The fact, or Missing."""
        if fact not in self._known:
            self._known[fact] = Missing(
                fact=fact.__name__, reason="it depends on itself", kind="crashed"
            )
            self._known[fact] = self._make(fact)
        return self._known[fact]

    def _make(self, fact: type) -> object:
        def missing(reason: str, kind: Any = "unavailable") -> Missing:
            return Missing(fact=fact.__name__, reason=reason, kind=kind)

        probe = self._probes.get(fact)
        reason = getattr(fact, "infer_doctor_given", None)
        if probe is None and self._whole and reason:
            return missing(reason, "absent")
        if probe is None:
            return missing(self._unasked)
        if probe.deep and not self._deep:
            return missing("needs --deep" if self.host is not None else self._unasked)
        arguments = self._arguments(probe)
        if isinstance(arguments, Missing):
            return missing(arguments.reason, arguments.kind)
        if self.host is None and arguments and all(v is None for v in arguments.values()):
            return missing(self._unasked)  # all needs are optional, and there is nobody to ask
        return self.called(probe, arguments)

    def called(self, probe: Probe, arguments: dict[str, object]) -> object:
        """What the probe makes of its arguments: a fact, or the Missing that stands for it."""

        def missing(reason: str, kind: Any = "unavailable") -> Missing:
            return Missing(fact=probe.provides.__name__, reason=reason, kind=kind)

        try:
            return probe.function(**arguments)
        except Unavailable as error:
            return missing(error.reason)
        except Absent as error:
            gap = _gap(arguments.values())
            return missing(gap) if gap else missing(str(error), "absent")
        except Exception as error:
            if self.replayed and isinstance(error, OTHER_FORM):
                return missing(f"the snapshot holds a value of another form: {error}")
            return missing(crash_line(error), "crashed")

    def _arguments(self, probe: Probe) -> dict[str, object] | Missing:
        arguments: dict[str, object] = {}
        for need in probe.needs:
            if need.fact is Host:
                if self.host is None and not need.optional:
                    return Missing(fact="Host", reason=self._unasked, kind="unavailable")
                arguments[need.name] = self.host
                continue
            value = self.get(need.fact)
            if isinstance(value, Missing) and not need.optional:
                return value
            arguments[need.name] = None if isinstance(value, Missing) else value
        return arguments

    def slowness(self, needs: Iterable[Need]) -> int:
        """How many slow probes these facts come from; what is known takes no time."""
        slow = 0
        seen: set[type] = set(self._known)
        waiting = [need.fact for need in needs]
        while waiting:
            fact = waiting.pop()
            probe = self._probes.get(fact)
            if fact in seen or probe is None:
                continue
            slow += probe.slow
            seen.add(fact)
            waiting += [need.fact for need in probe.needs]
        return slow

    def prepare(self, checks: Iterable[Check]) -> None:
        """Make what slow probes are made of, so that their questions can be on the way."""
        waiting = [need for check in checks if self._open(check.needs) for need in check.needs]
        seen: set[type] = set(self._known)
        while waiting:
            fact = waiting.pop().fact
            probe = self._probes.get(fact)
            if fact in seen or probe is None or not self._open(probe.needs):
                continue
            seen.add(fact)
            waiting += probe.needs
            for need in probe.needs if probe.slow and (self._deep or not probe.deep) else ():
                if need.fact is not Host and not self.slowness([need]):
                    self.get(need.fact)

    def _open(self, needs: Iterable[Need]) -> bool:
        """Whether nothing that is required is known to be missing."""
        return not any(
            isinstance(self._known.get(need.fact), Missing) for need in needs if not need.optional
        )

    def depends(self, needs: Iterable[Need], kinds: Collection[type]) -> bool:
        """Whether one of these facts is needed to make what is required; with a host, to ask, it is
        enough that it is taken into account."""
        waiting = list(needs)
        if self.host is not None and any(need.fact in kinds for need in waiting):
            return True
        seen: set[type] = set()
        while waiting:
            need = waiting.pop()
            if need.optional or need.fact in seen:
                continue
            if need.fact in kinds:
                return True
            seen.add(need.fact)
            probe = self._probes.get(need.fact)
            waiting += probe.needs if probe else ()
        return False

    def needs(self, needs: Iterable[Need]) -> tuple[dict[str, object], list[Missing]]:
        """The arguments for a check, and the required facts that are missing."""
        arguments: dict[str, object] = {}
        gaps: list[Missing] = []
        for need in needs:
            value = self.get(need.fact)
            if not isinstance(value, Missing):
                arguments[need.name] = value
            elif need.optional and value.kind != "crashed":
                arguments[need.name] = None
            else:
                gaps.append(value)
        return arguments, gaps


def run(checks: Iterable[Check], subject: Subject) -> list[CheckResult]:
    """One result for each check, in the order given; those with slow facts are decided last."""
    wanted = list(checks)
    subject.prepare(wanted)
    results = {
        check.id: run_check(check, subject)
        for check in sorted(wanted, key=lambda check: subject.slowness(check.needs))
    }
    return [results[check.id] for check in wanted]


def run_check(check: Check, subject: Subject) -> CheckResult:
    """Decide one check; whatever it raises is the outcome of this check alone."""
    arguments, gaps = subject.needs(check.needs)
    began = time.perf_counter()

    def result(outcome: Any, reason: str | None, findings: Iterable[Finding] = ()) -> CheckResult:
        return CheckResult(
            check=check.id,
            subject=subject.name,
            outcome=outcome,
            reason=reason,
            duration_ms=round((time.perf_counter() - began) * 1000, 3),
            findings=tuple(findings),
        )

    for kind, outcome in (("crashed", "crashed"), ("absent", "not_applicable")):
        for missing in gaps:
            if missing.kind == kind:
                return result(outcome, missing.reason)
    if gaps:
        return result("blocked", gaps[0].reason)
    try:
        found = [_stamp(finding, check, subject) for finding in check.function(**arguments)]
    except NotApplicable as proof:
        gap = _gap(arguments.values())
        return result("blocked", gap) if gap else result("not_applicable", str(proof))
    except Unavailable as error:
        return result("blocked", error.reason)
    except Exception as error:
        if subject.replayed and isinstance(error, OTHER_FORM):
            return result("blocked", f"the snapshot holds a value of another form: {error}")
        return result("crashed", crash_line(error))
    if found:
        return result("failed", None, found)
    gap = _gap(arguments.values())
    return result("blocked", gap) if gap else result("passed", None)


def _gap(facts: Iterable[object]) -> str | None:
    """What could not be read of these facts: they prove neither health nor absence then."""
    partial = (getattr(fact, "gaps", ()) for fact in facts)
    return next((gaps[0] for gaps in partial if gaps), None)


def _stamp(finding: Finding, check: Check, subject: Subject) -> Finding:
    """Fill in what the check's declaration says.

    The fingerprint names the check and the affected thing and no number, so that it stays the same
    from run to run and on every host.
    """
    identity = f"{check.id}\0{finding.about}"
    return replace(
        finding,
        check=check.id,
        subject=subject.name,
        severity=finding.severity or check.severity,
        category=finding.category or check.category,
        fingerprint=_fingerprint(identity),
    )


def _fingerprint(identity: str) -> str:
    """FNV-1a, 64 bits (RFC 9923): a name, no secret, and hashlib takes 10 ms to load OpenSSL."""
    value = 0xCBF29CE484222325
    for byte in identity.encode("utf-8", "backslashreplace"):
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def crash_line(error: Exception) -> str:
    """What was raised and where, in one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = "/".join(frame.filename.split("/")[-2:])
    return f"{type(error).__name__}: {error} ({place}:{frame.lineno}); please report it"
