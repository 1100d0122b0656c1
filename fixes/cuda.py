"""Fixes for a CUDA driver that does not start."""

from __future__ import annotations

import os

from infer_doctor.fixes.variables import set_variable
from infer_doctor.model import Action, Fix


def unset_visible_devices() -> Fix:
    """The variable hides every GPU."""
    return Fix(
        id="unset-visible-devices",
        title="Start without CUDA_VISIBLE_DEVICES, or with the indices that nvidia-smi -L shows",
        safety="safe",
        restarts=True,
        actions=(set_variable("CUDA_VISIBLE_DEVICES", None),),
    )


def leave_out_library(path: str, why: str) -> Fix:
    """Another libcuda.so.1 than the driver's own is found first."""
    folder = os.path.dirname(path)
    return Fix(
        id="leave-out-libcuda",
        title=f"Take {folder} out of LD_LIBRARY_PATH and of the loader's configuration",
        safety="manual",
        restarts=True,
        why=why,
        actions=(
            Action(kind="command", text="echo $LD_LIBRARY_PATH; ldconfig -p | grep libcuda.so.1"),
        ),
    )


PACKAGES = (
    "Ubuntu: libnvidia-compute-{branch}-server; Debian: libcuda1; RHEL: nvidia-driver-cuda-libs; "
    "SUSE: nvidia-compute-G06"
)
"""The packages that bring libcuda.so.1 (NVIDIA driver installation guide, compute-only set-ups)."""


def install_libcuda(driver: str | None, *, container: str | None) -> Fix:
    """The kernel module is there, its CUDA library is not."""
    if container is not None:
        return Fix(
            id="give-libcuda",
            title="Start the container again with the NVIDIA run-time and the capability compute",
            safety="manual",
            restarts=True,
        )
    version = driver or "the driver's own version"
    branch = driver.split(".")[0] if driver else "580"
    return Fix(
        id="install-libcuda",
        title=f"Install the driver's CUDA library, libcuda.so.1, of {version}",
        safety="manual",
        restarts=True,
        actions=(Action(kind="text", text=PACKAGES.format(branch=branch)),),
    )


def raise_address_space() -> Fix:
    """CUDA reserves address space for all memory of all GPUs and of the host."""
    return Fix(
        id="raise-address-space",
        title="Start with an unlimited address space: ulimit -v unlimited",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text="ulimit -v unlimited"),),
    )


def open_nodes(names: str) -> Fix:
    """The driver's own mode is 0666 unless it was told otherwise."""
    return Fix(
        id="open-device-nodes",
        title=f"Give this user the right to open {names}",
        safety="manual",
        restarts=True,
        why="the driver makes them with mode 0666; NVreg_DeviceFileMode and udev rules change that",
        actions=(
            Action(kind="command", text="ls -l /dev/nvidia*"),
            Action(kind="command", text="grep DeviceFile /proc/driver/nvidia/params"),
        ),
    )


def give_uvm(container: str | None) -> Fix:
    """CUDA needs the node of nvidia-uvm beside those of the GPUs."""
    if container is not None:
        return Fix(
            id="give-nvidia-uvm",
            title="Load nvidia_uvm on the host and start the container again with its GPUs",
            safety="manual",
            restarts=True,
            why="the run-time passes the node on only when it is there and right at that moment",
            actions=(Action(kind="command", text="nvidia-modprobe -c 0 -u"),),
        )
    return Fix(
        id="reload-nvidia-uvm",
        title="End all work on the GPUs and load nvidia_uvm again",
        safety="manual",
        restarts=True,
        why="it often loses its state over a suspend",
        actions=(
            Action(kind="command", text="rmmod nvidia_uvm"),
            Action(kind="command", text="nvidia-modprobe -c 0 -u"),
        ),
    )


def disable_hmm() -> Fix:
    """NVIDIA's workaround for kernels whose KASLR leaves no room."""
    return Fix(
        id="disable-uvm-hmm",
        title="Switch HMM off for nvidia_uvm on the host and load it again",
        safety="manual",
        restarts=True,
        why="this kernel places itself where nvidia_uvm needs room (CUDA 13.2 release notes)",
        actions=(
            Action(
                kind="command",
                text="echo 'options nvidia_uvm uvm_disable_hmm=1' > /etc/modprobe.d/uvm.conf",
            ),
            Action(kind="command", text="modprobe -r nvidia_uvm && modprobe nvidia_uvm"),
        ),
    )


def start_mps(directory: str, *, set: bool) -> Fix:
    """Either the daemon or no MPS."""
    return Fix(
        id="start-mps",
        title="Start the MPS daemon again, or leave MPS out"
        + (": unset CUDA_MPS_PIPE_DIRECTORY" if set else f": remove {directory}"),
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="command", text="echo quit | nvidia-cuda-mps-control"),
            Action(kind="command", text="nvidia-cuda-mps-control -d"),
        ),
    )
