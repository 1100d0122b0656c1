"""Fixes for GPUs."""

from __future__ import annotations

import math

from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Action, AnyAction, EndProcess, Fix

LEAST_SHARE = 0.1
"""Below a tenth of a GPU a lower utilisation is no cure: say so by not offering it."""


def add_gpu_build() -> Fix:
    """Nothing on this machine cures a missing GPU."""
    return Fix(
        id="use-gpu-machine",
        title="Start on a machine with an NVIDIA GPU, or install vLLM's CPU build here",
        safety="manual",
        restarts=True,
    )


def repair_missing_gpu(address: str) -> Fix:
    """Find out why the driver does not offer a GPU."""
    return Fix(
        id="look-for-missing-gpu",
        title=f"Read the kernel log for {address}, then reset the GPU or reboot",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"dmesg | grep -iE 'NVRM|Xid|{address}'"),),
    )


def set_visible_devices(value: str) -> Fix:
    """Name the GPUs that exist, each once, by index."""
    return Fix(
        id="set-visible-devices",
        title=f"Start with CUDA_VISIBLE_DEVICES={value}",
        safety="safe",
        restarts=True,
        actions=(set_variable("CUDA_VISIBLE_DEVICES", value),),
    )


def end_process(pid: int, started: int | None, name: str, *, orphan: bool) -> Fix:
    """End a process that holds GPU memory; by itself the doctor ends only a dead engine's rest."""
    why = "no server or launcher stands above it" if orphan else "only if you know it is not needed"
    command = f"kill {pid}"
    action: AnyAction = Action(kind="command", text=command)
    if orphan and started is not None:
        action = EndProcess(text=command, pid=pid, started=started, name=name)
    return Fix(
        id=f"end-pid-{pid}",
        title=f"End PID {pid}{f' ({name})' if name else ''}",
        safety="unsafe",
        restarts=False,
        why=why,
        actions=(action,),
    )


def lower_utilisation(free: int, usable: int) -> tuple[Fix, ...]:
    """The largest utilisation that what is free allows, rounded down to what the flag takes."""
    share = math.floor(free / usable * 100) / 100
    if share < LEAST_SHARE:
        return ()
    return (
        Fix(
            id="lower-utilisation",
            title=f"Or share the GPU: start with --gpu-memory-utilization {share:g} at most",
            safety="manual",
            restarts=True,
            why="the weights and the KV cache have to fit into that share",
        ),
    )


def reset_gpu(index: int) -> Fix:
    """Reset a GPU after an uncorrected error."""
    return Fix(
        id=f"reset-gpu-{index}",
        title=f"Stop all work on GPU {index} and reset it; have it diagnosed if the error returns",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"nvidia-smi --gpu-reset -i {index}"),),
    )
