"""Results -> Report: order, verdict, counts, the primary finding, the list of fixes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from infer_doctor.config import policy
from infer_doctor.engine import Subject
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_options import EngineQuestion
from infer_doctor.facts.environment import Interpreter
from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.machine import Identity, OperatingSystem
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.launch.model import Launch
from infer_doctor.model import (
    CheckResult,
    Counts,
    Engine,
    Finding,
    Fix,
    Missing,
    Redaction,
    Report,
    Severity,
    Target,
    Tool,
    Verdict,
)
from infer_doctor.redact import Redactor

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
CONFIDENCES = ("certain", "likely", "possible")

AREAS = (
    "driver",
    "container",
    "docker",
    "gpu",
    "cuda",
    "nccl",
    "torch",
    "engine",
    "trt",
    "env",
    "toolchain",
    "host",
    "cache",
    "launch",
    "model",
    "memory",
    "manifest",
    "security",
    "client",
    "log",
    "server",
    "run",
    "cluster",
)
"""The order of causes: what stands first makes what follows fail too."""

MANY = 10
"""Subjects from which on their parts are masked once each, by what they share."""

WHOLE_DEPTH = 4
"""Report, facts, subject, fact, field: so deep a part is first looked at as a whole, for most hold
nothing to mask, and a look at each of thousands of strings takes 50 ms."""

Facts = dict[str, Any]
F = TypeVar("F")


def rank(finding: Finding) -> tuple[int, int, int]:
    """Worst first, surest first, cause before effect."""
    area = finding.check.partition("-")[0]
    return (
        SEVERITIES.index(finding.severity or "info"),
        CONFIDENCES.index(finding.confidence),
        AREAS.index(area) if area in AREAS else len(AREAS),
    )


def verdict_of(
    results: Sequence[CheckResult], fail_on: Severity, required: Collection[str]
) -> Verdict:
    """fail: a finding at or above `fail_on`; unknown: a required check could not be decided."""
    limit = SEVERITIES.index(fail_on)
    for result in results:
        for finding in result.findings:
            if SEVERITIES.index(finding.severity or "info") <= limit and not finding.suppressed:
                return "fail"
    if any(row.check in required and row.outcome in ("blocked", "crashed") for row in results):
        return "unknown"
    return "pass"


def _once(results: Sequence[CheckResult]) -> list[CheckResult]:
    """Without rows that say the same again: two branches of a script may start the same container."""
    seen = set()
    kept = []
    for row in results:
        key = (row.check, row.subject, row.findings)
        if not row.findings or key not in seen:
            kept.append(row)
        seen.add(key)
    return kept


def build(
    *,
    command: str,
    version: str,
    started_at: str,
    duration_s: float,
    subjects: Sequence[Subject],
    results: Sequence[CheckResult],
    fail_on: Severity,
    required: Collection[str],
    launch: Sequence[str] | None,
    redactor: Redactor,
    redactions: tuple[Redaction, ...],
    plan: dict[str, Any] | None = None,
) -> Report:
    """The masked report of one run."""
    results = _once(_decided(results))
    findings = sorted((f for row in results for f in row.findings), key=rank)
    fixes, renamed = _fixes(findings)
    outcomes = [row.outcome for row in results]
    counting = [finding for finding in findings if not finding.suppressed]
    severities = [finding.severity for finding in counting]
    counts = Counts(
        **{severity: severities.count(severity) for severity in SEVERITIES},
        passed=outcomes.count("passed"),
        failed=outcomes.count("failed"),
        not_applicable=outcomes.count("not_applicable"),
        blocked=outcomes.count("blocked"),
        crashed=outcomes.count("crashed"),
    )
    report = Report(
        tool=Tool(name="infer-doctor", version=version),
        command=command,
        started_at=started_at,
        duration_s=duration_s,
        target=_target(subjects, launch),
        verdict=verdict_of(results, fail_on, required),
        counts=counts,
        primary=renamed[counting[0]] if counting else None,
        results=tuple(
            dataclasses.replace(
                row, findings=tuple(renamed[f] for f in sorted(row.findings, key=rank))
            )
            if row.findings
            else row
            for row in results
        ),
        fixes=fixes,
        plan=plan,
        redactions=redactions,
        facts=_facts_of(subjects),
    )
    if len(subjects) >= MANY:
        from infer_doctor.cluster.masking import mask_many

        masked: Report = mask_many(report, redactor)
    else:
        masked = mask(report, redactor)
    return dataclasses.replace(masked, redactions=_most(redactions, redactor.redactions))


def _most(*lists: Sequence[Redaction]) -> tuple[Redaction, ...]:
    """The larger number of each kind: some values stand only in the report, others in its captures."""
    counts: dict[str, int] = {}
    for row in (row for rows in lists for row in rows):
        counts[row.kind] = max(counts.get(row.kind, 0), row.count)
    return tuple(Redaction(kind=kind, count=counts[kind]) for kind in sorted(counts))


def _decided(results: Sequence[CheckResult]) -> list[CheckResult]:
    """The results with each finding marked that the settings of this run do not count."""
    if not policy.suppressions and not policy.baseline:
        return list(results)
    return [
        dataclasses.replace(
            row,
            findings=tuple(
                dataclasses.replace(finding, suppressed=policy.why_not(finding))
                for finding in row.findings
            ),
        )
        for row in results
    ]


def _fixes(findings: Sequence[Finding]) -> tuple[tuple[Fix, ...], dict[Finding, Finding]]:
    """Each different fix once, ids made unique; and the findings with those ids."""
    ids: dict[Fix, str] = {}
    taken: set[str] = set()
    for finding in findings:
        for fix in finding.fixes:
            if fix in ids:
                continue
            number, name = 2, fix.id
            while name in taken:
                name, number = f"{fix.id}-{number}", number + 1
            taken.add(name)
            ids[fix] = name
    unique = {fix: dataclasses.replace(fix, id=name) for fix, name in ids.items()}
    renamed = {
        finding: dataclasses.replace(finding, fixes=tuple(unique[fix] for fix in finding.fixes))
        for finding in findings
    }
    return tuple(unique.values()), renamed


def _target(subjects: Sequence[Subject], launch: Sequence[str] | None) -> Target:
    """What was examined, out of the facts that the checks asked for."""
    subject = subjects[0]
    facts = subject.facts

    def known(kind: type[F]) -> F | None:
        fact = facts.get(kind)
        return fact if isinstance(fact, kind) else None

    host: dict[str, Any] = {"subject": subject.name}
    if identity := known(Identity):
        host |= {
            "hostname": identity.hostname,
            "kernel": identity.kernel,
            "machine": identity.machine,
            "container": identity.container,
        }
    if system := known(OperatingSystem):
        host["os"] = system.name
    if gpus := known(Gpus):
        host["gpus"] = [gpu.name for gpu in gpus.gpus]
    if driver := known(Driver):
        host["driver"] = driver.version
        host["cuda"] = ".".join(map(str, driver.cuda)) if driver.cuda else None
    if interpreter := known(Interpreter):
        host["python"] = interpreter.version
        host["environment"] = interpreter.prefix
    if torch := known(TorchBuild):
        host["torch"] = torch.version
    engine = known(EngineQuestion) or known(EngineFact)
    words = launch or (of_file.command if (of_file := known(Launch)) else ())
    return Target(
        host=host,
        engine=Engine(name=engine.name, version=engine.version) if engine else None,
        launch=tuple(words) or None,
    )


def _facts_of(subjects: Sequence[Subject]) -> Facts:
    """What was found, by subject and name of the fact; fields marked `report=False` stay out.

    A fact that several subjects share is one object here too.
    """
    known: dict[int, Any] = {}
    found: Facts = {}
    for subject in subjects:
        own: Facts = {}
        for kind, fact in subject.facts.items():
            if isinstance(fact, Missing):
                own[kind.__name__] = {"missing": fact.reason}
            elif dataclasses.is_dataclass(fact):
                if id(fact) not in known:
                    known[id(fact)] = _plain(fact)
                own[kind.__name__] = known[id(fact)]
        found[subject.name] = dict(sorted(own.items()))
    return found


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.metadata.get("report", True)
        }
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list, frozenset, set)):
        items: Iterable[Any] = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [_plain(item) for item in items]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def mask(value: Any, redactor: Redactor, depth: int = 0) -> Any:
    """The same dataclasses with every string masked."""
    if depth <= WHOLE_DEPTH and not redactor.touches(value):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(
            value, **{name: mask(item, redactor, depth + 1) for name, item in fields.items()}
        )
    if isinstance(value, tuple):
        return tuple(mask(item, redactor, depth + 1) for item in value)
    if isinstance(value, dict) and depth <= WHOLE_DEPTH and "hostname" not in value:
        return {
            redactor.text(name): mask(item, redactor, depth + 1) for name, item in value.items()
        }
    return redactor.value(value)
