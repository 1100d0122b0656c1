"""What one node does for a driver elsewhere: look at itself and hand back a masked snapshot."""

from __future__ import annotations

from typing import Any

from infer_doctor._version import VERSION
from infer_doctor.cluster import collect
from infer_doctor.examine import Examination
from infer_doctor.live import LiveHost
from infer_doctor.model import Missing
from infer_doctor.registry import load
from infer_doctor.snapshot import write


def snapshot_of_this_node(settings: dict[str, Any]) -> tuple[str, collect.Part | None]:
    """The snapshot with all that checks look at; names and addresses masked with the driver's key.

    With it comes what the node brings to a meeting with the others, which holds its real addresses and
    goes no further than to them.
    """
    with LiveHost(settings["limit_s"]) as host:
        registry = load()
        examination = Examination.of(
            registry,
            command=settings["command"],
            python=settings["python"],
            deep=settings["deep"],
            host=host,
        )
        examination.run(registry.checks.values())
        for subject in examination.subjects:
            collect.look(subject, cluster=True)
        part = collect.part_of(examination.subjects[0]) if settings["deep"] else None
    text = write(
        examination.captures,
        version=VERSION,
        created_at=settings["created_at"],
        python=settings["python"],
        key=settings["key"],
        machine=collect.machine_mark(),
    )
    return text, None if isinstance(part, Missing) else part
