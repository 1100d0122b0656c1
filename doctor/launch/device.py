"""The GPUs that will run a launch, as far as their compute capability goes."""

from __future__ import annotations

from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.host import Unavailable

Capability = tuple[int, int]


def weakest(capabilities: GpuCapabilities, chosen: ChosenGpus | None) -> Capability:
    """The least capability of those that the engine takes; of all when that is not known."""
    rows = capabilities.capabilities
    indices = chosen.indices if chosen is not None else tuple(rows)
    found = [rows[index] for index in indices if index in rows]
    if not found or len(found) < len(indices):
        raise Unavailable(capabilities.gaps[0] if capabilities.gaps else "no capability is known")
    return min(found)


def written(capability: Capability) -> str:
    """8.9"""
    return f"{capability[0]}.{capability[1]}"
