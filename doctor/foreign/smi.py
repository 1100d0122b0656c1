"""What the outputs of nvidia-smi have in common: the words for values, and the facts of a GPU.

Formats seen: drivers 375 to 616; `man nvidia-smi`; https://docs.nvidia.com/deploy/nvidia-smi/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from infer_doctor.catalog.gpus import SOURCE, capability_of
from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import (
    EccRow,
    Gpu,
    GpuCapabilities,
    GpuEcc,
    GpuMemory,
    GpuProcess,
    GpuProcesses,
    Gpus,
    MemoryRow,
)
from infer_doctor.foreign.text import Facts
from infer_doctor.frozen import frozen
from infer_doctor.model import Evidence, Missing
from infer_doctor.units import MIB

NONE = frozenset({"N/A", "[N/A]", "Not Supported", "[Not Supported]", "None"})
"""The GPU has no such thing; anything else that is no value is an error of the driver or GPU."""

ROUNDING = 8 * MIB
"""nvidia-smi rounds every amount up to a MiB, so that the parts exceed the whole."""

DRIVER = re.compile(r"[0-9]{3,}(?:\.[0-9]+){1,2}")
CUDA = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})")
BUS_ID = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")

LOST = re.compile(r"Unable to determine the device handle for GPU.*")
"""What nvidia-smi says of a GPU that no longer answers; it then shows the others."""

COUNT = re.compile(r"[0-9]{1,18}")

GPU_FACTS = (Gpus, GpuCapabilities, GpuMemory, GpuEcc, GpuProcesses)


@frozen
class Block:
    """What a file says of one GPU, in its own words; None: it says nothing."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    mig: str | None = None
    memory: tuple[str | None, str | None, str | None, str | None] | None = None
    """Total, reserved, used, free."""
    bounds: bool = False
    """What the driver reserves is not printed, so total and free are upper bounds."""
    ecc_mode: str | None = None
    ecc: tuple[str, ...] | None = None
    """Every counter of uncorrected errors since the driver was loaded."""
    processes: tuple[GpuProcess, ...] | None = None
    process_gaps: tuple[str, ...] = ()


def driver_of(version: str | None, cuda: str | None, evidence: Evidence) -> Facts:
    """The driver, when its version can be read; newer ones add words after the number."""
    found = DRIVER.match(version or "")
    if found is None:
        return {}
    speaks = CUDA.match(cuda or "")
    return {
        Driver: Driver(
            version=found[0],
            cuda=(int(speaks[1]), int(speaks[2])) if speaks else None,
            evidence=evidence,
        )
    }


def lost_gpu(lines: Iterable[str]) -> str | None:
    """The words about a GPU that does not answer, wherever they stand."""
    found = next((match for line in lines if (match := LOST.search(line))), None)
    return f"nvidia-smi says: {found[0].strip()[:120]}" if found else None


def withheld(reason: str, kinds: Iterable[type] = GPU_FACTS) -> Facts:
    """Facts that the file names without telling them."""
    return {kind: Missing(fact=kind.__name__, reason=reason, kind="unavailable") for kind in kinds}


def gpu_facts(blocks: Sequence[Block], source: str, gaps: Sequence[str] = ()) -> Facts:
    """All that the blocks hold; `gaps` tell of GPUs that the file names and does not show."""
    facts: dict[type, object] = {}
    if any(block.name is not None for block in blocks):
        facts |= _identities(blocks, source, gaps)
    if any(block.memory is not None for block in blocks):
        rows, missing = _memory(blocks)
        facts[GpuMemory] = GpuMemory(rows=rows, source=source, gaps=(*gaps, *missing))
    if any(block.ecc is not None for block in blocks):
        errors, missing = _ecc(blocks)
        facts[GpuEcc] = GpuEcc(rows=errors, source=source, gaps=(*gaps, *missing))
    if any(block.processes is not None for block in blocks):
        facts[GpuProcesses] = GpuProcesses(
            processes=tuple(row for block in blocks for row in block.processes or ()),
            source=source,
            gaps=(
                *gaps,
                *dict.fromkeys(gap for block in blocks for gap in block.process_gaps),
                *(_silent(block, "processes") for block in blocks if block.processes is None),
            ),
        )
    return facts


def _silent(block: Block, what: str) -> str:
    return f"GPU {block.index}: its {what} are not in this file"


