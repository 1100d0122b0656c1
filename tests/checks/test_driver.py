"""The checks of the driver."""

from infer_doctor.checks.driver import driver_missing
from infer_doctor.facts.driver import KernelModule
from infer_doctor.facts.pci import PciBus, PciDevice
from infer_doctor.model import Evidence
from infer_doctor.testing import contract

H200 = PciDevice(
    address="0000:00:06.0",
    driver=None,
    class_code="0x030200",
    device_id="0x2335",
    link=(None, None, None, None),
)
BUS = PciBus(devices=8, nvidia=(H200,))
FILE = "/proc/driver/nvidia/version"


def test_driver_missing() -> None:
    absent = KernelModule(version=None, open=False, evidence=Evidence(source=FILE))
    loaded = KernelModule(version="580.159.04", open=True, evidence=Evidence(source=FILE))
    contract(driver_missing, fires=[BUS, absent], passes=[BUS, loaded])
