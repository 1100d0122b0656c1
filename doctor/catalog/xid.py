"""Xid codes of the driver's messages in the kernel log: meaning, severity, what NVIDIA says to do.

Source, read 2026-11-30: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (column
"Resolution Bucket (Immediate Action)", Ampere and newer; 144 to 150 by their own table) and, for codes
that it calls unused, https://docs.nvidia.com/deploy/xid-errors/archive/.

Severity is by the action: a reset or reboot before anything can run is an error; a hardware fault that
cost one process, or that waits for a reset, a warning; a fault that the application made or that the
driver corrected, an info.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from infer_doctor.model import Severity

Action = Literal["none", "restart", "reset", "reboot", "support", "power", "update"]


class Xid(NamedTuple):
    """One code."""

    words: str
    severity: Severity
    action: Action


def _application(words: str) -> Xid:
    return Xid(words, "info", "restart")


def _engine(words: str) -> Xid:
    return Xid(words, "warning", "restart")


def _reset(words: str) -> Xid:
    return Xid(words, "error", "reset")


XIDS: dict[int, Xid] = {
    8: _engine("GPU stopped processing"),
    11: _application("invalid push buffer stream"),
    13: _application("graphics engine exception, mostly an access out of bounds"),
    14: Xid("injected error", "info", "none"),
    25: _application("illegal push buffer stream"),
    31: _application("GPU memory page fault, mostly an illegal address of the program"),
    32: _engine("corrupted push buffer stream, mostly a poor PCIe link"),
    37: Xid("driver firmware error", "info", "none"),
    38: Xid("driver firmware error", "warning", "support"),
    39: _engine("copy engine exception"),
    40: _engine("copy engine exception"),
    41: _engine("copy engine exception"),
    43: _application("a program's fault stopped its channel; the GPU is healthy"),
    44: Xid("engine fault during a context switch", "warning", "support"),
    45: _application("channels of a process that ended or was killed were removed"),
    46: _reset("GPU stopped processing"),
    48: _reset("double-bit (uncorrectable) ECC error"),
    54: Xid("auxiliary power is not connected to the board", "error", "power"),
    61: Xid("internal microcontroller breakpoint", "warning", "support"),
    62: _reset("internal microcontroller halt"),
    63: Xid("a memory row or page was marked to be replaced at the next reset", "warning", "none"),
    64: _reset("a memory row or page could not be marked for replacement"),
    66: Xid("illegal access by the driver", "warning", "support"),
    67: Xid("illegal access by the driver", "warning", "support"),
    68: _engine("video decoder exception"),
    69: _application("graphics engine class error"),
    74: _reset("NVLink error"),
    78: Xid("vGPU start error", "error", "update"),
    79: Xid("GPU has fallen off the bus", "error", "reboot"),
    80: _engine("corrupted data sent to the GPU"),
    92: Xid("high rate of single-bit ECC errors", "warning", "support"),
    93: Xid("InfoROM wear limit", "info", "none"),
    94: Xid("contained memory error: one process lost", "warning", "restart"),
    95: _reset("uncontained memory error"),
    106: Xid("test message", "info", "none"),
    107: Xid("test message", "info", "none"),
    109: _reset("context switch timeout"),
    110: _reset("security fault"),
    119: _reset("GSP (the GPU's system processor) did not answer"),
    120: _reset("GSP (the GPU's system processor) error"),
    121: Xid("corrected error on the link to the Grace CPU", "info", "none"),
    136: _reset("NVLink training failed"),
    137: _application("NVLink privilege error, mostly an illegal peer access of the program"),
    140: _reset("unrecovered ECC error"),
    141: Xid("CUDA fast path error", "warning", "support"),
    143: _reset("GPU initialisation error"),
    144: _engine("NVLink error (SAW)"),
    145: _engine("NVLink error (RLW)"),
    146: _engine("NVLink error (TLW)"),
    147: _engine("NVLink error (TREX)"),
    148: _engine("NVLink error (NVLPW)"),
    149: _engine("NVLink error (NETIR)"),
    150: _engine("NVLink error (MSE)"),
    151: Xid("key rotation error", "error", "reboot"),
    154: Xid("the recovery action that the driver asks for changed", "info", "none"),
    155: _reset("an NVLink went down by software"),
    156: _reset("a resource of the GPU was retired"),
    157: Xid("a resource of the GPU could not be retired", "warning", "support"),
    158: _reset("fatal timeout of the GPU"),
    159: Xid("CHI error on the link to the CPU", "warning", "support"),
    160: Xid("a memory channel was retired", "warning", "none"),
    161: Xid("a memory channel could not be retired", "warning", "support"),
    167: _reset("fatal PCIe timeout"),
    168: Xid("reduced GPU memory capacity", "warning", "support"),
    169: _reset("internal microcontroller (SEC2) halt"),
    171: _reset("uncorrectable DRAM error"),
    172: _reset("uncorrectable SRAM error"),
}

COPY_AND_MEDIA = (*range(70, 73), *range(75, 78), 60, 82, 83, 84, 85, 86, 88, 89, *range(96, 106),
                  *range(126, 136), 139)  # fmt: skip
"""Exceptions of single copy, video and JPEG engines: RESTART_APP."""

RECOVERY_CHANGED = 154

MEMORY = frozenset({48, 64, 94, 95, 140, 171, 172})
"""What an uncorrectable memory error writes: the ECC counters tell the same."""

NVLINK_FIVE = range(144, 151)
"""Here the message itself says Fatal or Nonfatal; fatal ones ask for a reset."""

FATAL = r"(?<![Nn]on-)\b[Ff]atal\b"

RECOVERY_NOW = r"\bto 0x([0-9A-Fa-f]{1,8})"
"""In 154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"."""


def xid(code: int, text: str) -> Xid:
    """What a message means; an unknown code is a warning without an action."""
    if code in NVLINK_FIVE and re.search(FATAL, text):
        return _reset(XIDS[code].words)
    if code in COPY_AND_MEDIA:
        return _engine("exception of a copy or video engine")
    return XIDS.get(code) or Xid("a code that is not in the catalogue", "warning", "support")
