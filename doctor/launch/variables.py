"""The environment of an engine: the machine's own under what its launch sets.

A container or pod inherits nothing, so a launch that is for another machine has only its own.
"""

from __future__ import annotations

from infer_doctor.facts.machine import Environ
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch


def own(launch: Launch | None) -> dict[str, str]:
    """What the launch itself sets, the last value of each; one that it does not tell is left out."""
    last = {row.name: row.value for row in launch.environment} if launch is not None else {}
    return {name: value for name, value in last.items() if value is not None}


def of_engine(launch: Launch | None, environ: Environ | None, *deciding: str) -> dict[str, str]:
    """All variables whose value is known; raises Unavailable when a deciding one is not told."""
    if hidden := untold(launch, *deciding):
        raise Unavailable(hidden)
    here = launch is None or launch.machine == "local"
    inherited = environ.variables if environ is not None and here else {}
    written = {row.name for row in launch.environment} if launch is not None else set()
    found = {name: value for name, value in inherited.items() if name not in written}
    return {**found, **own(launch)}


def untold(launch: Launch | None, *names: str) -> str | None:
    """Why these variables are not known: the launch sets one to a value that it does not tell."""
    last = {row.name: row.value for row in launch.environment} if launch is not None else {}
    name = next((name for name in names if name in last and last[name] is None), None)
    return f"the launch sets {name} to a value that it does not tell" if name else None


def variable(launch: Launch, name: str) -> str | None:
    """What the launch itself sets; the last one counts.

    Raises Unavailable when it is set to something that is not known, or in a way that is not read.
    """
    found = next((row for row in reversed(launch.environment) if row.name == name), None)
    if found is not None:
        if found.value is None:
            raise Unavailable(f"the launch sets {name} to {found.source or 'what is not known'}")
        return found.value
    others = next((row.source for row in launch.environment if row.name == "*"), None)
    if others is not None:
        raise Unavailable(f"{others}, which may set {name}, was not read")
    if any(name in word.text for word in (*launch.program, *launch.words)):
        raise Unavailable(f"the launch sets {name} in a way that was not read")
    return None
