"""The kernel log: Xid events of the driver, processes that were killed for memory.

The parsers take single lines in any of the forms that `dmesg`, `dmesg -T`, `journalctl -k` and syslog
print, with or without time and host name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from infer_doctor.facts.machine import Identity
from infer_doctor.facts.pci import PciBus, proof_of_absence
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.registry import probe

LOG = "/dev/kmsg"

ADDRESS = r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-7])?"
"""Patterns are compiled at their first use: most logs are never read."""

XID = (
    rf"NVRM: Xid \((?:PCI:)?{ADDRESS}(?: [^)]{{1,40}})?\): "
    r"(?P<code>\d{1,5})(?:, ?(?P<text>.{0,2000}))?$"
)
"""The address without its function; in MIG mode the instance follows it ("GPU-I:05")."""

PROCESS = r"pid='?(?P<pid>\d{1,10})'?(?:, name=(?P<name>[^,]{1,64}))?"

SECONDS = r"\[ *(\d{1,12}\.\d{1,9})\]"
"""The time that dmesg prints: seconds since boot."""

FELL_OFF = rf"(?s:NVRM: The NVIDIA GPU {ADDRESS}\b.{{0,300}}?fallen off the bus)"
"""What the driver writes instead of Xid 79 when it meets such a GPU while it is loaded
(https://github.com/NVIDIA/NVSentinel/issues/155)."""

FELL_OFF_CODE = 79

DRIVER_LOADED = "NVRM: loading NVIDIA"

LOADING_S = 60.0
"""The line that the driver is loaded comes after those about its GPUs (same report), and setting up
eight GPUs takes many seconds: what is this close to it belongs to that start."""

OUT_OF_MEMORY = (
    r"(?P<group>Memory cgroup )?[Oo]ut of memory: Killed process (?P<pid>\d{1,10}) "
    r"\((?P<name>[^)]{0,64})\)(?:.{0,400}?anon-rss:(?P<kib>\d{1,15})kB)?"
)
"""mm/oom_kill.c, __oom_kill_process(), since Linux 5.0."""


@frozen
class LogLine:
    """One line: seconds since boot where they are known."""

    seconds: float | None
    text: str


@frozen
class KernelLog:
    """Lines about the driver, the PCI bus and lost memory, oldest first."""

    lines: tuple[LogLine, ...] = field(metadata={"report": False})
    now: float | None
    """Seconds since boot when it was read."""
    source: str


@frozen
class XidEvent:
    """One Xid message. `address` is domain:bus:device as sysfs writes it, without the function."""

    address: str
    code: int
    text: str
    line: str
    age_s: float | None
    before_load: bool
    """The driver was loaded again after it."""
    pid: int | None = None
    process: str | None = None


@frozen
class XidEvents:
    """All Xid messages in the log, oldest first."""

    events: tuple[XidEvent, ...] = field(metadata={"report": False})
    source: str


@frozen
class MemoryKill:
    """A process that the kernel killed for memory; `group`: a control group's limit was the bound."""

    pid: int
    name: str
    rss: int | None
    """Bytes."""
    group: bool
    line: str
    age_s: float | None


@frozen
class MemoryKills:
    """Processes killed for memory since the log begins, oldest first."""

    kills: tuple[MemoryKill, ...] = field(metadata={"report": False})
    source: str


@probe
def kernel_log(host: Host) -> KernelLog:
    """Read /dev/kmsg; in containers and without CAP_SYSLOG it mostly cannot be."""
    try:
        found = host.ask("kernel_log")
    except Unavailable as error:
        if error.code in ("EPERM", "EACCES"):
            raise Unavailable(f"{LOG} may not be read without root", error.code) from None
        raise Unavailable(f"{LOG}: {error.reason}", error.code) from None
    lines = tuple(LogLine(seconds=seconds, text=text) for seconds, text in found["lines"])
    return KernelLog(lines=lines, now=found["now"], source=LOG)


@probe
def xids(log: KernelLog, bus: PciBus | None, identity: Identity | None) -> XidEvents:
    """The Xid messages among the lines."""
    if proof := proof_of_absence(bus, identity):
        raise Absent(proof)
    return XidEvents(events=tuple(parse_xids(log.lines, log.now)), source=log.source)


@probe
def memory_kills(log: KernelLog) -> MemoryKills:
    """The out-of-memory killer's messages among the lines."""
    return MemoryKills(kills=tuple(parse_kills(log.lines, log.now)), source=log.source)


def parse_line(text: str) -> LogLine:
    """A line of a text file; only dmesg's own form has a time that can be used."""
    found = re.match(SECONDS, text)
    return LogLine(seconds=float(found[1]) if found else None, text=text)


def parse_xids(lines: Iterable[LogLine], now: float | None) -> list[XidEvent]:
    """The events, in the order of the lines."""
    kept = list(lines)
    loads = [line.seconds for line in kept if DRIVER_LOADED in line.text]
    last_load = max((seconds for seconds in loads if seconds is not None), default=0.0)
    events = (_event(line, now, last_load) for line in kept)
    return [event for event in events if event is not None]


def _event(line: LogLine, now: float | None, last_load: float) -> XidEvent | None:
    found = re.search(XID, line.text.rstrip())
    fell = None if found else re.search(FELL_OFF, line.text)
    if found:
        address, code, text = found["address"], int(found["code"]), found["text"] or ""
    elif fell:
        address, code, text = fell["address"], FELL_OFF_CODE, "fallen off the bus"
    else:
        return None
    process = re.search(PROCESS, text)
    return XidEvent(
        address=_address(address),
        code=code,
        text=text,
        line=" ".join(line.text.replace("\\x0a", " ").split()),
        age_s=_age(line, now),
        before_load=line.seconds is not None and line.seconds < last_load - LOADING_S,
        pid=int(process["pid"]) if process else None,
        process=_name(process["name"]) if process else None,
    )


def _address(text: str) -> str:
    """0000:06:00 as sysfs writes it; NVRM prints four digits of the domain, older drivers eight."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _name(name: str | None) -> str | None:
    return None if name is None or name == "<unknown>" else name.strip()


def _age(line: LogLine, now: float | None) -> float | None:
    if line.seconds is None or now is None:
        return None
    return max(0.0, now - line.seconds)


def parse_kills(lines: Iterable[LogLine], now: float | None) -> list[MemoryKill]:
    """The kills, in the order of the lines."""
    found = []
    for line in lines:
        match = re.search(OUT_OF_MEMORY, line.text)
        if match is not None:
            found.append(
                MemoryKill(
                    pid=int(match["pid"]),
                    name=match["name"],
                    rss=int(match["kib"]) * 1024 if match["kib"] else None,
                    group=match["group"] is not None,
                    line=line.text.strip(),
                    age_s=_age(line, now),
                )
            )
    return found
