"""Fixes for containers: what has to change where the container is started.

From inside nothing can be changed, so all are manual. The words differ by who starts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.model import Action, Fix


def _by_kind(
    kind: str | None, *, docker: str, podman: str, kubernetes: Sequence[str]
) -> tuple[Action, ...]:
    """The steps for the program that started the container, as far as it is known."""
    if kind == "kubernetes":
        return tuple(Action(kind="text", text=text) for text in kubernetes)
    if kind == "podman":
        return (Action(kind="command", text=f"podman run {podman} ..."),)
    program = "nerdctl" if kind == "containerd" else "docker"
    return (Action(kind="command", text=f"{program} run {docker} ..."),)


def give_gpus(kind: str | None) -> Fix:
    """Start the container with GPUs (Docker: --gpus; Podman: CDI; Kubernetes: the device plugin)."""
    actions = _by_kind(
        kind,
        docker="--gpus all",
        podman="--device nvidia.com/gpu=all",
        kubernetes=(
            "in the container's resources: limits: {nvidia.com/gpu: 1}",
            "in the pod's spec, where nvidia is not the default run-time: runtimeClassName: nvidia",
            "the node has to offer nvidia.com/gpu: kubectl describe node NODE | grep nvidia.com/gpu",
        ),
    )
    if kind == "podman":
        first = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        actions = (Action(kind="command", text=first), *actions)
    if kind == "docker":
        compose = (
            "in Compose: deploy: {resources: {reservations: {devices: "
            "[{driver: nvidia, count: all, capabilities: [gpu]}]}}}"
        )
        actions = (*actions, Action(kind="text", text=compose))
    title = {
        "kubernetes": "Ask for GPUs in the pod: resources.limits nvidia.com/gpu",
        "podman": "Start the container with --device nvidia.com/gpu=all",
    }.get(kind or "", "Start the container with --gpus all")
    why = None if kind == "kubernetes" else "the host needs the NVIDIA Container Toolkit"
    return Fix(
        id="start-container-with-gpus",
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=actions,
    )


def set_driver_capabilities(kind: str | None) -> Fix:
    """Let the NVIDIA run-time mount the libraries of CUDA and NVML."""
    setting = "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return Fix(
        id="set-driver-capabilities",
        title=f"Start the container with {setting}",
        safety="manual",
        restarts=True,
        actions=_by_kind(
            kind,
            docker=f"--gpus all -e {setting}",
            podman="--device nvidia.com/gpu=all",
            kubernetes=(
                "in the container's env: {name: NVIDIA_DRIVER_CAPABILITIES, "
                "value: 'compute,utility'}",
            ),
        ),
    )


def enlarge_shm(kind: str | None, gibibytes: int) -> Fix:
    """A larger /dev/shm; outside a container it is the host's own."""
    size = f"{gibibytes}g"
    if kind is None:
        return Fix(
            id="enlarge-shm",
            title=f"Mount /dev/shm with {gibibytes} GiB",
            safety="manual",
            restarts=True,
            actions=(Action(kind="command", text=f"mount -o remount,size={size} /dev/shm"),),
        )
    actions = _by_kind(
        kind,
        docker=f"--shm-size={size}",
        podman=f"--shm-size={size}",
        kubernetes=(
            "in the pod's volumes: {name: shm, emptyDir: {medium: Memory, "
            f"sizeLimit: {gibibytes}Gi}}}}",
            "in the container's volumeMounts: {name: shm, mountPath: /dev/shm}",
        ),
    )
    if kind == "docker":
        actions = (*actions, Action(kind="text", text=f"in Compose: shm_size: {size}b"))
    title = (
        f"Mount a memory volume of {gibibytes} GiB at /dev/shm"
        if kind == "kubernetes"
        else f"Start the container with --shm-size={size} (or --ipc=host)"
    )
    return Fix(id="enlarge-shm", title=title, safety="manual", restarts=True, actions=actions)
