"""Fixes for GPUs that are ill, slow or set in a way that stops the engine. All belong to the host."""

from __future__ import annotations

from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Action, Fix


def diagnose_gpu(index: int) -> Fix:
    """Nothing that software does cures it."""
    return Fix(
        id=f"diagnose-gpu-{index}",
        title=f"Take GPU {index} out of service, have it diagnosed and replaced",
        safety="manual",
        restarts=True,
        why="NVIDIA's field diagnostic decides about a replacement; dcgmi diag is the first test",
        actions=(Action(kind="command", text=f"dcgmi diag -r 3 -i {index}"),),
    )


def reset_when_idle(index: int) -> Fix:
    """A reset is due, but nothing has to stop for it now."""
    return Fix(
        id=f"reset-idle-gpu-{index}",
        title=f"Reset GPU {index} when nothing runs on it",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"nvidia-smi --gpu-reset -i {index}"),),
    )


def reboot_host(words: str) -> Fix:
    """A reset of the GPU is not enough."""
    return Fix(
        id="reboot-host",
        title=f"Reboot the host: {words}",
        safety="manual",
        restarts=True,
        why="a reset of the GPU alone does not restore it",
    )


def drain_gpu(index: int, words: str) -> Fix:
    """Running work may end; new work waits."""
    return Fix(
        id=f"drain-gpu-{index}",
        title=f"Start nothing new on GPU {index}; when its work has ended: {words}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"nvidia-smi --gpu-reset -i {index}"),),
    )


def cool_gpu(index: int) -> Fix:
    """Heat."""
    return Fix(
        id=f"cool-gpu-{index}",
        title=f"Check fans, air flow and inlet temperature at GPU {index}",
        safety="manual",
        restarts=False,
        actions=(
            Action(kind="command", text=f"nvidia-smi -i {index} -q -d TEMPERATURE,PERFORMANCE"),
        ),
    )


def check_power(index: int) -> Fix:
    """The board or its supply asks for less power."""
    return Fix(
        id=f"check-power-gpu-{index}",
        title=f"Check the power supplies and cables that feed GPU {index}, and the host's power cap",
        safety="manual",
        restarts=False,
        actions=(Action(kind="command", text=f"nvidia-smi -i {index} -q -d POWER,PERFORMANCE"),),
    )


def reseat_gpu(index: int, address: str | None) -> Fix:
    """The link trained below what both ends can."""
    command = f"lspci -vv -s {address}" if address else f"nvidia-smi -i {index} -q"
    return Fix(
        id=f"reseat-gpu-{index}",
        title=f"Check the slot, riser and BIOS settings of GPU {index}; reseat it",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text=f"{command} | grep -iE 'LnkCap|LnkSta|link'"),),
    )


def look_at_nvlink(index: int) -> Fix:
    """State and error counters of the links."""
    return Fix(
        id=f"look-at-nvlink-{index}",
        title=f"Read the NVLink counters of GPU {index}, reset the GPUs, then check its seating",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="command", text=f"nvidia-smi nvlink -s -i {index}"),
            Action(kind="command", text=f"nvidia-smi nvlink -e -i {index}"),
        ),
    )


def start_fabric_manager(driver: str | None, *, container: str | None, nvlink_five: bool) -> Fix:
    """Fabric Manager has to be of the driver's own version; NVLink 5 switches need NVLSM too."""
    version = driver or "the driver's own version"
    where = " on the host" if container else ""
    more = " and its subnet manager (nvlsm)" if nvlink_five else ""
    package = f"nvidia-fabricmanager-{driver.split('.')[0]}={driver}-1" if driver else None
    install = (Action(kind="command", text=f"apt-get install {package}"),) if package else ()
    return Fix(
        id="start-fabric-manager",
        title=f"Start Fabric Manager {version}{more}{where}",
        safety="manual",
        restarts=True,
        why="it must be of exactly the driver's version; in a virtual machine it runs on the host",
        actions=(
            Action(kind="command", text="systemctl status nvidia-fabricmanager"),
            *install,
            Action(kind="command", text="systemctl enable --now nvidia-fabricmanager"),
        ),
    )


def order_by_bus() -> Fix:
    """CUDA's order becomes that of nvidia-smi."""
    return Fix(
        id="order-devices-by-bus",
        title="Start with CUDA_DEVICE_ORDER=PCI_BUS_ID",
        safety="safe",
        restarts=True,
        actions=(set_variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
    )


def default_compute_mode(index: int) -> Fix:
    """Let processes use the GPU again."""
    return Fix(
        id=f"default-compute-mode-{index}",
        title=f"Set the compute mode of GPU {index} back to the default",
        safety="manual",
        restarts=False,
        why="it holds for all users of the host until the next reboot",
        actions=(Action(kind="command", text=f"nvidia-smi -i {index} -c DEFAULT"),),
    )


def create_instance(index: int) -> Fix:
    """Either instances, or the whole GPU."""
    return Fix(
        id=f"create-mig-instance-{index}",
        title=f"Create a MIG instance on GPU {index}, or switch MIG off",
        safety="manual",
        restarts=True,
        why="the profiles of this GPU: nvidia-smi mig -lgip",
        actions=(
            Action(kind="command", text=f"nvidia-smi mig -i {index} -cgi 0 -C"),
            Action(kind="command", text=f"nvidia-smi -i {index} -mig 0"),
        ),
    )


def switch_mig_off(indices: str) -> Fix:
    """One engine over several instances does not work."""
    return Fix(
        id="switch-mig-off",
        title=f"Start with one rank, or switch MIG off on GPU {indices}",
        safety="manual",
        restarts=True,
        why="CUDA shows a process one MIG instance, and instances have no peer-to-peer access",
        actions=(Action(kind="command", text=f"nvidia-smi -i {indices} -mig 0"),),
    )
