"""Which GPUs the engine would take."""

from __future__ import annotations

import pytest

from infer_doctor.facts.chosen import chosen_gpus
from infer_doctor.facts.gpu import Gpu, Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.visible import VisibleDevices
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.command import read as launch_of

NOTHING = Environ(variables={})


def gpus(*names: str) -> Gpus:
    found = (
        Gpu(index=i, name=name, uuid=f"GPU-0000000{i + 1}-0", bus_id=None)
        for i, name in enumerate(names)
    )
    return Gpus(gpus=tuple(found), source="NVML")


FOUR = gpus("A", "A", "A", "A")


def visible(value: str) -> VisibleDevices:
    return VisibleDevices(value=value, entries=tuple(e for e in value.split(",") if e))


@pytest.mark.parametrize(
    ("value", "command", "indices"),
    [
        ("2,0", None, (2, 0)),
        ("GPU-00000003", None, (2,)),
        (None, "vllm serve m", (0,)),
        (None, "vllm serve m -tp 2", (0, 1)),
        (None, "vllm serve m -tp 2 -dp 2", (0, 1, 2, 3)),
        ("3,1,2", "vllm serve m --tensor-parallel-size=2", (3, 1)),
        ("3,1", "python serve.py", (3, 1)),
        ("", None, ()),
    ],
)
def test_by_variable_and_launch(
    value: str | None, command: str | None, indices: tuple[int, ...]
) -> None:
    launch = launch_of(command.split()) if command else None
    devices = None if value is None else visible(value)
    assert chosen_gpus(FOUR, NOTHING, devices, launch).indices == indices


@pytest.mark.parametrize(
    "command", [None, "python serve.py", "vllm serve m -tp x", "vllm serve m -dp $N"]
)
def test_nothing_chooses(command: str | None) -> None:
    with pytest.raises(Absent):
        chosen_gpus(FOUR, NOTHING, None, launch_of(command.split()) if command else None)


@pytest.mark.parametrize("value", ["7", "0,7", "MIG-1", "GPU-0"])
def test_what_an_entry_means_may_not_be_known(value: str) -> None:
    with pytest.raises(Unavailable, match="is no GPU"):
        chosen_gpus(FOUR, NOTHING, visible(value), None)


def test_cuda_numbers_mixed_models_in_its_own_order() -> None:
    mixed = gpus("A", "B")
    for environ in (None, NOTHING):
        with pytest.raises(Unavailable, match="its own order"):
            chosen_gpus(mixed, environ, visible("0"), None)
    by_bus = Environ(variables={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert chosen_gpus(mixed, by_bus, visible("1"), None).indices == (1,)
