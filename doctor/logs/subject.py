"""The facts of a log as a subject's, and its measurements as the report's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.engine import Subject
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuMemory
from infer_doctor.facts.log import ColdStart, EngineLog, Serving
from infer_doctor.facts.owners import GpuOwners
from infer_doctor.model import Engine, Missing

ABOUT = (EngineLog, ColdStart, Serving)
"""What a log's subject is about: only checks of these run on it."""

JOINED = (GpuOwners, GpuMemory, Driver)
"""Facts of a machine that may raise or refute what its log says."""


def give(subject: Subject, facts: Mapping[type, object]) -> None:
    """Give a subject what a log tells; what the log proves not to be there does not apply."""
    for kind, fact in facts.items():
        subject.give(kind, fact)
    if ColdStart not in facts:
        reason = "no start became ready in this log"
        subject.give(ColdStart, Missing(fact="ColdStart", reason=reason, kind="absent"))


def engine_of(subject: Subject) -> Engine | None:
    """The engine that wrote the log, as far as its lines say."""
    log = subject.facts.get(EngineLog)
    if not isinstance(log, EngineLog) or log.engine is None:
        return None
    return Engine(name=log.engine, version=log.version)


def measured(subjects: Sequence[Subject]) -> dict[str, Any] | None:
    """The cold starts of the logs, by subject."""
    found = {}
    for subject in subjects:
        start = subject.facts.get(ColdStart)
        if isinstance(start, ColdStart) and start.complete:
            found[subject.name] = {
                "seconds_to_ready": start.seconds,
                "unattributed_s": start.unattributed,
                "phases": [
                    {"name": row.name, "seconds": row.seconds, "printed": row.printed}
                    for row in start.phases
                ],
            }
    return {"cold_start": found} if found else None
