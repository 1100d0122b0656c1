"""Files that end too early: refused with "is cut off", or only what is complete; never a wrong fact."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infer_doctor.facts.driver import Driver
from infer_doctor.facts.gpu import GpuCapabilities, GpuEcc, GpuMemory, GpuProcesses, Gpus
from infer_doctor.facts.gpu_health import (
    GpuClocks,
    GpuComputeModes,
    GpuFabric,
    GpuMig,
    GpuPcie,
    GpuRecovery,
    GpuRemaps,
    GpuRetiredPages,
)
from infer_doctor.facts.torch import TorchCompanions
from infer_doctor.foreign.text import Unreadable
from infer_doctor.model import Missing
from infer_doctor.targets import facts_in

CAPTURES = Path(__file__).parent.parent / "captures"
FILES = sorted(
    str(path.relative_to(CAPTURES))
    for pattern in ("*/nvidia-smi*", "*/*collect-env.txt", "foreign/*")
    for path in CAPTURES.glob(pattern)
    if path.suffix in (".txt", ".xml") and path.stem not in ("nvidia-smi-topo",)
)
SUBSETS = {
    GpuMemory: "rows",
    GpuEcc: "rows",
    GpuProcesses: "processes",
    TorchCompanions: "rows",
    GpuRemaps: "rows",
    GpuClocks: "rows",
    GpuPcie: "rows",
    GpuFabric: "rows",
    GpuMig: "rows",
    GpuRetiredPages: "pending",
    GpuRecovery: "actions",
    GpuComputeModes: "modes",
}


def rows_of(fact: Any, name: str) -> set[Any]:
    """Rows, or items of a mapping. What only illustrates a row may be cut off with no harm."""
    found = getattr(fact, name)
    if isinstance(found, dict):
        return set(found.items())
    if isinstance(fact, GpuClocks):
        return {(row.index, row.reasons) for row in found}
    if isinstance(fact, GpuMig):
        return {(row.index, row.on, row.next_on) for row in found}
    if isinstance(fact, GpuPcie):
        return {(row.index, row.width, row.max_width, row.generation) for row in found}
    return set(found)


def check_part(part: dict[type, Any], whole: dict[type, Any]) -> None:
    """Every fact of the part says nothing that the whole does not say."""
    for kind, fact in part.items():
        if isinstance(fact, Missing):
            assert fact.reason
            continue
        full = whole[kind]
        if kind is Driver:
            assert (fact.version, fact.cuda or full.cuda) == (full.version, full.cuda)
        elif kind in SUBSETS:
            rows, all_rows = rows_of(fact, SUBSETS[kind]), rows_of(full, SUBSETS[kind])
            assert rows <= all_rows
            assert len(rows) == len(all_rows) or fact.gaps
        elif kind is Gpus:
            assert [(gpu.index, gpu.bus_id) for gpu in fact.gpus] == [
                (gpu.index, gpu.bus_id) for gpu in full.gpus
            ]
            for gpu, known in zip(fact.gpus, full.gpus, strict=True):
                assert gpu.name == known.name or (gpu.name == "unknown GPU" and fact.gaps)
                assert gpu.uuid in (known.uuid, None)
        elif kind is GpuCapabilities:
            assert fact.capabilities.items() <= full.capabilities.items()
            assert fact.capabilities == full.capabilities or fact.gaps
        else:
            _check_environment(fact, full)


def _check_environment(fact: Any, full: Any) -> None:
    """Facts about software: equal, or a mapping with fewer entries and gaps."""
    for field in dataclasses.fields(fact):
        value, known = getattr(fact, field.name), getattr(full, field.name)
        if isinstance(value, dict):
            assert value.items() <= known.items()
            assert fact.gaps
        else:
            assert value == known


def read(text: str) -> dict[type, Any]:
    """Nothing when the text is refused."""
    try:
        return dict(facts_in(text, "file"))
    except Unreadable:
        return {}


@pytest.mark.parametrize("name", FILES)
def test_cut_after_every_line(name: str) -> None:
    text = (CAPTURES / name).read_text()
    whole = read(text)
    assert whole
    lines = text.splitlines(keepends=True)
    for end in range(len(lines)):
        part = "".join(lines[:end])
        for tail in ("", "user@host:~$ \n"):
            check_part(read(part + tail), whole)
    check_part(read(text.rstrip("\n")), whole)


@pytest.mark.parametrize("name", FILES)
def test_cut_within_a_line(name: str) -> None:
    text = (CAPTURES / name).read_text()
    whole = read(text)
    assert whole
    step = max(1, len(text) // 200) | 1
    for end in range(0, len(text), step):
        check_part(read(text[:end]), whole)


@pytest.mark.parametrize("form", ["nvidia-smi-q.txt", "nvidia-smi-q.xml", "nvidia-smi.txt"])
def test_a_cut_says_so(form: str) -> None:
    text = (CAPTURES / "h200-x2" / form).read_text()
    part = text[: text.index("00000000:00:07.0")]
    if form.endswith("xml"):
        with pytest.raises(Unreadable, match=r"is cut off: the XML .* ends without"):
            facts_in(part, form)
        return
    found = facts_in(part, form)
    for kind in (Gpus, GpuMemory, GpuEcc, GpuProcesses):
        missing = found[kind]
        assert isinstance(missing, Missing)
        assert "cut off" in missing.reason


def test_the_last_process_may_not_be_the_last() -> None:
    text = (CAPTURES / "foreign/q-535-4090-processes.txt").read_text()
    complete = facts_in(text, "file")[GpuProcesses]
    assert not complete.gaps  # type: ignore[attr-defined]
    open_end = facts_in(text.rstrip("\n") + "\n", "file")[GpuProcesses]
    assert open_end.gaps == ("GPU 1: the list of its processes may be cut off",)  # type: ignore[attr-defined]
