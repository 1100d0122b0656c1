"""Fixes for limits and memory of the host, in the words of what sets them."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.model import Action, Fix


def raise_limit(kind: str | None, name: str, value: str, systemd: str) -> Fix:
    """Raise a resource limit: where depends on who starts the engine.

    `name` and `value` are those of `docker run --ulimit`; `systemd` is the setting of a unit.
    """
    shell = "unlimited" if value == "-1" else value
    flag = f"--ulimit {name}={value}"
    if kind == "kubernetes":
        title = f"Raise {name} to {shell} where the node starts containers: {systemd}"
        actions = (
            Action(kind="command", text="systemctl edit containerd"),
            Action(kind="text", text=f"[Service] {systemd}"),
        )
        why = "Kubernetes has no field for limits: pods inherit those of the container run-time"
        return _limit_fix(name, title, actions, why)
    if kind is not None:
        program = kind if kind in ("docker", "podman") else "docker"
        command = f"{program} run {flag} ..."
        title = f"Start the container with {flag}"
        return _limit_fix(name, title, (Action(kind="command", text=command),), None)
    option = {"memlock": "-l", "nofile": "-n"}[name]
    return _limit_fix(
        name,
        f"Start the engine with {name} at {shell}",
        (
            Action(kind="command", text=f"ulimit {option} {shell}"),
            Action(kind="text", text=f"in a systemd unit: {systemd}"),
            Action(
                kind="text", text=f"for logins, in /etc/security/limits.conf: * - {name} {shell}"
            ),
        ),
        None,
    )


def _limit_fix(name: str, title: str, actions: tuple[Action, ...], why: str | None) -> Fix:
    return Fix(
        id=f"raise-{name}",
        title=title,
        safety="manual",
        restarts=True,
        why=why,
        actions=actions,
    )


def more_memory(kind: str | None, gibibytes: int) -> Fix:
    """More memory for the container or the machine."""
    if kind == "kubernetes":
        title = f"Set the container's resources.limits.memory to {gibibytes}Gi or more"
    elif kind is not None:
        title = f"Start the container with --memory={gibibytes}g or more"
    else:
        title = f"Use a machine with {gibibytes} GiB of memory or more, or raise the group's limit"
    return Fix(id="more-host-memory", title=title, safety="manual", restarts=True)


def free_memory() -> Fix:
    """See what holds the memory."""
    return Fix(
        id="free-host-memory",
        title="End what holds the host's memory before the start",
        safety="manual",
        restarts=False,
        actions=(Action(kind="command", text="ps -eo pid,rss,comm --sort=-rss | head"),),
    )


def other_cpu(missing: Sequence[str]) -> Fix:
    """Show the guest the real processor, or go where there is a newer one."""
    return Fix(
        id="other-cpu",
        title=f"Run where the CPU has {', '.join(missing)}; in a virtual machine set its CPU model "
        "to the host's",
        safety="manual",
        restarts=True,
        actions=(
            Action(kind="text", text="QEMU, libvirt: -cpu host, <cpu mode='host-passthrough'/>"),
        ),
    )