def _identities(blocks: Sequence[Block], source: str, gaps: Sequence[str]) -> Facts:
    found: list[Gpu] = []
    missing = list(gaps)
    known: dict[int, tuple[int, int]] = {}
    unknown = list(gaps)
    for block in blocks:
        name = block.name if block.name and not is_error(block.name) else None
        if name is None:
            missing.append(f"GPU {block.index}: Name: {block.name or 'not in this file'}")
        found.append(
            Gpu(
                index=block.index,
                name=name or "unknown GPU",
                uuid=block.uuid if (block.uuid or "").startswith("GPU-") else None,
                bus_id=bus_id(block.bus_id),
            )
        )
        capability = capability_of(name or "")
        if capability is not None:
            known[block.index] = capability
        else:
            unknown.append(f"GPU {block.index}: no compute capability is known for {name!r}")
    facts: dict[type, object] = {Gpus: Gpus(gpus=tuple(found), source=source, gaps=tuple(missing))}
    if known:
        facts[GpuCapabilities] = GpuCapabilities(
            capabilities=known, source=f"the name in {source}, {SOURCE}", gaps=tuple(unknown)
        )
    return facts


def is_error(word: str) -> bool:
    """Whether this stands where a name should: N/A, Unknown Error, ERR!, GPU is lost."""
    return word.strip("[]") in ("N/A", "ERR!", "Unknown Error") or word.startswith("GPU is lost")


def bus_id(text: str | None) -> str | None:
    """sysfs's form, 0000:00:06.0, out of nvidia-smi's 00000000:00:06.0."""
    found = BUS_ID.fullmatch(text or "")
    return f"{found[1][-4:]}:{found[2]}".lower() if found else None


def mib(word: str | None) -> int | None:
    """Bytes out of "143771 MiB" or "143771MiB"."""
    found = re.fullmatch(r"([0-9]{1,9}) ?MiB", word or "")
    return int(found[1]) * MIB if found else None


def _memory(blocks: Sequence[Block]) -> tuple[tuple[MemoryRow, ...], list[str]]:
    rows: list[MemoryRow] = []
    gaps: list[str] = []
    for block in blocks:
        row = _memory_row(block)
        if isinstance(row, str):
            gaps.append(row)
        else:
            rows.append(row)
    if any(row.bounds for row in rows):
        gaps.append("nvidia-smi's table does not say what the driver reserves; `-q` does")
    return tuple(rows), gaps


def _memory_row(block: Block) -> MemoryRow | str:
    """The row, or why there is none."""
    if block.mig == "Enabled":
        return f"GPU {block.index} is partitioned (MIG): its instances were not read"
    if block.memory is None:
        return f"GPU {block.index}: its memory is not in this file"
    words = block.memory
    total, reserved, used, free = map(mib, words)
    if total is None or used is None or free is None:
        wrong = next(w for w in (words[0], words[2], words[3]) if mib(w) is None)
        return f"GPU {block.index}: memory: {wrong or 'the file ends within it'}"
    usable = total - (reserved or 0)
    if usable < 0 or used + free > usable + ROUNDING:
        return f"GPU {block.index}: memory: {words[2]} used and {words[3]} free of {words[0]}"
    return MemoryRow(
        index=block.index,
        total=total,
        usable=usable,
        used=used,
        free=min(free, usable),
        bounds=block.bounds,
    )


def _ecc(blocks: Sequence[Block]) -> tuple[tuple[EccRow, ...], list[str]]:
    rows: list[EccRow] = []
    gaps: list[str] = []
    for block in blocks:
        if block.ecc is None:
            gaps.append(_silent(block, "ECC counters"))
            continue
        numbers = [int(word) for word in block.ecc if COUNT.fullmatch(word)]
        wrong = [word for word in block.ecc if word not in NONE and not COUNT.fullmatch(word)]
        if wrong or not block.ecc:
            gaps.append(f"GPU {block.index}: ECC: {wrong[0] if wrong else 'no counter is shown'}")
        elif not numbers and block.ecc_mode in ("Enabled", "On"):
            gaps.append(f"GPU {block.index}: ECC is on, but its counters are {block.ecc[0]}")
        else:
            rows.append(EccRow(index=block.index, uncorrected=sum(numbers) if numbers else None))
    return tuple(rows), gaps
