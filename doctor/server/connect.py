"""The way to a server: its name, its addresses, the handshake; each layer with its own time."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from infer_doctor.facts.server import Reach, Tls, Tried
from infer_doctor.server import certificate
from infer_doctor.server.address import Address
from infer_doctor.server.http import Answer, Sink, Wire, failed

NAME_S = 3.0
CONNECT_S = 3.2
"""Linux sends a second SYN after 1 s and a third after 3 s (tcp(7), tcp_syn_retries)."""

HANDSHAKE_S = 3.0
MOST_ADDRESSES = 4

VERIFY_ERRORS = {
    9: "not-yet",
    10: "expired",
    18: "self-signed",
    19: "self-signed",
    20: "untrusted",
    21: "untrusted",
    62: "name",
    64: "name",
}
"""Codes of OpenSSL's x509_vfy.h."""

PLAIN_REASONS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")


@dataclass(frozen=True)
class Route:
    """What is needed for one more connection to the server."""

    address: Address
    family: int
    place: Any
    context: ssl.SSLContext | None
    connect_ms: float = 0.0

    async def wire(self, deadline: float) -> Wire:
        """A new connection; raises OSError or TimeoutError."""
        left = max(deadline - time.monotonic(), 0.01)
        return await asyncio.wait_for(self._connected(), left)

    async def _connected(self) -> Wire:
        loop = asyncio.get_running_loop()
        sock = await _socket(self.family, self.place)
        try:
            name = self.address.host if self.context else None
            _, wire = await loop.create_connection(
                Wire, sock=sock, ssl=self.context, server_hostname=name
            )
        except BaseException:
            sock.close()
            raise
        return wire

    async def ask(
        self,
        request: bytes,
        deadline: float,
        *,
        sink: Sink | None = None,
        into: Answer | None = None,
        late_acks: bool = False,
    ) -> Answer:
        """One request on a connection of its own."""
        began = time.monotonic()
        try:
            wire = await self.wire(deadline)
        except (OSError, asyncio.TimeoutError) as error:
            return failed(error, began)
        wire.late_acks = late_acks
        try:
            return await wire.ask(request, deadline, sink=sink, into=into)
        finally:
            wire.close()


