"""Network interfaces with their addresses, this machine's own name, and the state of its clock."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import Any

Json = dict[str, Any]

REQUEST_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP (netlink(7))."""
GET_LINK, GET_ADDRESS = 18, 22
"""RTM_GETLINK, RTM_GETADDR (rtnetlink(7))."""
DONE, FAILED = 3, 2
IFF_UP, IFF_LOOPBACK, IFF_RUNNING = 0x1, 0x8, 0x40
LINK_NAME, LINK_MTU = 3, 4
ADDRESS, LOCAL = 1, 2
LINK_SCOPE = 253
"""RT_SCOPE_LINK, of fe80:: and 169.254 (rtnetlink(7))."""

UNSYNCHRONISED = 0x40
"""STA_UNSYNC: no daemon has set the clock within the last minutes (adjtimex(2))."""


def interfaces() -> Json:
    """All interfaces of this network name space, by netlink: /sys may be another's."""
    rows: dict[int, Json] = {}
    for body in _dump(GET_LINK, struct.pack("BxHiII", socket.AF_UNSPEC, 0, 0, 0, 0)):
        _, _, index, flags, _ = struct.unpack_from("BxHiII", body)
        parts = _attributes(body[16:])
        name = parts.get(LINK_NAME, b"").rstrip(b"\0").decode("utf-8", "backslashreplace")
        mtu = struct.unpack("I", parts[LINK_MTU])[0] if LINK_MTU in parts else None
        rows[index] = {
            "name": name,
            "up": bool(flags & IFF_UP),
            "running": bool(flags & IFF_RUNNING),
            "loopback": bool(flags & IFF_LOOPBACK),
            "mtu": mtu,
            "speed": _speed(name),
            "addresses": [],
        }
    for body in _dump(GET_ADDRESS, struct.pack("BBBBI", socket.AF_UNSPEC, 0, 0, 0, 0)):
        family, prefix, _, scope, index = struct.unpack_from("BBBBI", body)
        parts = _attributes(body[8:])
        raw = parts.get(LOCAL) or parts.get(ADDRESS)
        if raw is None or index not in rows or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        bits = int.from_bytes(raw, "big") >> (len(raw) * 8 - prefix) << (len(raw) * 8 - prefix)
        rows[index]["addresses"].append(
            {
                "address": socket.inet_ntop(family, raw),
                "network": socket.inet_ntop(family, bits.to_bytes(len(raw), "big")),
                "prefix": prefix,
                "link": scope == LINK_SCOPE,
            }
        )
    return {"interfaces": [rows[index] for index in sorted(rows)]}


def _dump(kind: int, body: bytes) -> list[bytes]:
    """The bodies of all answers to one dump request; raises OSError."""
    found: list[bytes] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(2)
        link.bind((0, 0))
        link.send(struct.pack("IHHII", 16 + len(body), kind, REQUEST_DUMP, 1, 0) + body)
        while True:
            data = link.recv(1 << 18)
            while len(data) >= 16:
                length, answer = struct.unpack_from("IH", data)
                if answer == DONE:
                    return found
                if answer == FAILED or length < 16:
                    code = -struct.unpack_from("i", data, 16)[0]
                    raise OSError(code, os.strerror(code))
                found.append(data[16:length])
                data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def _speed(name: str) -> int | None:
    """Mbit/s; None where the driver tells none (virtual interfaces, no cable)."""
    try:
        with open(f"/sys/class/net/{name}/speed", encoding="ascii") as file:
            speed = int(file.read())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


def own_name() -> Json:
    """What this machine's own name leads to: in /etc/hosts, and for a program that asks libc.

    libc may ask a name server, so this is only asked for many machines.
    """
    name = os.uname().nodename
    listed: list[str] = []
    try:
        with open("/etc/hosts", encoding="utf-8", errors="backslashreplace") as file:
            for line in file:
                words = line.partition("#")[0].split()
                if name in words[1:]:
                    listed.append(words[0])
    except OSError:
        pass
    return {"listed": listed, **resolved(name)}


def resolved(name: str) -> Json:
    """The addresses that a program gets for a name; "error" holds libc's words."""
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"addresses": [], "error": error.strerror or str(error)}
    return {"addresses": list(dict.fromkeys(str(row[4][0]) for row in rows)), "error": None}


class _Time(ctypes.Structure):
    """struct timex up to `tolerance` (adjtimex(2)); the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    )


def clock() -> Json:
    """What the kernel says of its clock; nothing is set. Raises OSError."""
    values = _Time()
    library = ctypes.CDLL(None, use_errno=True)
    state = library.adjtimex(ctypes.byref(values))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return {
        "synchronised": not values.status & UNSYNCHRONISED,
        "max_error_us": values.maxerror,
        "estimated_error_us": values.esterror,
    }
