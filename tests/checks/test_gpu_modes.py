"""The checks of settings that decide who may use a GPU."""

from __future__ import annotations

import pytest

from infer_doctor.checks.gpu_modes import (
    compute_mode,
    mig_empty,
    mig_pending,
    mig_split,
    models_mixed,
)
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.gpu import Gpu, GpuProcess, GpuProcesses, Gpus
from infer_doctor.facts.gpu_health import GpuComputeModes, GpuMig, MigInstance, MigRow
from infer_doctor.facts.machine import Environ
from infer_doctor.launch.command import read as launch_of
from infer_doctor.testing import contract, examine

GIB = 1 << 30


def gpus(*names: str) -> Gpus:
    found = (Gpu(index=i, name=n, uuid=None, bus_id=None) for i, n in enumerate(names))
    return Gpus(gpus=tuple(found), source="NVML")


def environ(**variables: str) -> Environ:
    return Environ(variables=variables)


def test_models() -> None:
    mixed = gpus("NVIDIA H200", "NVIDIA A100-SXM4-80GB")
    contract(
        models_mixed,
        fires=[mixed, environ()],
        passes=[mixed, environ(CUDA_DEVICE_ORDER="PCI_BUS_ID")],
    )


def test_which_card_is_which_is_told() -> None:
    """https://github.com/vllm-project/vllm issue 13188: vLLM's own warning names these four."""
    names = ("NVIDIA GeForce RTX 3090", "NVIDIA A100-SXM4-80GB", "Tesla T4")
    mixed = gpus(*names, "NVIDIA GeForce RTX 3090")
    (finding,) = examine(models_mixed, mixed, environ(CUDA_DEVICE_ORDER="FASTEST_FIRST")).findings
    assert finding.message == (
        "3 models of GPU: NVIDIA GeForce RTX 3090 (GPU 0, 3), NVIDIA A100-SXM4-80GB (GPU 1), "
        "Tesla T4 (GPU 2); CUDA_DEVICE_ORDER=FASTEST_FIRST, so CUDA numbers the fastest first"
    )
    assert finding.fixes[0].actions[0].text == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_one_gpu_cannot_be_mixed() -> None:
    assert examine(models_mixed, gpus("NVIDIA H200"), environ()).outcome == "not_applicable"
    assert examine(models_mixed, gpus("NVIDIA H200", "NVIDIA H200"), environ()).outcome == "passed"


def modes(mode: int) -> GpuComputeModes:
    return GpuComputeModes(modes={0: mode}, source="NVML")


def processes(*gpus: int) -> GpuProcesses:
    found = tuple(GpuProcess(gpu=gpu, pid=7, used=None) for gpu in gpus)
    return GpuProcesses(processes=found, source="NVML")


def test_compute_mode() -> None:
    contract(compute_mode, fires=[modes(2)], passes=[modes(0)])


@pytest.mark.parametrize(
    ("mode", "facts", "severity", "words"),
    [
        (2, [], "error", "compute mode prohibited: no process may use it"),
        (3, [processes()], "info", "compute mode exclusive process: one process may use it"),
        (3, [processes(0)], "warning", "one process may use it, and one does"),
        (3, [processes(1)], "info", "one process may use it"),
        (3, [], "warning", "one process may use it"),
        (1, [processes()], "info", "compute mode exclusive thread: one process may use it"),
    ],
)
def test_exclusive_is_enough_for_an_engine(
    mode: int, facts: list[object], severity: str, words: str
) -> None:
    (finding,) = examine(compute_mode, modes(mode), *facts).findings
    assert finding.severity == severity
    assert finding.message.endswith(words)


def instance(profile: str, size: int) -> MigInstance:
    return MigInstance(name=f"NVIDIA H200 MIG {profile}", uuid=f"MIG-{profile}", total=size * GIB)


SMALL, LARGE = instance("1g.18gb", 16), instance("3g.71gb", 70)


def mig(
    *instances: MigInstance, on: bool = True, next_on: bool = True, known: bool = True
) -> GpuMig:
    row = MigRow(index=0, on=on, next_on=next_on, instances=instances if known else None)
    return GpuMig(rows=(row,), source="NVML")


OFF = mig(on=False, next_on=False)


def test_mig() -> None:
    contract(mig_empty, fires=[mig()], passes=[mig(SMALL)])
    contract(mig_split, fires=[mig(SMALL)], passes=[OFF])
    contract(mig_pending, fires=[mig(on=False)], passes=[OFF])


def test_a_gpu_that_the_engine_does_not_take_stops_nothing() -> None:
    other = ChosenGpus(indices=(1,))
    assert examine(mig_empty, mig(), other).outcome == "passed"
    assert examine(compute_mode, modes(2), other).outcome == "passed"


def test_unknown_instances_are_not_none() -> None:
    assert examine(mig_empty, mig(known=False)).outcome == "passed"
    gap = GpuMig(rows=mig(known=False).rows, source="NVML", gaps=("GPU 0: mig: not read",))
    assert examine(mig_empty, gap).outcome == "blocked"


def test_what_a_process_sees_of_a_partitioned_gpu() -> None:
    (finding,) = examine(mig_split, mig(SMALL, LARGE)).findings
    assert finding.severity == "info"
    assert finding.message == (
        "GPU 0 is partitioned: 2 instances (1g.18gb 16.0 GiB, 3g.71gb 70.0 GiB); a process sees one "
        "of them"
    )


def test_several_ranks_do_not_fit_into_one_instance() -> None:
    two = launch_of(["vllm", "serve", "m", "-tp", "2"])
    (finding,) = examine(mig_split, mig(SMALL, LARGE), two).findings
    assert finding.severity == "error"
    assert finding.message.endswith("a process sees one of them; the launch wants 2 ranks")
    assert finding.fixes[0].title == "Start with one rank, or switch MIG off on GPU 0"
    one = launch_of(["vllm", "serve", "m"])
    assert examine(mig_split, mig(SMALL, LARGE), one).findings[0].severity == "info"


def test_whole_gpus_beside_a_partitioned_one_may_be_meant() -> None:
    both = GpuMig(
        rows=(*mig(SMALL).rows, MigRow(index=1, on=False, next_on=False, instances=())),
        source="NVML",
    )
    two = launch_of(["vllm", "serve", "m", "-tp", "2"])
    assert examine(mig_split, both, two).findings[0].severity == "info"


@pytest.mark.parametrize("check", [mig_empty, mig_split, mig_pending])
def test_gpus_that_cannot_be_partitioned(check: object) -> None:
    result = examine(check, GpuMig(rows=(), source="NVML"))  # type: ignore[arg-type]
    assert result.outcome == "not_applicable"
