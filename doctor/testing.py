"""For the authors of checks: run one check on given facts, and prove that it keeps the contract.

from infer_doctor.testing import contract, examine

def test_contract() -> None:
    contract(my_check, fires=[BadFact()], passes=[GoodFact()])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from infer_doctor.engine import Subject, run_check
from infer_doctor.model import CheckResult, Finding, Missing
from infer_doctor.registry import Check, Registry

__all__ = ["contract", "examine"]

CheckFunction = Callable[..., Iterator[Finding]]


def examine(function: CheckFunction, *facts: object) -> CheckResult:
    """The result of one check whose subject has these facts and no others."""
    return run_check(_declared(function), _subject(facts))


def contract(function: CheckFunction, *, fires: Sequence[object], passes: Sequence[object]) -> None:
    """Raise AssertionError unless the check does what every check has to do.

    It fails on `fires` with findings that name a thing and bring evidence, passes on `passes`, and
    is blocked whenever a required fact could not be had: a missing fact never passes.
    """
    check = _declared(function)
    fired = examine(function, *fires)
    assert fired.outcome == "failed", f"{check.id} does not fire: {fired.outcome} {fired.reason}"
    for finding in fired.findings:
        assert finding.message and finding.about, (
            f"{check.id}: a finding without a message or thing"
        )
        assert finding.evidence, f"{check.id}: a finding without evidence: {finding.message}"
    passed = examine(function, *passes)
    assert passed.outcome == "passed", (
        f"{check.id} does not pass: {passed.outcome} {passed.reason} "
        f"{[finding.message for finding in passed.findings]}"
    )
    for need in check.needs:
        for facts in (fires, passes):
            left = [fact for fact in facts if type(fact) is not need.fact]
            result = run_check(check, _subject(left, gap=need.fact))
            if not need.optional:
                assert result.outcome == "blocked", (
                    f"{check.id} without {need.fact.__name__}: {result.outcome}, not blocked"
                )
            else:
                assert result.outcome != "crashed", f"{check.id}: {result.reason}"


def _declared(function: CheckFunction) -> Check:
    check: Any = getattr(function, "infer_doctor_check", None)
    if not isinstance(check, Check):
        raise TypeError(f"{function!r} is not declared with @check")
    return check


def _subject(facts: Sequence[object], gap: type | None = None) -> Subject:
    subject = Subject("test", Registry(), host=None, given=facts, unasked="not given to the test")
    if gap is not None:
        subject.give(gap, Missing(fact=gap.__name__, reason="not readable", kind="unavailable"))
    return subject
