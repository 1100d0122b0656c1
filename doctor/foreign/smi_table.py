"""The table that plain `nvidia-smi` prints -> facts.

Its columns are narrow: names and sizes end in "..." when they do not fit, and what the driver
reserves is not shown. A line that is not understood is refused, never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from infer_doctor.facts.gpu import GpuCapabilities, GpuProcess, Gpus
from infer_doctor.foreign.smi import Block, driver_of, gpu_facts, lost_gpu, mib, withheld
from infer_doctor.foreign.text import Facts, Unreadable, find_line, without_prefix
from infer_doctor.model import Evidence

HEAD = "| NVIDIA-SMI "
WIDTH = 400
"""Characters of a line; the table has 79 to 91. Keeps the patterns from running long."""

VERSIONS = re.compile(r"(?:Driver|KMD) Version: *(\S+) +CUDA(?: UMD)? Version: *(\S+)")
RULE = re.compile(r"[+|](?:[-=]+[+|])+")
FIRST = re.compile(r"\| +([0-9]{1,3})  (\S.*?) +\S+ *\| *(\S+) +\S+ *\| *(\S+) *\|")
"""Index, name (and persistence), bus address (and display), uncorrected ECC errors."""
SECOND = re.compile(r"\|[^|]*\|([^|]*)\|[^|]*\|")
MEMORY = re.compile(r"([0-9]{1,9})MiB */ *([0-9]{1,9})MiB")
THIRD = re.compile(r"\|[^|]*\|[^|]*\| *(\S+) *\|")
"""MIG mode: since R450."""
PROCESS = re.compile(
    r"\| +([0-9]{1,3}) +(?:(?:[0-9]+|N/A) +(?:[0-9]+|N/A) +)?([0-9]{1,9}) +[CGM+]+ +(.*?) +(\S+) *\|"
)
"""GPU, (MIG instances,) PID, type, name, memory."""


def is_table(text: str) -> bool:
    """The first cell of the table."""
    return HEAD in text


def read_table(text: str, source: str) -> Facts:
    """Facts of plain `nvidia-smi`; raises Unreadable."""
    if text.count(HEAD) > 1:
        raise Unreadable("holds several outputs of nvidia-smi; keep one")
    lines = _whole(text)
    found = find_line(lines, HEAD)
    versions = found and VERSIONS.search(lines[found[0]][:WIDTH])
    if not found or not versions:
        raise Unreadable("is cut off: nvidia-smi's table ends within its first line")
    place, column = found
    evidence = Evidence(source=source, line=place + 1, excerpt=versions[0])
    facts = {**driver_of(versions[1], versions[2], evidence)}
    rows = [row.rstrip()[:WIDTH] for row in without_prefix(lines, place + 1, column) if row.strip()]
    listed = _processes(rows)
    if listed is None:
        facts |= withheld("the table of processes does not end in this file: it may be cut off")
        return facts
    processes, gaps = listed
    lost = lost_gpu(lines)
    blocks = [_block(group, processes, gaps) for group in _groups(rows)]
    facts |= gpu_facts(blocks, source, [lost] if lost else [])
    indices = [block.index for block in blocks]
    if indices != list(range(len(blocks))):
        shown = ", ".join(map(str, indices))
        reason = lost or f"the table shows GPU {shown}: it was made with -i"
        facts |= withheld(reason, [Gpus, GpuCapabilities])
    return facts


def _whole(text: str) -> list[str]:
    """The lines; a last one without line end counts when it closes a box like one before."""
    *lines, last = text.split("\n")
    if RULE.fullmatch(last.strip()) and last.strip() in (line.strip() for line in lines):
        lines.append(last)
    return lines


def _groups(rows: Sequence[str]) -> list[list[str]]:
    """The lines of each GPU, between the rules of the first box."""
    groups: list[list[str]] = [[]]
    for row in rows[_body(rows, 0) :]:
        if row.startswith(("| Processes", "| MIG devices")):
            break
        if RULE.fullmatch(row):
            groups.append([])
        else:
            groups[-1].append(row)
    found = [group for group in groups if group]
    if not found:
        raise Unreadable("holds a table of nvidia-smi without a GPU")
    return found


def _body(rows: Sequence[str], start: int) -> int:
    """Where the lines of a box begin: after the rule of equal signs."""
    for place in range(start, len(rows)):
        if "=" in rows[place] and RULE.fullmatch(rows[place]):
            return place + 1
    return len(rows)


def _block(group: Sequence[str], processes: Sequence[GpuProcess], gaps: Sequence[str]) -> Block:
    first = FIRST.fullmatch(group[0])
    second = SECOND.fullmatch(group[1]) if len(group) in (2, 3) else None
    third = THIRD.fullmatch(group[2]) if len(group) == 3 else None
    if first is None or second is None or (len(group) == 3 and third is None):
        raise Unreadable(f"has a line in nvidia-smi's table that is not known: {group[0][:60]!r}")
    index = int(first[1])
    amounts = MEMORY.fullmatch(second[1].strip())
    memory: tuple[str | None, str | None, str | None, str | None]
    if amounts:
        used, total = int(amounts[1]), int(amounts[2])
        memory = (f"{total} MiB", None, f"{used} MiB", f"{total - used} MiB")
    else:
        memory = (second[1].strip(),) * 4
    return Block(
        index=index,
        name=first[2],
        bus_id=first[3],
        mig=third[1] if third else None,
        memory=memory,
        bounds=True,
        ecc=("N/A" if first[4] == "Off" else first[4],),
        processes=tuple(row for row in processes if row.gpu == index),
        process_gaps=tuple(gaps),
    )


def _processes(rows: Sequence[str]) -> tuple[list[GpuProcess], list[str]] | None:
    """The processes and what could not be read; None when the table does not end."""
    title = next((n for n, row in enumerate(rows) if row.startswith("| Processes:")), None)
    if title is None:
        return None
    found: list[GpuProcess] = []
    gaps: list[str] = []
    for row in rows[_body(rows, title) :]:
        if RULE.fullmatch(row):
            return found, gaps
        read = PROCESS.fullmatch(row)
        if read is not None:
            size = mib(read[4])
            name = read[3].strip() or None
            found.append(GpuProcess(gpu=int(read[1]), pid=int(read[2]), used=size, name=name))
        elif "No running processes found" not in row:
            gaps.append(f"a row of the process table is not known: {row.strip('| ')[:60]!r}")
    return None
