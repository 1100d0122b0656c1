"""GPUs that are only named: `--gpu NAME[:COUNT]` and `--gpu-memory`.

The facts of the named GPUs are given instead of this machine's, so that every check judges for
them; what else this machine says of its own GPUs, driver and bus is then not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from infer_doctor.catalog.gpu_memory import GpuModel, UnknownGpu, find
from infer_doctor.engine import Subject
from infer_doctor.facts.gpu import Gpu, GpuCapabilities, GpuMemory, Gpus, MemoryRow
from infer_doctor.frozen import frozen
from infer_doctor.model import Missing
from infer_doctor.registry import Registry
from infer_doctor.units import GIB, MIB

ONLY_NAMED = "the GPU is only named (--gpu)"

MOST_GPUS = 1024

ABOUT_GPUS = frozenset(
    f"infer_doctor.facts.{name}"
    for name in (
        "cuda_init",
        "deep",
        "deep_links",
        "driver",
        "gpu",
        "gpu_health",
        "kernel_log",
        "owners",
        "pci",
        "visible",
    )
)
"""Modules whose facts are about the GPUs and driver of the machine itself."""

SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(gib|gb|g|mib|mb|m)?", re.IGNORECASE)


class WrongName(Exception):
    """An option that names nothing; the text says which and why."""


@frozen
class NamedGpus:
    """The GPUs of `--gpu`; `usable` is what CUDA can give of each, in bytes."""

    name: str
    count: int
    total: int
    usable: int
    capability: tuple[int, int] | None
    exact: bool
    source: str


def gpus_of(text: str | None, memory: str | None) -> NamedGpus:
    """The GPUs that the options name; raises WrongName."""
    name, _, count = (text or "GPU").partition(":")
    number = 1
    if count:
        if not count.isascii() or not count.isdigit() or not 1 <= int(count) <= MOST_GPUS:
            raise WrongName(f"--gpu {text}: the count is {count!r}, not a number from 1")
        number = int(count)
    size = None if memory is None else _size(memory)
    known: GpuModel | None = None
    if text is not None:
        try:
            known = find(name)
        except UnknownGpu as error:
            if size is None:
                raise WrongName(f"--gpu: {error}") from None
    if size is None and known is not None:
        total, usable = known.total, known.usable
        exact, source = known.source == "measured", f"catalogue ({known.source})"
    else:
        total = usable = size or 0
        exact, source = True, "--gpu-memory"
    return NamedGpus(
        name=known.driver if known else name,
        count=number,
        total=total,
        usable=usable,
        capability=known.capability if known else None,
        exact=exact,
        source=source,
    )


def _size(text: str) -> int:
    """ "79.2", "79.2GiB" or "81100MiB" as bytes: what CUDA can give, as torch prints it."""
    match = SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise WrongName(f"--gpu-memory {text!r} is no size, such as 79.2GiB")
    unit = MIB if (match[2] or "g").lower().startswith("m") else GIB
    size = int(float(match[1]) * unit)
    if size > GIB << 14:
        raise WrongName(f"--gpu-memory {text!r}: no GPU has that much")
    return size


def give_gpus(subjects: Iterable[Subject], registry: Registry, gpus: NamedGpus) -> None:
    """Give the subjects the facts of these GPUs; what else is of this machine's is not known."""
    for subject in subjects:
        for kind, probe in registry.probes.items():
            if probe.function.__module__ in ABOUT_GPUS:
                subject.give(
                    kind, Missing(fact=kind.__name__, reason=ONLY_NAMED, kind="unavailable")
                )
        for fact in _facts(gpus):
            subject.give(type(fact), fact)


def _facts(gpus: NamedGpus) -> Iterator[object]:
    rows = range(gpus.count)
    yield Gpus(
        gpus=tuple(Gpu(index=row, name=gpus.name, uuid=None, bus_id=None) for row in rows),
        source=f"--gpu, {gpus.source}",
    )
    yield GpuMemory(
        rows=tuple(
            MemoryRow(
                index=row,
                total=gpus.total,
                usable=gpus.usable,
                used=0,
                free=gpus.usable,
                bounds=not gpus.exact,
            )
            for row in rows
        ),
        source=f"--gpu, {gpus.source}",
    )
    if gpus.capability is not None:
        yield GpuCapabilities(capabilities=dict.fromkeys(rows, gpus.capability), source="catalogue")
