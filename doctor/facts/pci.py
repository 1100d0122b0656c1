"""The PCI bus: the only witness of a GPU that needs no driver."""

from __future__ import annotations

from infer_doctor.facts.machine import Identity
from infer_doctor.frozen import frozen
from infer_doctor.host import Host
from infer_doctor.registry import probe


@frozen
class PciDevice:
    """One NVIDIA function on the bus. Link speeds and widths are sysfs's own words."""

    address: str
    driver: str | None
    class_code: str
    device_id: str
    link: tuple[str | None, str | None, str | None, str | None]
    """Current speed, current width, maximal speed, maximal width."""

    @property
    def is_gpu(self) -> bool:
        """VGA (0x0300) or 3D (0x0302) controller: no audio, USB or NVSwitch function."""
        return self.class_code.startswith(("0x0300", "0x0302"))


@frozen
class PciBus:
    """All NVIDIA functions; `devices` counts those of every vendor."""

    devices: int
    nvidia: tuple[PciDevice, ...]

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """The functions that compute."""
        return tuple(device for device in self.nvidia if device.is_gpu)


@probe
def pci_bus(host: Host) -> PciBus:
    """Read /sys/bus/pci/devices; containers see the bus of their host."""
    found = host.ask("pci")
    return PciBus(
        devices=found["devices"],
        nvidia=tuple(
            PciDevice(
                address=row["address"],
                driver=row["driver"],
                class_code=row["class"] or "",
                device_id=row["device"] or "",
                link=(
                    row["current_link_speed"],
                    row["current_link_width"],
                    row["max_link_speed"],
                    row["max_link_width"],
                ),
            )
            for row in found["nvidia"]
        ),
    )


def proof_of_absence(bus: PciBus | None, identity: Identity | None) -> str | None:
    """Why there can be no NVIDIA GPU here, or None when that is not proven.

    The bus alone is no proof: a GPU of WSL2 (/dev/dxg) or of a Jetson (/dev/nvhost-*) is not on it.
    """
    if bus is None or identity is None or bus.nvidia or identity.devices:
        return None
    return f"no NVIDIA device among the {bus.devices} on the PCI bus, none in /dev"
