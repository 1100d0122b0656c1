"""Where we are: kernels that are no ordinary Linux, user name spaces, containers."""

from __future__ import annotations

from typing import Any

import pytest

from infer_doctor.facts.machine import Identity, identity
from infer_doctor.hands import VERSIONS
from infer_doctor.host import Capture, Host

WHOLE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n         1     100000      65536\n"
GVISOR = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n"


def asked(operation: str, value: dict[str, Any], **arguments: Any) -> Capture:
    return Capture(
        operation=operation, arguments=arguments, version=VERSIONS[operation], value=value
    )


def read(path: str, text: str) -> Capture:
    return asked("read", {"text": text, "truncated": False}, path=path, limit=1 << 20)


def found(kernel: str, *more: Capture, devices: tuple[str, ...] = (), **marks: Any) -> Identity:
    answer = {
        "hostname": "node",
        "kernel": kernel,
        "machine": "x86_64",
        "uid": 0,
        "pid_namespace": "pid:[4026532000]",
        "devices": list(devices),
        "cgroup": "0::/",
        "containerenv": False,
        "dockerenv": False,
        **marks,
    }
    rows = [asked("identity", answer), asked("environ", {"variables": {}}), *more]
    return identity(Host(rows))


@pytest.mark.parametrize(
    ("kernel", "devices", "platform"),
    [
        ("6.8.0-85-generic", ("nvidia0",), None),
        ("6.8.0-1013-nvidia-64k", (), None),
        ("5.15.167.4-microsoft-standard-WSL2", ("dxg",), "wsl2"),
        ("4.4.0-19041-Microsoft", (), None),
        ("5.15.148-tegra", (), "jetson"),
        ("6.8.12", ("nvhost-gpu",), "jetson"),
        ("4.19.0-gvisor", (), "gvisor"),
        ("4.4.0-210-generic", (), None),
    ],
)
def test_platform(kernel: str, devices: tuple[str, ...], platform: str | None) -> None:
    assert found(kernel, devices=devices).platform == platform


def test_gvisor_of_before() -> None:
    assert found("4.4.0", read("/proc/version", GVISOR)).platform == "gvisor"
    real = "Linux version 4.4.0 (builder@host) #1 SMP Mon Jan 11 2016\n"
    assert found("4.4.0", read("/proc/version", real)).platform is None
    assert found("4.4.0").platform is None


@pytest.mark.parametrize(("text", "namespace"), [(WHOLE, False), (ROOTLESS, True)])
def test_user_namespace(text: str, namespace: bool) -> None:
    assert found("6.8", read("/proc/self/uid_map", text)).user_namespace is namespace


def test_without_an_answer_nothing_is_said() -> None:
    assert found("6.8").user_namespace is None


@pytest.mark.parametrize(
    ("kernel", "marks", "container"),
    [
        ("6.8", {}, None),
        ("6.8", {"dockerenv": True}, "docker"),
        ("6.8", {"containerenv": True}, "podman"),
        ("6.8", {"cgroup": "0::/kubepods/x"}, "kubernetes"),
        ("6.8", {"cgroup": "0::/lxc.payload/x"}, "lxc"),
        ("4.19.0-gvisor", {}, "gvisor"),
        ("4.19.0-gvisor", {"dockerenv": True}, "docker"),
    ],
)
def test_container(kernel: str, marks: dict[str, Any], container: str | None) -> None:
    assert found(kernel, **marks).container == container
