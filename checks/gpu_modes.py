"""Settings of GPUs that decide who may use them and how: models, compute mode, MIG."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.health import COMPUTE_MODES, EXCLUSIVE, PROHIBITED
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.chosen import BY_BUS, ORDER, ChosenGpus, left_out
from infer_doctor.facts.gpu import GpuProcesses, Gpus
from infer_doctor.facts.gpu_health import GpuComputeModes, GpuMig, MigInstance, MigRow
from infer_doctor.facts.machine import Environ
from infer_doctor.fixes.gpu_health import (
    create_instance,
    default_compute_mode,
    order_by_bus,
    reset_when_idle,
    switch_mig_off,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.sizes import ranks as ranks_of
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import gib, plural


@check("gpu-models-mixed", severity="warning", category="device_ids", since="0.1")
def models_mixed(gpus: Gpus, environ: Environ) -> Iterator[Finding]:
    """GPUs of different models, and CUDA numbers them in an order of its own.

    ## Why it matters
    CUDA puts the fastest first, nvidia-smi and NVML go by the bus. So CUDA_VISIBLE_DEVICES=0 means
    another card than GPU 0 of nvidia-smi, and vLLM, which asks NVML for the capability by index,
    may judge the wrong one; it warns "Detected different devices in the system".

    ## How it decides
    NVML lists more than one name, and CUDA_DEVICE_ORDER is not PCI_BUS_ID: vLLM's own condition
    (platforms/cuda.py, log_warnings).

    ## Fix safety
    Safe: it changes the environment of the next start only.
    """
    if len(gpus.gpus) < 2 and not gpus.gaps:
        raise NotApplicable("not more than one GPU")
    names = list(dict.fromkeys(gpu.name for gpu in gpus.gpus))
    order = environ.variables.get(ORDER)
    if len(names) < 2 or order == BY_BUS:
        return
    said = f"{ORDER}={order}" if order else f"{ORDER} is not set"
    listed = ", ".join(
        f"{name} (GPU {', '.join(str(g.index) for g in gpus.gpus if g.name == name)})"
        for name in names
    )
    yield Finding(
        about=ORDER,
        message=f"{plural(len(names), 'model')} of GPU: {listed}; {said}, so CUDA numbers the "
        "fastest first",
        evidence=(
            Evidence(source=gpus.source, excerpt=", ".join(gpu.name for gpu in gpus.gpus)),
            Evidence(source="environment", excerpt=said),
        ),
        fixes=(order_by_bus(),),
    )


@check("gpu-compute-mode", severity="error", category="gpu_health", since="0.1")
def compute_mode(
    modes: GpuComputeModes, processes: GpuProcesses | None, chosen: ChosenGpus | None
) -> Iterator[Finding]:
    """A GPU's compute mode keeps processes out.

    ## Why it matters
    In the mode "prohibited" no process gets a context; in "exclusive process" only one does, and
    the next one fails with "CUDA-capable device(s) is/are busy or unavailable" (46).

    ## How it decides
    nvmlDeviceGetComputeMode. Prohibited is an error. Exclusive is enough for vLLM and TensorRT-LLM,
    whose workers each take a GPU of their own, and only an info; a warning when a process already
    holds the GPU, or when it is not known. Two things of vLLM need more than one process a GPU:
    VLLM_SKIP_P2P_CHECK=0, the default before 0.11, whose test processes open every GPU
    (distributed/device_communicators/custom_all_reduce_utils.py), and a second engine. GPUs that
    the engine does not take are left alone.

    ## Fix safety
    Manual: the mode holds for all users of the host.
    """
    busy = {process.gpu for process in processes.processes} if processes else set(modes.modes)
    for index, mode in modes.modes.items():
        if (mode != PROHIBITED and mode not in EXCLUSIVE) or left_out(index, chosen):
            continue
        held = index in busy and mode != PROHIBITED
        yield Finding(
            about=f"GPU {index}",
            message=f"GPU {index}: compute mode {COMPUTE_MODES[mode]}: "
            + ("no process may use it" if mode == PROHIBITED else "one process may use it")
            + (", and one does" if held and processes else ""),
            severity=None if mode == PROHIBITED else "warning" if held else "info",
            evidence=(Evidence(source=modes.source, excerpt=f"GPU {index}: compute mode {mode}"),),
            fixes=(default_compute_mode(index),),
        )


@check("gpu-mig-empty", severity="error", category="gpu_health", since="0.1")
def mig_empty(mig: GpuMig, chosen: ChosenGpus | None) -> Iterator[Finding]:
    """A GPU is in MIG mode and has no instance.

    ## Why it matters
    CUDA does not offer the GPU at all: error 100 or "No CUDA GPUs are available", while nvidia-smi
    shows it.

    ## How it decides
    nvmlDeviceGetMigMode is on and nvmlDeviceGetMigDeviceHandleByIndex finds no device. Inside a
    container the instances that it was not given are not seen (MIG User Guide). GPUs that the
    engine does not take are left alone.

    ## Fix safety
    Manual: instances or the mode belong to the host.
    """
    _require_mig(mig)
    for row in mig.rows:
        if row.on and row.instances == () and not left_out(row.index, chosen):
            yield Finding(
                about=f"GPU {row.index}",
                message=f"GPU {row.index}: MIG is on, but there is no instance: CUDA does not see "
                "this GPU",
                evidence=(_mig_evidence(row, mig.source),),
                fixes=(create_instance(row.index),),
            )


@check("gpu-mig-split", severity="info", category="gpu_health", since="0.1")
def mig_split(mig: GpuMig, launch: Launch | None) -> Iterator[Finding]:
    """A GPU is partitioned into MIG instances.

    ## Why it matters
    A process sees one instance and its memory, not the GPU. Instances have no peer-to-peer access,
    neither over NVLink nor PCIe, so tensor or pipeline parallelism over them is not possible.

    ## How it decides
    nvmlDeviceGetMigMode and the MIG devices with their memory. "A single CUDA process can only
    enumerate a single MIG device" (MIG User Guide, "CUDA Device Enumeration"). An error when a
    launch wants several ranks and all GPUs are partitioned: its second rank finds "invalid device
    ordinal".

    ## Fix safety
    Manual: the mode belongs to the host.
    """
    _require_mig(mig)
    split = [row for row in mig.rows if row.on and row.instances]
    ranks = (ranks_of(launch) if launch else None) or 1
    whole = len(split) < len(mig.rows) or bool(mig.gaps)
    for row in split:
        wants = f"; the launch wants {ranks} ranks" if ranks > 1 else ""
        yield Finding(
            about=f"GPU {row.index}",
            message=f"GPU {row.index} is partitioned: {_instances(row.instances or ())}; a process "
            f"sees one of them{wants}",
            severity="error" if ranks > 1 and not whole else None,
            evidence=(_mig_evidence(row, mig.source),),
            fixes=(switch_mig_off(str(row.index)),) if ranks > 1 else (),
        )


@check("gpu-mig-pending", severity="warning", category="gpu_health", since="0.1")
def mig_pending(mig: GpuMig) -> Iterator[Finding]:
    """A change of a GPU's MIG mode waits for a reset.

    ## Why it matters
    The mode that was set is not the one in force: instances cannot be made, or the GPU is still
    partitioned.

    ## How it decides
    The current and the pending mode of nvmlDeviceGetMigMode differ.

    ## Fix safety
    Manual: a reset ends all work on the GPU.
    """
    _require_mig(mig)
    for row in mig.rows:
        if row.on != row.next_on:
            now, later = ("on", "off") if row.on else ("off", "on")
            yield Finding(
                about=f"GPU {row.index}",
                message=f"GPU {row.index}: MIG is {now}, and {later} after the next reset",
                evidence=(_mig_evidence(row, mig.source),),
                fixes=(reset_when_idle(row.index),),
            )


def _require_mig(mig: GpuMig) -> None:
    if not mig.rows and not mig.gaps:
        raise NotApplicable("no GPU here can be partitioned (MIG)")


def _instances(instances: tuple[MigInstance, ...]) -> str:
    """2 instances (1g.10gb 9.5 GiB, 3g.40gb 39.5 GiB)."""
    words = []
    for instance in instances[:4]:
        profile = instance.name.rpartition("MIG ")[2]
        words.append(f"{profile} {gib(instance.total)}" if instance.total else profile)
    more = f" and {len(instances) - 4} more" if len(instances) > 4 else ""
    return f"{plural(len(instances), 'instance')} ({', '.join(words)}{more})"


def _mig_evidence(row: MigRow, source: str) -> Evidence:
    count = "unknown" if row.instances is None else str(len(row.instances))
    return Evidence(
        source=source,
        excerpt=f"GPU {row.index}: MIG mode {row.on:d}, pending {row.next_on:d}, instances {count}",
    )