async def _socket(family: int, place: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


async def reach(
    address: Address, variables: Mapping[str, str], deadline: float
) -> tuple[Reach, Route | None]:
    """Look the name up, try every address, shake hands; the route when all of it worked."""
    proxy = proxy_of(address, variables)
    began = time.monotonic()
    base: dict[str, Any] = {
        "url": address.url,
        "scheme": address.scheme,
        "host": address.host,
        "port": address.port,
        "proxy": proxy,
    }
    try:
        found = await asyncio.wait_for(
            _resolve(address), max(min(NAME_S, deadline - time.monotonic()), 0.05)
        )
    except (OSError, asyncio.TimeoutError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "no answer"
        if isinstance(error, asyncio.TimeoutError):
            said = f"no answer within {time.monotonic() - began:.1f} s"
        return Reach(**base, names_ms=_since(began), name_error=said), None
    names_ms = _since(began)
    limit = max(min(CONNECT_S, deadline - time.monotonic()), 0.05)
    tried = await asyncio.gather(*(_try(family, place, limit) for family, place in found))
    rows = tuple(tried)
    base |= {"names_ms": names_ms, "addresses": tuple(row.address for row in rows), "tried": rows}
    place = next((number for number, row in enumerate(rows) if not row.error), None)
    if place is None:
        return Reach(**base), None
    context = _context() if address.scheme == "https" else None
    route = Route(
        address=address,
        family=found[place][0],
        place=found[place][1],
        context=context,
        connect_ms=rows[place].ms,
    )
    if context is None:
        return Reach(**base), route
    tls = await _handshake(route, max(min(HANDSHAKE_S, deadline - time.monotonic()), 0.05))
    return Reach(**base, tls=tls), None if tls.error else route


async def _resolve(address: Address) -> list[tuple[int, Any]]:
    """All addresses; asked in a thread that nobody waits for, as a resolver may hang."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Any]] = loop.create_future()

    def tell(rows: list[Any] | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(rows or [])

    def ask() -> None:
        rows, problem = None, None
        try:
            rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            problem = error
        try:
            loop.call_soon_threadsafe(tell, rows, problem)
        except RuntimeError:  # the loop has ended meanwhile
            return

    threading.Thread(target=ask, daemon=True).start()
    found: dict[Any, int] = {}
    for family, _, _, _, place in await future:
        found.setdefault(place, family)
    return [(family, place) for place, family in list(found.items())[:MOST_ADDRESSES]]


async def _try(family: int, place: Any, limit: float) -> Tried:
    name = str(place[0])
    began = time.monotonic()
    try:
        sock = await asyncio.wait_for(_socket(family, place), limit)
        sock.close()
    except asyncio.TimeoutError:
        return Tried(
            address=name, ms=_since(began), error="timeout", said=f"no answer within {limit:.1f} s"
        )
    except OSError as error:
        kinds = {
            errno.ECONNREFUSED: "refused",
            errno.ETIMEDOUT: "timeout",
            errno.EHOSTUNREACH: "unreachable",
            errno.ENETUNREACH: "unreachable",
            errno.EADDRNOTAVAIL: "unreachable",
        }
        said = os.strerror(error.errno) if error.errno else str(error)
        kind = kinds.get(error.errno or 0, "other")
        return Tried(address=name, ms=_since(began), error=kind, said=said)
    return Tried(address=name, ms=_since(began))


def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _handshake(route: Route, limit: float) -> Tls:
    """One handshake that verifies; when that fails, one that only looks at the certificate."""
    began = time.monotonic()
    try:
        wire = await route.wire(began + limit)
    except asyncio.TimeoutError:
        return Tls(ms=_since(began), error="timeout", said=f"no answer within {limit:.1f} s")
    except ssl.SSLCertVerificationError as error:
        spent = _since(began)
        kind = VERIFY_ERRORS.get(error.verify_code, "untrusted")
        seen = await _look(route, limit)
        return Tls(ms=spent, error=kind, said=error.verify_message, **_told(seen))
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        kind = "plain" if reason in PLAIN_REASONS else "other"
        return Tls(ms=_since(began), error=kind, said=reason.replace("_", " ").lower())
    except OSError as error:
        said = error.strerror or str(error) or "the connection was closed in the handshake"
        return Tls(ms=_since(began), error="other", said=said)
    spent = _since(began)
    transport = wire.transport
    assert transport is not None
    made = transport.get_extra_info("ssl_object")
    seen = certificate.read(_der(made))
    version = made.version() or ""
    wire.close()
    return Tls(ms=spent, version=version, **_told(seen))


async def _look(route: Route, limit: float) -> certificate.Certificate | None:
    """The certificate that was refused; nothing is sent on that connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    blind = Route(address=route.address, family=route.family, place=route.place, context=context)
    try:
        wire = await blind.wire(time.monotonic() + limit)
    except (OSError, asyncio.TimeoutError):
        return None
    assert wire.transport is not None
    der = _der(wire.transport.get_extra_info("ssl_object"))
    wire.close()
    return certificate.read(der)


def _der(made: ssl.SSLObject) -> bytes:
    """The peer's certificate; nothing when it has ended the connection meanwhile, as with mutual TLS."""
    try:
        return made.getpeercert(binary_form=True) or b""
    except ValueError:
        return b""


def _told(seen: certificate.Certificate | None) -> dict[str, Any]:
    if seen is None:
        return {}
    now = datetime.now(timezone.utc)
    return {
        "names": seen.names,
        "issuer": seen.issuer,
        "begins": seen.begins.strftime("%Y-%m-%d") if seen.begins else None,
        "ends": seen.ends.strftime("%Y-%m-%d") if seen.ends else None,
        "days_left": round((seen.ends - now).total_seconds() / 86_400, 1) if seen.ends else None,
    }


def proxy_of(address: Address, variables: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable and the proxy that requests, httpx and curl would take for this address."""
    given = _chosen(variables)
    if "no_proxy" in given and _bypassed(address, variables[given["no_proxy"]]):
        return None
    for name in (f"{address.scheme}_proxy", "all_proxy"):
        if name in given and (value := variables[given[name]].strip()):
            return given[name], value.rpartition("@")[2]
    return None


def _chosen(variables: Mapping[str, str]) -> dict[str, str]:
    """Name in lower case -> the one that counts: that in lower case, also when it is empty (urllib)."""
    upper = {name.lower(): name for name in variables if name.isupper()}
    return upper | {name: name for name in variables if name.islower()}


def _bypassed(address: Address, listed: str) -> bool:
    """Names and their sub-domains, with a port or without; "*" is all."""
    for entry in listed.lower().replace(" ", ",").split(","):
        name = entry.strip().lstrip("*.").lstrip(".")
        host, colon, port = name.rpartition(":")
        if colon and port.isdigit() and host.count(":") == 0:
            if int(port) != address.port:
                continue
            name = host
        own = address.host.lower()
        if entry.strip() == "*" or (name and (own == name or own.endswith(f".{name}"))):
            return True
    return False


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 2)
