"""GPUs that are ill or held back: memory, recovery, heat and power."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.health import (
    HARDWARE_SLOWDOWN,
    NO_RECOVERY,
    POWER_BRAKE,
    RECOVERY,
    SLOWDOWNS,
    THERMAL,
    Recovery,
)
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.chosen import ChosenGpus, left_out
from infer_doctor.facts.gpu import GpuEcc
from infer_doctor.facts.gpu_health import (
    ClockRow,
    GpuClocks,
    GpuRecovery,
    GpuRemaps,
    GpuRetiredPages,
    RemapRow,
)
from infer_doctor.fixes.gpu import reset_gpu
from infer_doctor.fixes.gpu_health import (
    check_power,
    cool_gpu,
    diagnose_gpu,
    drain_gpu,
    reboot_host,
    reset_when_idle,
)
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import plural


@check("gpu-rows-pending", severity="warning", category="gpu_health", since="0.1")
def rows_pending(remaps: GpuRemaps) -> Iterator[Finding]:
    """A faulty row of GPU memory waits for the reset that replaces it.

    ## Why it matters
    The row had an uncorrectable error or too many correctable ones. The process that met it is
    dead; others go on unharmed, but the memory is repaired only by a reset.

    ## How it decides
    nvmlDeviceGetRemappedRows says that a remapping is pending. NVIDIA: "unaffected applications
    can continue running ... and new workloads can be launched", so it is a warning
    (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/). GPUs before Ampere have no remapping:
    gpu-pages-pending is about them. With MIG instances NVML does not tell.

    ## Fix safety
    Manual: a reset ends all work on the GPU.
    """
    _require_rows(remaps)
    for row in remaps.rows:
        if row.pending:
            yield Finding(
                about=f"GPU {row.index}",
                message=f"GPU {row.index}: a faulty memory row waits for the next reset to be "
                f"replaced; {_replaced(row)} so far",
                evidence=(_remap_evidence(row, remaps.source),),
                fixes=(reset_when_idle(row.index),),
            )


@check("gpu-rows-failed", severity="error", category="gpu_health", since="0.1")
def rows_failed(remaps: GpuRemaps, chosen: ChosenGpus | None) -> Iterator[Finding]:
    """A faulty row of GPU memory could not be replaced.

    ## Why it matters
    The fault stays in use: the next process that reads there dies with an uncorrectable error
    (Xid 64, 94 or 95), an engine after minutes or days.

    ## How it decides
    nvmlDeviceGetRemappedRows says that a remapping failed at some time. The flag stays until
    service; NVIDIA counts it among the reasons for a replacement after the field diagnostic
    (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/, RMA policy). A warning for a GPU that
    the engine does not take.

    ## Fix safety
    Manual: the GPU has to be diagnosed.
    """
    _require_rows(remaps)
    for row in remaps.rows:
        if row.failed:
            yield Finding(
                about=f"GPU {row.index}",
                message=f"GPU {row.index}: a faulty memory row could not be replaced; "
                f"{_replaced(row)} so far",
                severity="warning" if left_out(row.index, chosen) else None,
                evidence=(_remap_evidence(row, remaps.source),),
                fixes=(diagnose_gpu(row.index),),
            )


def _require_rows(remaps: GpuRemaps) -> None:
    if not remaps.rows:
        raise NotApplicable("no GPU here tells of row remapping (before Ampere, or MIG)")


def _replaced(row: RemapRow) -> str:
    return (
        f"{plural(row.uncorrected, 'row')} replaced after uncorrectable and {row.corrected} after "
        "correctable errors"
    )


def _remap_evidence(row: RemapRow, source: str) -> Evidence:
    return Evidence(
        source=source,
        excerpt=f"GPU {row.index}: remapped rows: correctable {row.corrected}, uncorrectable "
        f"{row.uncorrected}, pending {row.pending:d}, failure {row.failed:d}",
    )


@check("gpu-pages-pending", severity="warning", category="gpu_health", since="0.1")
def pages_pending(pages: GpuRetiredPages) -> Iterator[Finding]:
    """A page of GPU memory with errors waits to be retired.

    ## Why it matters
    Until the driver is loaded again the page stays in use, and the next process that meets its
    error dies (Xid 48).

    ## How it decides
    nvmlDeviceGetRetiredPagesPendingStatus, for GPUs before Ampere
    (https://docs.nvidia.com/deploy/dynamic-page-retirement/).

    ## Fix safety
    Manual: the GPU is reset or the host rebooted.
    """
    if not pages.pending:
        raise NotApplicable("no GPU here retires pages (Ampere and newer remap rows)")
    for index, pending in pages.pending.items():
        if pending:
            yield Finding(
                about=f"GPU {index}",
                message=f"GPU {index}: a memory page with errors is still in use; it is retired at "
                "the next reset",
                evidence=(
                    Evidence(source=pages.source, excerpt=f"GPU {index}: retired pages pending 1"),
                ),
                fixes=(reset_when_idle(index),),
            )


@check("gpu-reset-needed", severity="error", category="gpu_health", since="0.1")
def reset_needed(
    recovery: GpuRecovery, ecc: GpuEcc | None, chosen: ChosenGpus | None
) -> Iterator[Finding]:
    """The driver asks for a reset of a GPU or a reboot.

    ## Why it matters
    After a fault the driver refuses work on the GPU or gives only a part of it; the engine then
    dies in cuInit or at its first tensor, with a message that names no fault.

    ## How it decides
    nvmlDeviceGetFieldValues, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which drivers tell since 565: a
    reset or reboot is an error; "drain", with which running work may end, is a warning. Also a
    warning where gpu-ecc-uncorrected names the memory error behind it, and for a GPU that the
    engine does not take.

    ## Fix safety
    Manual: a reset or reboot ends all work.
    """
    if not recovery.actions and not recovery.gaps:
        raise NotApplicable("this driver does not tell it (before 565)")
    named = {row.index for row in ecc.rows if row.uncorrected} if ecc else set()
    for index, action in recovery.actions.items():
        if action == NO_RECOVERY:
            continue
        known = RECOVERY.get(action)
        words = known.words if known else f"recovery action {action}"
        spared = index in named or left_out(index, chosen)
        certain = known is not None and known.now and not spared
        yield Finding(
            about=f"GPU {index}",
            message=f"GPU {index}: the driver says: {words}",
            severity=None if certain else "warning",
            evidence=(
                Evidence(source=recovery.source, excerpt=f"GPU {index}: recovery action {action}"),
            ),
            fixes=(_recovery_fix(index, known, words),),
        )


def _recovery_fix(index: int, known: Recovery | None, words: str) -> Fix:
    if known is None or not known.now:
        return drain_gpu(index, words)
    return reboot_host(words) if known.reboot else reset_gpu(index)


@check("gpu-throttled", severity="warning", category="gpu_health", since="0.1")
def throttled(clocks: GpuClocks) -> Iterator[Finding]:
    """Heat or the power supply slows a GPU down.

    ## Why it matters
    A hardware slowdown halves the clock or worse. With tensor parallelism all ranks wait for the
    slowest GPU, so one hot card slows the whole engine.

    ## How it decides
    nvmlDeviceGetCurrentClocksThrottleReasons has one of the bits 0x8 hardware slowdown, 0x20
    software thermal, 0x40 hardware thermal, 0x80 power brake (signalled from outside, by the power
    supply). Idle, the software power cap, which is the normal state under load, and clocks that
    were set on purpose do not count. Bit 0x8 alone may also be a change of clocks (NVML's words),
    so it is only possible. It is the state of this moment.

    ## Fix safety
    Manual: it is about cooling and power.
    """
    for row in clocks.rows:
        bits = [bit for bit in SLOWDOWNS if row.reasons & bit]
        if not bits:
            continue
        causes = [bit for bit in bits if bit != HARDWARE_SLOWDOWN] or bits
        yield Finding(
            about=f"GPU {row.index}",
            message=f"GPU {row.index} is slowed down: {', '.join(SLOWDOWNS[b] for b in causes)}"
            f"{_heat(row)}",
            confidence="possible" if causes == [HARDWARE_SLOWDOWN] else "certain",
            evidence=(
                Evidence(
                    source=clocks.source,
                    excerpt=f"GPU {row.index}: clocks event reasons 0x{row.reasons:x}",
                ),
            ),
            fixes=_slowdown_fixes(row),
        )


def _heat(row: ClockRow) -> str:
    if row.temperature is None:
        return ""
    bound = f", slowdown from {row.slowdown_at} C" if row.slowdown_at else ""
    return f"; {row.temperature} C{bound}"


def _slowdown_fixes(row: ClockRow) -> tuple[Fix, ...]:
    fixes = []
    if row.reasons & THERMAL:
        fixes.append(cool_gpu(row.index))
    if row.reasons & POWER_BRAKE:
        fixes.append(check_power(row.index))
    return tuple(fixes) or (cool_gpu(row.index), check_power(row.index))
