"""Machines out of network name spaces: each with a host name, an eth0 and an address on one bridge."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def missing() -> str | None:
    """Why this machine cannot have them, if it cannot."""
    if os.geteuid() != 0:
        return "name spaces need root"
    for tool in ("ip", "unshare", "iptables", "hostname"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    name = f"try{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None if tried.returncode == 0 else "ip netns add is refused here"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Hosts n0, n1, ... of one network."""

    def __init__(self, count: int) -> None:
        self._mark = f"d{os.getpid()}"
        self.names = [f"n{i}" for i in range(count)]

    def space(self, name: str) -> str:
        return f"{self._mark}{name}"

    def build(self) -> None:
        hub = self.space("hub")
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", hub, "link", "set", "br0", "up")
        for number, name in enumerate(self.names):
            space = self.space(name)
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            peer = ("peer", "name", f"port{number}", "netns", hub)
            _ip("-n", space, "link", "add", "eth0", "type", "veth", *peer)
            _ip("-n", hub, "link", "set", f"port{number}", "master", "br0", "up")
            self.address(name, f"10.77.0.{number + 1}/24")
            _ip("-n", space, "link", "set", "eth0", "up")

    def address(self, name: str, address: str) -> None:
        """Give a host this address instead of what it has."""
        _ip("-n", self.space(name), "addr", "flush", "dev", "eth0", "scope", "global")
        _ip("-n", self.space(name), "addr", "add", address, "dev", "eth0")

    def rename(self, name: str, interface: str) -> None:
        _ip("-n", self.space(name), "link", "set", "eth0", "down")
        _ip("-n", self.space(name), "link", "set", "eth0", "name", interface)
        _ip("-n", self.space(name), "link", "set", interface, "up")

    def block(self, name: str) -> None:
        """A firewall that drops every new connection to the host."""
        rule = ["iptables", "-A", "INPUT", "!", "-i", "lo", "-p", "tcp", "--syn", "-j", "DROP"]
        self.run_in(name, rule)

    def run_in(self, name: str, command: Sequence[str]) -> None:
        words = ["ip", "netns", "exec", self.space(name), *command]
        subprocess.run(words, check=True, capture_output=True)

    def start(
        self, name: str, command: Sequence[str], variables: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """A process on the host, under its host name."""
        script = 'hostname "$0" && exec "$@"'
        words = ["unshare", "--uts", "sh", "-c", script, name]
        words += ["ip", "netns", "exec", self.space(name), *command]
        return subprocess.Popen(
            words,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def remove(self) -> None:
        for name in [*self.names, "hub"]:
            space = self.space(name)
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    made = Hosts(count)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def snapshots(
    made: Hosts,
    command: Sequence[str],
    folder: Path,
    own: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """All hosts run the command at one time, as torchrun or mpirun would start it.

    `own`: further words of one host's command.
    """
    running = []
    for number, name in enumerate(made.names):
        variables = {
            "RANK": str(number),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(made.names)),
            "LOCAL_WORLD_SIZE": "1",
            "NCCL_SOCKET_IFNAME": "eth0",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        running.append(
            made.start(name, [*command, *(own or {}).get(name, ()), "--to", str(folder)], variables)
        )
    for child in running:
        text, _ = child.communicate(timeout=300)
        assert child.returncode == 0, text
