"""Where we are: the host, its container, its environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.host import Host, Unavailable
from infer_doctor.registry import probe

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's own name for the first PID name space (include/linux/proc_ns.h: PROC_PID_INIT_INO)."""

GVISOR_DATE = "Sun Jan 10 15:06:54 PST 2016"

WHOLE_UID_MAP = ["0", "0", "4294967295"]
"""/proc/self/uid_map of the first user name space (user_namespaces(7))."""


@frozen
class Identity:
    """The host and the name spaces the doctor runs in."""

    hostname: str
    kernel: str
    machine: str
    uid: int
    container: str | None
    """The kind of container ("docker", "podman", "kubernetes", "gvisor", ...), None outside."""
    initial_pid_namespace: bool
    devices: tuple[str, ...]
    """Names in /dev of NVIDIA devices: nvidia0, nvidiactl, nvidia-uvm, dxg (WSL2), nvhost-* (Jetson)."""
    platform: str | None = None
    """"wsl2", "jetson" or "gvisor" where the kernel is no ordinary Linux."""
    user_namespace: bool | None = None
    """Whether root here is another user outside, as in rootless Podman; None: not known."""


@frozen
class Environ:
    """The environment variables that an engine or its libraries read."""

    variables: Mapping[str, str] = field(metadata={"report": False})
    gaps: tuple[str, ...] = ()
    """Why a variable that is not here may be set all the same: a file lists only some."""


@frozen
class OperatingSystem:
    """What /etc/os-release says: `id` ("ubuntu", "debian", "rhel", ...) picks the package manager."""

    id: str
    like: tuple[str, ...]
    name: str


@probe
def identity(host: Host) -> Identity:
    """Read from uname, /proc/self/ns, /proc/1 and /dev."""
    found = host.ask("identity")
    variables = host.variables()
    return Identity(
        hostname=found["hostname"],
        kernel=found["kernel"],
        machine=found["machine"],
        uid=found["uid"],
        container=_container(found, variables),
        initial_pid_namespace=found["pid_namespace"] == INITIAL_PID_NAMESPACE,
        devices=tuple(found["devices"]),
        platform=_platform(host, found),
        user_namespace=_user_namespace(host),
    )


def _platform(host: Host, found: Mapping[str, Any]) -> str | None:
    """By the kernel's release, for gVisor of before 2026 by its version too.

    WSL2: "5.15.167.4-microsoft-standard-WSL2". Jetson: "5.15.148-tegra". gVisor: "4.19.0-gvisor", or
    "4.4.0" of a date that never changes (google/gvisor, pkg/sentry/kernel/version/version.go).
    """
    kernel = found["kernel"]
    if re.search(r"microsoft.*WSL2", kernel, re.I):
        return "wsl2"
    if kernel.endswith("-tegra") or any(name.startswith("nvhost") for name in found["devices"]):
        return "jetson"
    if kernel.endswith("-gvisor"):
        return "gvisor"
    if kernel == "4.4.0":
        try:
            text = host.read("/proc/version")
        except Unavailable:
            return None
        return "gvisor" if GVISOR_DATE in text else None
    return None


def _user_namespace(host: Host) -> bool | None:
    """/proc/self/uid_map maps every user to itself in the first user name space alone."""
    try:
        return host.read("/proc/self/uid_map").split() != WHOLE_UID_MAP
    except Unavailable:
        return None


def _container(found: Mapping[str, Any], variables: Mapping[str, str]) -> str | None:
    """The marks that container run-times leave; the innermost that is sure."""
    cgroup = found["cgroup"] or ""
    if "KUBERNETES_SERVICE_HOST" in variables or "kubepods" in cgroup:
        return "kubernetes"
    if found["containerenv"]:
        return "podman"
    if found["dockerenv"] or re.search(r"/docker[-/]", cgroup):
        return "docker"
    if found["kernel"].endswith("-gvisor"):
        return "gvisor"
    if re.search(r"/lxc[./]", cgroup):
        return "lxc"
    if re.search(r"/(containerd|crio|cri-containerd)", cgroup):
        return "containerd"
    return None


@probe
def environ(host: Host) -> Environ:
    """Of the doctor's own process: what an engine started from here would inherit."""
    return Environ(variables=host.variables())


@probe
def operating_system(host: Host) -> OperatingSystem:
    """Parse /etc/os-release (os-release(5))."""
    return parse_os_release(host.read("/etc/os-release"))


def parse_os_release(text: str) -> OperatingSystem:
    """KEY=value lines, values quoted as a shell would."""
    rows = re.findall(r'^([A-Z_]+)=["\']?(.*?)["\']?\s*$', text, re.M)
    fields: dict[str, str] = dict(rows)
    return OperatingSystem(
        id=fields.get("ID", ""),
        like=tuple(fields.get("ID_LIKE", "").split()),
        name=fields.get("PRETTY_NAME", fields.get("NAME", "Linux")),
    )
