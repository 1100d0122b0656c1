"""Fixes for the driver. All are manual: it belongs to the host and to all who use it."""

from __future__ import annotations

from infer_doctor.facts.machine import OperatingSystem
from infer_doctor.model import Action, Fix

INSTALL = {
    "debian": ("apt-get update", "apt-get install nvidia-driver-{branch}-server"),
    "rhel": ("dnf module install nvidia-driver:{branch}-open",),
    "suse": ("zypper install nvidia-open-driver-G06-signed-kmp-default",),
}
"""Family of distributions -> commands, from NVIDIA's driver installation guide
(https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/); {branch} is the major version."""


LONG_TERM_BRANCH = "580"
"""The long-term branch of 2025 to 2028: runs CUDA 13 and everything older, Maxwell to Blackwell
(https://docs.nvidia.com/datacenter/tesla/drivers/)."""


def _family(system: OperatingSystem | None) -> str | None:
    if system is None:
        return None
    names = {system.id, *system.like}
    if names & {"debian", "ubuntu"}:
        return "debian"
    if names & {"rhel", "fedora", "centos", "rocky", "almalinux", "amzn"}:
        return "rhel"
    return "suse" if names & {"suse", "sles", "opensuse"} else None


def install_driver(
    least: str, *, container: str | None, system: OperatingSystem | None, why: str | None = None
) -> Fix:
    """Install a driver of at least this version on the host."""
    branch = max(least.split(".")[0], LONG_TERM_BRANCH)
    family = _family(system)
    commands = INSTALL.get(family or "", ()) if container is None else ()
    return Fix(
        id="install-driver",
        title=f"Install NVIDIA driver {least} or newer on the host",
        safety="manual",
        restarts=True,
        why=why or ("a container uses the driver of its host" if container else None),
        actions=tuple(
            Action(kind="command", text=command.format(branch=branch)) for command in commands
        ),
    )


def older_torch(major: int) -> Fix:
    """Take a build for the CUDA that the driver runs."""
    return Fix(
        id="install-older-cuda-build",
        title=f"Or install an engine and torch that are built for CUDA {major}.x, in a new environment",
        safety="manual",
        restarts=True,
    )


def reload_driver(*, container: str | None) -> Fix:
    """Let kernel and user space agree."""
    if container is not None:
        return Fix(
            id="restart-container",
            title="Restart the container after the host's driver was updated and loaded; "
            "no driver library may be installed inside the image",
            safety="manual",
            restarts=True,
        )
    return Fix(
        id="reload-driver",
        title="Reboot, or end all work on the GPUs and reload the kernel module",
        safety="manual",
        restarts=True,
        why="the driver's libraries were updated under the running kernel module",
        actions=(
            Action(
                kind="command",
                text="rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia_uvm",
            ),
        ),
    )


def look_at_kernel_log() -> Fix:
    """The kernel log holds the reason."""
    return Fix(
        id="read-kernel-log",
        title="Read the driver's lines in the kernel log, then reload the driver or reboot",
        safety="manual",
        restarts=True,
        actions=(Action(kind="command", text="dmesg | grep -iE 'NVRM|Xid' | tail -20"),),
    )


def update_for_image(needs: str) -> Fix:
    """The host's driver or another tag of the image."""
    return Fix(
        id="driver-for-image",
        title=f"Update the host's driver to one that meets {needs}, or take an image for this one",
        safety="manual",
        restarts=True,
        why="the tags of nvidia/cuda and of engine images name their CUDA",
    )
