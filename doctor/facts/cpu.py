"""The processor, as far as an engine that computes on it cares."""

from __future__ import annotations

import re
from dataclasses import field

from infer_doctor.facts.engine import EngineFact
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

CPU_INFO = "/proc/cpuinfo"

FIRST_BYTES = 16_384
"""The first processor takes 1.5 kB; machines with hundreds of them have megabytes."""


@frozen
class CpuFeatures:
    """The first processor of /proc/cpuinfo: the kernel lists what all of them have."""

    model: str
    features: frozenset[str] = field(metadata={"report": False})
    """Words of the line "flags" (x86) or "Features" (ARM)."""


@probe
def cpu_features(host: Host, engine: EngineFact) -> CpuFeatures:
    """Asked only for an engine that computes on the CPU."""
    if engine.build is None:
        raise Unavailable(f"whether this {engine.name} is built for the CPU cannot be told")
    if engine.build != "cpu":
        raise Absent(f"the installed {engine.name} is a {engine.build} build")
    return parse_cpuinfo(host.ask("read", path=CPU_INFO, limit=FIRST_BYTES)["text"])


def parse_cpuinfo(text: str) -> CpuFeatures:
    """Raises Unavailable when the first processor has no line of features."""
    first = text.partition("\n\n")[0]
    found = re.search(r"^(?:flags|Features)[ \t]*:[ \t]*(\S.*)$", first, re.M)
    if found is None:
        raise Unavailable(f"{CPU_INFO} has no line flags or Features")
    model = re.search(r"^(?:model name|CPU part)[ \t]*:[ \t]*(\S.*)$", first, re.M)
    return CpuFeatures(
        model=model[1].strip() if model else "this CPU", features=frozenset(found[1].split())
    )
