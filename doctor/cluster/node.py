"""What one node does for a driver elsewhere: look at itself and hand back a masked snapshot."""

from __future__ import annotations

from typing import Any

from infer_doctor._version import VERSION
from infer_doctor.cluster import collect
from infer_doctor.examine import Examination
from infer_doctor.live import LiveHost
from infer_doctor.registry import load
from infer_doctor.snapshot import write


def snapshot_of_this_node(settings: dict[str, Any]) -> str:
    """The snapshot with all that checks look at; names and addresses masked with the driver's key."""
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
    return write(
        examination.captures,
        version=VERSION,
        created_at=settings["created_at"],
        python=settings["python"],
        key=settings["key"],
        machine=collect.machine_mark(),
    )
