"""Dates and names of a certificate, read out of its DER (RFC 5280) as far as a finding needs them.

Python's ssl tells them only of a certificate that it has verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

COMMON_NAME = bytes.fromhex("550403")
ALTERNATIVE_NAMES = bytes.fromhex("551d11")
MOST = 65_536
"""Bytes: a certificate has one or two thousand."""

SEQUENCE, SET, OID, UTC_TIME, TIME, OCTETS = 0x30, 0x31, 0x06, 0x17, 0x18, 0x04


@dataclass(frozen=True)
class Certificate:
    """Names are those of the alternative names, else the common name."""

    begins: datetime | None
    ends: datetime | None
    subject: str
    issuer: str
    names: tuple[str, ...]


def read(der: bytes) -> Certificate | None:
    """The certificate; None for bytes that are none."""
    try:
        return _read(der[:MOST])
    except (IndexError, ValueError, StopIteration):
        return None


def _read(der: bytes) -> Certificate:
    (_, whole), *_ = _parts(der)
    (_, signed), *_ = _parts(whole)
    fields = list(_parts(signed))
    if fields[0][0] == 0xA0:  # the version is optional
        del fields[0]
    _, _, issuer, validity, subject, *_ = (value for _, value in fields)
    begins, ends = (_time(tag, value) for tag, value in _parts(validity))
    names = [name for tag, value in fields[6:] if tag == 0xA3 for name in _names(value)]
    common = _common(subject)
    return Certificate(
        begins=begins,
        ends=ends,
        subject=common,
        issuer=_common(issuer),
        names=tuple(names) or ((common,) if common else ()),
    )


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        tag, size = data[place], data[place + 1]
        place += 2
        if size & 0x80:
            count = size & 0x7F
            if not 0 < count <= 4:
                raise ValueError("length")
            size = int.from_bytes(data[place : place + count], "big")
            place += count
        if place + size > len(data):
            raise ValueError("length")
        yield tag, data[place : place + size]
        place += size


def _time(tag: int, value: bytes) -> datetime | None:
    form = "%y%m%d%H%M%SZ" if tag == UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(value.decode("ascii"), form).replace(tzinfo=timezone.utc)


def _common(name: bytes) -> str:
    """The common name, else the last part of the name that is a text."""
    found = ""
    for _, pairs in _parts(name):
        for _, pair in _parts(pairs):
            (_, kind), (_, value), *_ = _parts(pair)
            text = value.decode("utf-8", "replace")
            if kind == COMMON_NAME:
                return text
            found = found or text
    return found


def _names(value: bytes) -> Iterator[str]:
    import ipaddress

    (_, rows), *_ = _parts(value)
    for _, row in _parts(rows):
        parts = list(_parts(row))
        if parts[0][1] != ALTERNATIVE_NAMES:
            continue
        (_, listed), *_ = _parts(parts[-1][1])
        for tag, name in _parts(listed):
            if tag == 0x82:
                yield name.decode("ascii", "replace")
            elif tag == 0x87 and len(name) in (4, 16):
                yield str(ipaddress.ip_address(name))
