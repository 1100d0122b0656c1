"""Device nodes, with another folder for /dev and another list of drivers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infer_doctor.hands import devices

NUMBERS = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
238 nvidia-uvm
239 nvidia-nvswitch

Block devices:
259 blkext
"""


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    numbers = tmp_path / "devices"
    numbers.write_text(NUMBERS)
    monkeypatch.setattr(devices, "DEVICES", str(folder))
    monkeypatch.setattr(devices, "NUMBERS", str(numbers))
    return folder


def test_character_devices_of_nvidia_with_their_numbers(dev: Path) -> None:
    (dev / "nvidia0").symlink_to("/dev/null")
    (dev / "nvidia-caps").mkdir()
    (dev / "nvidia-text").write_text("no device")
    (dev / "nvidia1").symlink_to("/nowhere")
    (dev / "null").symlink_to("/dev/null")
    found = devices.device_nodes()
    (node,) = found["nodes"]
    numbers = os.stat("/dev/null").st_rdev
    assert (node["name"], node["usable"]) == ("nvidia0", True)
    assert (node["major"], node["minor"]) == (os.major(numbers), os.minor(numbers))
    assert found["majors"] == {
        "nvidia": 195,
        "nvidiactl": 195,
        "nvidia-uvm": 238,
        "nvidia-nvswitch": 239,
    }


def test_nothing_there(dev: Path) -> None:
    assert devices.device_nodes()["nodes"] == []
