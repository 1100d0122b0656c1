"""`nvidia-smi -q`, as text or with `-x` as XML -> facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infer_doctor.facts.gpu import GpuProcess
from infer_doctor.foreign.smi import (
    Block,
    driver_of,
    gpu_facts,
    lost_gpu,
    mib,
    withheld,
)
from infer_doctor.foreign.smi_health import health_facts
from infer_doctor.foreign.text import Facts, Unreadable, find_line, whole_lines, without_prefix
from infer_doctor.foreign.tree import Node, from_text, from_xml
from infer_doctor.frozen import frozen
from infer_doctor.model import Evidence

BANNER = "==============NVSMI LOG=============="
ROOT = "nvidia_smi_log"


@frozen
class Words:
    """How one of the two forms calls what is read."""

    driver: tuple[str, str]
    """The newer name first: R610 calls it KMD version and marks the old name as deprecated."""
    cuda: tuple[str, str]
    attached: str
    name: str
    uuid: str
    mig: tuple[str, str]
    memory: str
    amounts: tuple[str, str, str, str]
    ecc_mode: tuple[str, str]
    ecc: tuple[str, str]
    ecc_old: tuple[str, str]
    processes: str
    pid: str
    process_name: str
    process_memory: str


TEXT = Words(
    driver=("KMD Version", "Driver Version"),
    cuda=("CUDA UMD Version", "CUDA Version"),
    attached="Attached GPUs",
    name="Product Name",
    uuid="GPU UUID",
    mig=("MIG Mode", "Current"),
    memory="FB Memory Usage",
    amounts=("Total", "Reserved", "Used", "Free"),
    ecc_mode=("ECC Mode", "Current"),
    ecc=("ECC Errors", "Volatile"),
    ecc_old=("Double Bit", "Total"),
    processes="Processes",
    pid="Process ID",
    process_name="Name",
    process_memory="Used GPU Memory",
)

XML = Words(
    driver=("kmd_version", "driver_version"),
    cuda=("cuda_umd_version", "cuda_version"),
    attached="attached_gpus",
    name="product_name",
    uuid="uuid",
    mig=("mig_mode", "current_mig"),
    memory="fb_memory_usage",
    amounts=("total", "reserved", "used", "free"),
    ecc_mode=("ecc_mode", "current_ecc"),
    ecc=("ecc_errors", "volatile"),
    ecc_old=("double_bit", "total"),
    processes="processes",
    pid="pid",
    process_name="process_name",
    process_memory="used_memory",
)


def is_text(text: str) -> bool:
    """The banner that `nvidia-smi -q` prints first."""
    return BANNER in text


def is_xml(text: str) -> bool:
    """The root element of `nvidia-smi -q -x`, or its document type."""
    return f"<{ROOT}" in text or f"<!DOCTYPE {ROOT}" in text


def read_text(text: str, source: str) -> Facts:
    """Facts of `nvidia-smi -q`; raises Unreadable."""
    if text.count(BANNER) > 1:
        raise Unreadable("holds several outputs of nvidia-smi -q; keep one")
    lines = whole_lines(text)
    found = find_line(lines, BANNER)
    if found is None:
        raise Unreadable("is cut off: nothing follows the first line of nvidia-smi -q")
    place, column = found
    root = from_text(without_prefix(lines, place + 1, column), place + 2)
    gpus = [(node, node.key.removeprefix("GPU ")) for node in root.children if _is_gpu(node)]
    return _facts(root, gpus, TEXT, source, lost_gpu(lines))


def _is_gpu(node: Node) -> bool:
    return re.fullmatch(r"GPU [0-9A-Fa-f:.]+", node.key) is not None


def read_xml(text: str, source: str) -> Facts:
    """Facts of `nvidia-smi -q -x`; raises Unreadable."""
    start, end = f"<{ROOT}", f"</{ROOT}>"
    if text.count(start) > 1:
        raise Unreadable("holds several outputs of nvidia-smi -q -x; keep one")
    begin, stop = text.find(start), text.find(end)
    if begin < 0 or stop < 0:
        raise Unreadable(f"is cut off: the XML of nvidia-smi -q -x ends without {end}")
    declared = text.rfind("<?xml", 0, begin)
    begin = begin if declared < 0 else declared
    document = from_xml(text[begin : stop + len(end)], text.count("\n", 0, begin))
    root = document.find(ROOT) or document
    gpus = [(node, node.text("@id") or "") for node in root.children if node.key == "gpu"]
    return _facts(root, gpus, XML, source, lost_gpu(text[:begin].split("\n")))


def _facts(
    root: Node,
    gpus: Sequence[tuple[Node, str]],
    words: Words,
    source: str,
    lost: str | None,
) -> Facts:
    facts = {**_driver(root, words, source)}
    attached = root.text(words.attached) or ""
    if lost is not None:
        facts |= withheld(lost)
    elif not re.fullmatch(r"[0-9]{1,4}", attached):
        if not facts:
            raise Unreadable("is cut off: it names neither a driver nor the number of GPUs")
        facts |= withheld("the file does not say how many GPUs are attached: it is cut off")
    elif int(attached) != len(gpus):
        facts |= withheld(
            f"the file holds {len(gpus)} of {int(attached)} attached GPUs: it is cut off, or was "
            "made with -i"
        )
    else:
        blocks = [_block(node, index, bus, words) for index, (node, bus) in enumerate(gpus)]
        facts |= gpu_facts(blocks, source)
        facts |= health_facts(gpus, source)
    return facts


def _driver(root: Node, words: Words, source: str) -> Facts:
    names = [name for name in words.driver if (root.text(name) or "")[:1].isdigit()]
    versions = [name for name in words.cuda if (root.text(name) or "")[:1].isdigit()]
    if not names:
        return {}
    node = root.find(names[0])
    assert node is not None
    cuda = root.text(versions[0]) if versions else None
    excerpt = f"{node.key}: {node.value}" + (f", {versions[0]}: {cuda}" if cuda else "")
    evidence = Evidence(source=source, line=node.line, excerpt=excerpt)
    return driver_of(node.value, cuda, evidence)


def _block(node: Node, index: int, bus: str, words: Words) -> Block:
    memory = node.find(words.memory)
    processes, gaps = _processes(node.find(words.processes), index, words)
    amounts = None
    if memory is not None:
        total, reserved, used, free = (memory.text(name) for name in words.amounts)
        amounts = (total, reserved, used, free)
    return Block(
        index=index,
        name=node.text(words.name),
        uuid=node.text(words.uuid),
        bus_id=bus,
        mig=node.text(*words.mig),
        memory=amounts,
        ecc_mode=node.text(*words.ecc_mode),
        ecc=_ecc(node, words),
        processes=processes,
        process_gaps=gaps,
    )


def _ecc(node: Node, words: Words) -> tuple[str, ...] | None:
    """The counters of uncorrected errors: of SRAM and DRAM, before R450 of two bits together."""
    volatile = node.find(*words.ecc)
    if volatile is None:
        return None
    if not volatile.closed:
        return ("the file ends within them",)
    old = volatile.text(*words.ecc_old)
    if old is not None:
        return (old,)
    return tuple(child.value for child in volatile.children if "uncorrectable" in child.key.lower())


def _processes(
    node: Node | None, index: int, words: Words
) -> tuple[tuple[GpuProcess, ...] | None, tuple[str, ...]]:
    """The processes; None when the file has no list of them."""
    if node is None:
        return None, ()
    found: dict[tuple[int, str], GpuProcess] = {}
    gaps: list[str] = []
    for pid, instance, holder in _entries(node, words):
        if not re.fullmatch(r"[0-9]{1,9}", pid):
            gaps.append(f"GPU {index}: a process without a PID: {pid or '(empty)'}")
        elif holder.closed:
            row = GpuProcess(
                gpu=index,
                pid=int(pid),
                used=mib(holder.text(words.process_memory)),
                name=holder.text(words.process_name) or None,
            )
            found.setdefault((row.pid, instance), row)
    if not node.children and node.value not in ("", "None"):
        gaps.append(f"GPU {index}: processes: {node.value}")
    if not node.closed and node.value != "None":
        gaps.append(f"GPU {index}: the list of its processes may be cut off")
    return tuple(found.values()), tuple(gaps)


def _entries(node: Node, words: Words) -> Iterator[tuple[str, str, Node]]:
    """PID, MIG instance and node of each process; in text the instance stands before the PID."""
    instance = ""
    for part in node.children:
        if part.key == "process_info":
            yield part.text(words.pid) or "", part.text("gpu_instance_id") or "", part
        elif part.key.lower() == "gpu instance id":
            instance = part.value
        elif part.key == words.pid:
            yield part.value, instance, part
