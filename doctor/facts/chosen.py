"""Which GPUs the engine would take: what CUDA_VISIBLE_DEVICES leaves, and the ranks of the launch."""

from __future__ import annotations

from infer_doctor.facts.gpu import Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import all_ranks
from infer_doctor.registry import probe

ORDER = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"


@frozen
class ChosenGpus:
    """NVML's indices of the GPUs that the engine would take, in its order."""

    indices: tuple[int, ...]


@probe
def chosen_gpus(
    gpus: Gpus, environ: Environ | None, visible: VisibleDevices | None, launch: Launch | None
) -> ChosenGpus:
    """Absent when nothing chooses; not known when an entry is wrong or CUDA's order may be another."""
    ranks = _ranks(launch)
    if visible is None and ranks is None:
        raise Absent("neither CUDA_VISIBLE_DEVICES nor a launch chooses GPUs")
    mixed = len({gpu.name for gpu in gpus.gpus}) > 1
    if mixed and (environ is None or environ.variables.get(ORDER) != BY_BUS):
        raise Unavailable("GPUs of several models, which CUDA numbers in its own order")
    indices: list[int | None] = [gpu.index for gpu in gpus.gpus]
    if visible is not None:
        indices = [index_of(entry, gpus) for entry in visible.entries]
    known = [index for index in indices if index is not None]
    if len(known) < len(indices):
        raise Unavailable("an entry of CUDA_VISIBLE_DEVICES is no GPU")
    return ChosenGpus(indices=tuple(known[:ranks]))


def _ranks(launch: Launch | None) -> int | None:
    """Of all replicas; a command that is no engine's own may take what it likes."""
    return all_ranks(launch) if launch is not None and launch.engine is not None else None


def index_of(entry: str, gpus: Gpus) -> int | None:
    """The GPU that an entry names: an index, or the beginning of exactly one UUID."""
    if entry.isascii() and entry.isdigit():
        return int(entry) if int(entry) < len(gpus.gpus) else None
    found = [gpu.index for gpu in gpus.gpus if (gpu.uuid or "").startswith(entry)]
    return found[0] if entry.startswith("GPU-") and len(found) == 1 else None


def left_out(index: int, chosen: ChosenGpus | None) -> bool:
    """Whether the engine surely does not take this GPU."""
    return chosen is not None and index not in chosen.indices
