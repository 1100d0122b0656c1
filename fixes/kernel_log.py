"""Fixes for what the kernel's log tells."""

from __future__ import annotations

from infer_doctor.fixes.gpu import reset_gpu
from infer_doctor.fixes.gpu_health import reboot_host
from infer_doctor.model import Action, Fix

CATALOGUE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


def handle_xid(code: int, action: str, index: int | None) -> tuple[Fix, ...]:
    """NVIDIA's immediate action for the code; nothing where none is needed."""
    if action == "none":
        return ()
    if action == "reboot":
        return (reboot_host(f"Xid {code}"),)
    if action == "reset" and index is not None:
        return (reset_gpu(index),)
    titles = {
        "restart": "Start the process that died again; if the code returns, search its program",
        "reset": "Reset the GPU, or reboot the host; have it diagnosed if the code returns",
        "power": "Connect the auxiliary power cable of the board",
        "update": "Install matching guest and host drivers for the vGPU",
        "support": "Watch whether it returns; then ask the vendor",
    }
    return (
        Fix(
            id=f"handle-xid-{code}",
            title=f"{titles[action]} (Xid {code})",
            safety="manual",
            restarts=action != "support",
            actions=(Action(kind="text", text=f"NVIDIA's catalogue: {CATALOGUE}"),),
        ),
    )


def give_memory(*, group: bool) -> Fix:
    """The bound is the control group or the host."""
    where = "Raise the memory limit of the container or service" if group else "Free host memory"
    return Fix(
        id="give-memory",
        title=f"{where}, or load less: a smaller model, a lower --cpu-offload-gb",
        safety="manual",
        restarts=True,
    )
