"""A check of our own: swap is on, which makes a loaded engine stall."""
from collections.abc import Iterator
from dataclasses import dataclass

from infer_doctor.host import Host
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check, probe

@dataclass(frozen=True, kw_only=True)
class Swap:
    rows: tuple[str, ...]

@probe
def swap(host: Host) -> Swap:
    return Swap(rows=tuple(host.read("/proc/swaps").splitlines()[1:]))

@check("host-swap-on", severity="info", category="host_ram", since="1.0")
def swap_on(swap: Swap) -> Iterator[Finding]:
    """Swap is on.

    ## Why it matters
    Weights that were swapped out come back at the speed of the disk.
    ## How it decides
    /proc/swaps lists at least one file or partition.
    ## Fix safety
    Manual: `swapoff -a`.
    """
    for row in swap.rows:
        yield Finding(about=row.split()[0], message=f"swap is on: {row.split()[0]}",
                      evidence=(Evidence(source="/proc/swaps", excerpt=row),))
