"""What NVML's numbers about a GPU's health mean.

Sources, read 2026-11-30:
- nvml.h as nvidia-ml-py 13.615 declares it; https://docs.nvidia.com/deploy/nvml-api/
- https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row remapping, recovery action)
- https://docs.nvidia.com/deploy/nvml-api/api/group__nvmlClocksEventReasons.html
"""

from __future__ import annotations

from typing import NamedTuple


class Recovery(NamedTuple):
    """What the driver wants done; `now`: nothing may be started before."""

    words: str
    now: bool
    reboot: bool


NO_RECOVERY = 0

RECOVERY = {
    1: Recovery("GPU reset required", now=True, reboot=False),
    2: Recovery("node reboot required", now=True, reboot=True),
    3: Recovery("drain peer-to-peer traffic", now=False, reboot=False),
    4: Recovery("drain and reset: it runs at reduced capacity", now=False, reboot=False),
    5: Recovery("recover the IMEX domain", now=False, reboot=False),
    6: Recovery("reset of its PCIe bus required", now=True, reboot=True),
    7: Recovery("system reboot required", now=True, reboot=True),
}
"""nvmlDeviceGpuRecoveryAction_t. "Drain": unaffected work goes on, new work is not to be started."""

SLOWDOWNS = {
    0x40: "hardware thermal slowdown",
    0x20: "software thermal slowdown",
    0x80: "hardware power brake",
    0x08: "hardware slowdown",
}
"""nvmlClocksEventReason bits that say a GPU is held back by a fault. Not among them: idle (0x1),
application clocks (0x2), software power cap (0x4: the normal state under load), sync boost (0x10),
display clock (0x100). Bit 0x8 is also set together with 0x40 and 0x80."""

THERMAL = 0x40 | 0x20
POWER_BRAKE = 0x80
HARDWARE_SLOWDOWN = 0x08

FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
"""nvmlGpuFabricState_t; 0, not supported, is nothing to judge (seen on an H200 without NVSwitch)."""

FABRIC_COMPLETED = 3


class HealthField(NamedTuple):
    """A field of nvmlGpuFabricInfo healthMask: its place, and the words for each bad value."""

    shift: int
    mask: int
    bad: dict[int, str]


FABRIC_HEALTH = (
    HealthField(0, 0x3, {1: "bandwidth is degraded"}),
    HealthField(2, 0x3, {1: "a route is being recovered"}),
    HealthField(4, 0x3, {1: "a route is unhealthy"}),
    HealthField(6, 0x3, {1: "it recovers from an access timeout"}),
    HealthField(
        8,
        0xF,
        {
            2: "wrong configuration: system GUID",
            3: "wrong configuration: chassis serial number",
            4: "wrong configuration: no partition",
            5: "wrong configuration: too few NVLinks",
            6: "wrong configuration: firmware of the GPU",
            7: "wrong configuration: location",
            8: "wrong configuration: state of the GPU",
        },
    ),
    HealthField(12, 0x3, {2: "no partition is assigned"}),
    HealthField(14, 0x3, {2: "the fabric manager is not connected"}),
)
"""NVML_GPU_FABRIC_HEALTH_MASK_*: in each field 0 is not supported, the good value has no words."""

PROHIBITED = 2
EXCLUSIVE = (1, 3)
COMPUTE_MODES = {1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
"""nvmlComputeMode_t; 0 is the default."""

FULL_SPEED_STATE = 2
"""P0 to P2: clocks for work; compute on GeForce runs in P2. Above, the PCIe link may be downshifted
(NVML: nvmlPstates_t, 0 is maximum performance)."""
