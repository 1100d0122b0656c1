"""The health of the GPUs out of `nvidia-smi -q`, text or XML.

Its words are put back into the numbers of NVML, from which the very probes of a live machine make
the facts (facts/gpu_health.py). A section that no GPU has in this file gives no fact.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from infer_doctor.catalog.health import SLOWDOWNS
from infer_doctor.facts import gpu_health
from infer_doctor.facts.gpu import NvmlReading
from infer_doctor.foreign.smi import NONE, mib
from infer_doctor.foreign.text import Facts
from infer_doctor.foreign.tree import Node

Path = tuple[str, ...]
Json = dict[str, Any]

CUT = "the file ends within it"
NOT_SUPPORTED = "NVMLError_NotSupported: Not Supported"

NUMBER = re.compile(r"(\d{1,9})(?:x| %| C)?")
ANSWERS = {"No": 0, "Yes": 1}
SWITCHES = {"Disabled": 0, "Enabled": 1}
ACTIVE = {"Not Active": 0, "Active": 1}
MODES = {"Default": 0, "Exclusive_Thread": 1, "Prohibited": 2, "Exclusive_Process": 3}
RECOVERY = {"None": 0, "Reset": 1, "Reboot": 2, "Drain P2P": 3, "Drain and Reset": 4}
STATES = {"Not Supported": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
STATUS = {"Success": 0}
UNKNOWN_STATUS = 999
"""A status in words: NVML_ERROR_UNKNOWN stands for whichever it is."""

REASONS = {
    0x08: ("HW Slowdown", "hw_slowdown"),
    0x20: ("SW Thermal Slowdown", "sw_thermal_slowdown"),
    0x40: ("HW Slowdown/HW Thermal Slowdown", "hw_thermal_slowdown"),
    0x80: ("HW Slowdown/HW Power Brake Slowdown", "hw_power_brake_slowdown"),
}
"""Bit -> place in the text form and end of the name in XML; drivers before 535 say throttle."""


class _Wrong(Exception):
    """A value that is none: its words are the error of the reading."""


def health_facts(gpus: Sequence[tuple[Node, str]], source: str) -> Facts:
    """The facts of every section that a GPU has."""
    raws = [_raw(node) for node, _ in gpus]
    reading = NvmlReading(driver=None, cuda_driver=None, gpus=tuple(raws))
    made: Mapping[str, Callable[[NvmlReading], Any]] = {
        "RemappedRows": gpu_health.gpu_remaps,
        "RetiredPagesPendingStatus": gpu_health.gpu_retired_pages,
        "recovery_action": gpu_health.gpu_recovery,
        "CurrentClocksThrottleReasons": gpu_health.gpu_clocks,
        "CurrPcieLinkWidth": gpu_health.gpu_pcie,
        "fabric": gpu_health.gpu_fabric,
        "ComputeMode": gpu_health.gpu_compute_modes,
        "MigMode": gpu_health.gpu_mig,
    }
    facts: dict[type, object] = {}
    for name, make in made.items():
        if any(name in raw for raw in raws):
            fact = make(reading)
            facts[type(fact)] = dataclasses.replace(fact, source=source)
    return facts


def _raw(gpu: Node) -> Json:
    """What NVML's getters would have answered."""
    raw: Json = {}
    _put(raw, "RemappedRows", _first(gpu, ("Remapped Rows",), ("remapped_rows",)), _remapped)
    _put(
        raw,
        "RetiredPagesPendingStatus",
        _first(
            gpu,
            ("Retired Pages", "Pending Page Blacklist"),
            ("Retired Pages", "Pending"),
            ("retired_pages", "pending_blacklist"),
            ("retired_pages", "pending_retirement"),
        ),
        _one_of(ANSWERS),
    )
    action = _first(gpu, ("GPU Recovery Action",), ("gpu_recovery_action",))
    _put(raw, "recovery_action", action, _one_of(RECOVERY, none_is_value=True))
    _put(raw, "CurrentClocksThrottleReasons", _reasons_node(gpu), _reasons)
    link = _first(gpu, ("PCI", "GPU Link Info"), ("pci", "pci_gpu_link_info"))
    if link is not None:
        for name, paths in _LINK.items():
            _put(raw, name, _first(link, *paths), _number)
    _put(raw, "PowerState", _first(gpu, ("Performance State",), ("performance_state",)), _state)
    used = _first(gpu, ("Utilization", "GPU"), ("utilization", "gpu_util"))
    _put(raw, "UtilizationRates", used, lambda node: {"gpu": _number(node)})
    heat = _first(gpu, ("Temperature", "GPU Current Temp"), ("temperature", "gpu_temp"))
    _put(raw, "Temperature", heat, _number)
    _put(raw, "fabric", _first(gpu, ("Fabric",), ("fabric",)), _fabric)
    _put(raw, "ComputeMode", _first(gpu, ("Compute Mode",), ("compute_mode",)), _one_of(MODES))
    _put(raw, "MigMode", _first(gpu, ("MIG Mode",), ("mig_mode",)), _mig)
    instances = _instances(gpu)
    return raw if instances is None else {**raw, "mig": instances}


_LINK: dict[str, tuple[Path, ...]] = {
    "CurrPcieLinkGeneration": (("PCIe Generation", "Current"), ("pcie_gen", "current_link_gen")),
    "CurrPcieLinkWidth": (("Link Width", "Current"), ("link_widths", "current_link_width")),
    "MaxPcieLinkGeneration": (("PCIe Generation", "Max"), ("pcie_gen", "max_link_gen")),
    "MaxPcieLinkWidth": (("Link Width", "Max"), ("link_widths", "max_link_width")),
}


def _first(node: Node, *paths: Path) -> Node | None:
    return next((found for path in paths if (found := node.find(*path)) is not None), None)


def _put(raw: Json, name: str, node: Node | None, convert: Callable[[Node], Any]) -> None:
    """The value, NVML's words for "not supported", or the file's own words as an error."""
    if node is None:
        return
    try:
        raw[name] = convert(node)
    except _Wrong as error:
        raw[name] = {"error": str(error)}


def _word(node: Node | None) -> str:
    """The value of a leaf that is whole."""
    if node is None or not node.closed:
        raise _Wrong(CUT)
    if node.value in NONE:
        raise _Wrong(NOT_SUPPORTED)
    return node.value


def _number(node: Node | None) -> int:
    word = _word(node)
    found = NUMBER.fullmatch(word)
    if found is None:
        raise _Wrong(word[:80])
    return int(found[1])


def _one_of(
    words: Mapping[str, int], *, none_is_value: bool = False
) -> Callable[[Node | None], int]:
    def convert(node: Node | None) -> int:
        if none_is_value and node is not None and node.closed and node.value == "None":
            return words["None"]
        word = _word(node)
        if word not in words:
            raise _Wrong(word[:80])
        return words[word]

    return convert


def _state(node: Node) -> int:
    word = _word(node)
    if re.fullmatch(r"P\d{1,2}", word) is None:
        raise _Wrong(word[:80])
    return int(word[1:])


def _remapped(node: Node) -> list[int]:
    if not node.children:
        raise _Wrong(_word(node))
    yes = _one_of(ANSWERS)
    return [
        _number(_first(node, ("Correctable Error",), ("remapped_row_corr",))),
        _number(_first(node, ("Uncorrectable Error",), ("remapped_row_unc",))),
        yes(_first(node, ("Pending",), ("remapped_row_pending",))),
        yes(_first(node, ("Remapping Failure Occurred",), ("remapped_row_failure",))),
    ]


def _reasons_node(gpu: Node) -> Node | None:
    return _first(
        gpu,
        ("Clocks Event Reasons",),
        ("Clocks Throttle Reasons",),
        ("clocks_event_reasons",),
        ("clocks_throttle_reasons",),
    )


def _reasons(node: Node) -> int:
    """Only the bits that a check reads; a form that has none of them is not known."""
    if not node.children or not node.closed:
        raise _Wrong(_word(node))
    found = {bit: _first(node, *_reason_paths(bit)) for bit in SLOWDOWNS}
    if found[0x08] is None:
        raise _Wrong(CUT)
    active = _one_of(ACTIVE)
    bits = 0
    for bit, leaf in found.items():
        if leaf is not None and (not leaf.closed or leaf.value not in NONE):
            bits |= bit * active(leaf)
    return bits


def _reason_paths(bit: int) -> Iterable[Path]:
    text, xml = REASONS[bit]
    yield tuple(text.split("/"))
    yield (text.rpartition("/")[2],)
    for word in ("event", "throttle"):
        yield (f"clocks_{word}_reason_{xml}",)


def _fabric(node: Node) -> Json:
    if not node.children:
        raise _Wrong(_word(node))
    state = _one_of(STATES)(_first(node, ("State",), ("state",)))
    status = 0
    if state == STATES["Completed"]:
        word = _word(_first(node, ("Status",), ("status",)))
        status = STATUS.get(word, UNKNOWN_STATUS)
    return {"state": state, "status": status, "healthMask": 0}


def _instances(gpu: Node) -> list[Json] | None:
    """The MIG devices; None when they are not listed, which is no proof that there is none."""
    listed = gpu.find("mig_devices")
    nodes = [node for node in (listed or gpu).children if node.key in ("MIG Device", "mig_device")]
    if not nodes and (listed is None or listed.value != "None"):
        return None
    totals = (_first(n, ("FB Memory Usage", "Total"), ("fb_memory_usage", "total")) for n in nodes)
    sizes = [mib(total.value) if total is not None and total.closed else None for total in totals]
    return [{"MemoryInfo": {} if size is None else {"total": size}} for size in sizes]


def _mig(node: Node) -> list[int]:
    switch = _one_of(SWITCHES)
    return [
        switch(_first(node, ("Current",), ("current_mig",))),
        switch(_first(node, ("Pending",), ("pending_mig",))),
    ]
