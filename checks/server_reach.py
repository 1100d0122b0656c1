"""The way to a server: its name, its port, its certificate."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.server import Reach, Tls, Tried, ms
from infer_doctor.fixes.server_way import (
    ask_without_tls,
    connect_through_proxy,
    correct_name,
    open_port,
    renew_certificate,
    start_server,
    trust_issuer,
    use_certificate_name,
)
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import plural

SHORT_LIVED_DAYS = 21
"""Certificates that live less, three times SOON_DAYS, are renewed within it: Let's Encrypt's of six
days, those of service meshes of one."""

SOON_DAYS = 7
"""Renewal comes earlier everywhere: Let's Encrypt's clients renew 30 days before the end, or at two
thirds of short lives; a week before it something has failed for weeks."""


def place(reach: Reach) -> str:
    """host:port."""
    return f"{reach.host}:{reach.port}"


def tried(reach: Reach, rows: tuple[Tried, ...]) -> tuple[Evidence, ...]:
    """A line for each address."""
    return tuple(
        Evidence(
            source=f"connect {row.address} port {reach.port}",
            excerpt=f"{row.said or 'connected'} after {ms(row.ms)}",
        )
        for row in rows
    )


def _failed(reach: Reach, *kinds: str) -> bool:
    """Whether no address connects and the first one failed in this way."""
    rows = reach.tried
    return bool(rows) and reach.connected is None and rows[0].error in kinds


@check("server-name-unresolved", severity="error", category="server_unreachable", since="0.2")
def name_unresolved(reach: Reach) -> Iterator[Finding]:
    """The name of the server leads to no address.

    ## Why it matters
    No request leaves this machine; every client shows a connection error at once, or after the
    seconds that its resolver waits.

    ## How it decides
    getaddrinfo, which heeds /etc/hosts, search domains and the resolver of the container, fails or
    does not answer within 3 s.

    ## Fix safety
    Manual.
    """
    if not reach.name_error:
        return
    yield Finding(
        about=reach.host,
        message=f"the name {reach.host} leads to no address: {reach.name_error}",
        evidence=(
            Evidence(
                source=f"getaddrinfo {reach.host}",
                excerpt=f"{reach.name_error} after {ms(reach.names_ms)}",
            ),
        ),
        fixes=(correct_name(reach.host),),
    )


@check("server-port-closed", severity="error", category="server_unreachable", since="0.2")
def port_closed(reach: Reach) -> Iterator[Finding]:
    """The machine answers, but nothing listens at the port.

    ## Why it matters
    Every request fails at once with "connection refused": the server is not started, still loads
    (vLLM opens its port only when the model is loaded), has ended, or listens at another port or
    only at another address.

    ## How it decides
    Every address of the name refuses the connection (ECONNREFUSED), or the first one does and no
    other connects. A refusal comes from the machine itself, so the way to it is free.

    ## Fix safety
    Manual.
    """
    if not _failed(reach, "refused"):
        return
    yield Finding(
        about=place(reach),
        message=f"nothing listens at {place(reach)}: the connection was refused after "
        f"{ms(reach.tried[0].ms)}",
        evidence=tried(reach, reach.tried),
        fixes=(start_server(reach.host, reach.port),),
    )


@check("server-port-filtered", severity="error", category="server_unreachable", since="0.2")
def port_filtered(reach: Reach) -> Iterator[Finding]:
    """Nobody answers at the address: the way is blocked, or the machine is gone.

    ## Why it matters
    A client waits for its whole connect time-out and then says "timed out", as if the server were
    slow; no server has seen the request.

    ## How it decides
    No answer to a SYN and its repetition within 3.2 s (Linux repeats after 1 and 3 s), or "no route
    to host". A closed port answers at once; silence is a firewall, a security group, a network
    policy, a wrong address, or a listener whose backlog is full.

    ## Fix safety
    Manual.
    """
    if not _failed(reach, "timeout", "unreachable", "other"):
        return
    first = reach.tried[0]
    how = (
        f"no answer to the connection within {ms(first.ms)}"
        if first.error == "timeout"
        else f"{first.said.lower()} after {ms(first.ms)}"
    )
    fixes = [open_port(reach.host, reach.port, reach.tried[0].address)]
    if reach.proxy:
        fixes.insert(0, connect_through_proxy(*reach.proxy))
    yield Finding(
        about=place(reach),
        message=f"{place(reach)} does not answer: {how}",
        evidence=tried(reach, reach.tried),
        fixes=tuple(fixes),
    )


@check("server-address-dead", severity="warning", category="server_unreachable", since="0.2")
def address_dead(reach: Reach) -> Iterator[Finding]:
    """One of the addresses of the name does not connect, others do.

    ## Why it matters
    A client that takes this address first fails, or waits for its connect time-out before it takes
    another one: some requests are slow or lost, and nobody can repeat it.

    ## How it decides
    Every address of the name was tried. For the name localhost, and for a first address of IPv6
    that refuses at once, it is info: clients go on to the next address within a millisecond.

    ## Fix safety
    Manual.
    """
    if reach.connected is None:
        return
    for row in reach.tried:
        if not row.error:
            continue
        quick = row.error in ("refused", "unreachable")
        mild = quick and (reach.host == "localhost" or ":" in row.address)
        yield Finding(
            about=row.address,
            message=f"{row.address}, an address of {reach.host}, does not connect "
            f"({row.said}); {reach.connected.address} does",
            severity="info" if mild else None,
            evidence=tried(reach, reach.tried),
            fixes=(correct_name(reach.host),),
        )


def _handshake(reach: Reach, tls: Tls) -> Evidence:
    words = [tls.said] if tls.said else []
    words += [f"for {', '.join(tls.names[:4])}"] if tls.names else []
    words += [f"from {tls.begins} to {tls.ends}"] if tls.ends else []
    words += [f"by {tls.issuer}"] if tls.issuer else []
    return Evidence(source=f"TLS handshake with {place(reach)}", excerpt="; ".join(words))


def _tls(reach: Reach) -> Tls:
    if reach.tls is None:
        reason = "the port does not connect" if reach.connected is None else "the URL is http"
        raise NotApplicable(reason)
    return reach.tls


@check("server-certificate-expired", severity="error", category="security", since="0.2")
def certificate_expired(reach: Reach) -> Iterator[Finding]:
    """The certificate of the server is not valid today.

    ## Why it matters
    Every client that verifies refuses the connection; those told not to verify go on and are open
    to anyone in between.

    ## How it decides
    OpenSSL's verdict in the handshake (codes 10 and 9: has expired, is not yet valid), with the
    dates of the certificate itself. A wrong clock on this machine shows in the dates.

    ## Fix safety
    Manual.
    """
    tls = _tls(reach)
    if tls.error not in ("expired", "not-yet"):
        return
    days = abs(tls.days_left) if tls.days_left is not None else None
    if tls.error == "not-yet":
        said = f"begins only on {tls.begins}"
    else:
        ago = f", {days:.0f} days ago" if days is not None else ""
        said = f"has expired on {tls.ends}{ago}" if tls.ends else "has expired"
    yield Finding(
        about=place(reach),
        message=f"the certificate of {place(reach)} {said}",
        evidence=(_handshake(reach, tls),),
        fixes=(renew_certificate(reach.host, reach.port),),
    )


@check("server-certificate-name", severity="error", category="security", since="0.2")
def certificate_name(reach: Reach) -> Iterator[Finding]:
    """The certificate is for other names than the one that is asked.

    ## Why it matters
    Clients refuse the connection: it may be another server that answers at this address.

    ## How it decides
    OpenSSL's verdict in the handshake (codes 62 and 64), with the names of the certificate.

    ## Fix safety
    Manual.
    """
    tls = _tls(reach)
    if tls.error != "name":
        return
    names = ", ".join(tls.names[:4]) or "another name"
    yield Finding(
        about=place(reach),
        message=f"the certificate of {place(reach)} is for {names}, not for {reach.host}",
        evidence=(_handshake(reach, tls),),
        fixes=(use_certificate_name(reach.host, reach.port, tls.names),),
    )


@check("server-certificate-untrusted", severity="error", category="security", since="0.2")
def certificate_untrusted(reach: Reach) -> Iterator[Finding]:
    """This machine does not trust who signed the certificate.

    ## Why it matters
    Clients refuse the connection. Behind an inspecting proxy the issuer is the proxy's.

    ## How it decides
    OpenSSL's verdict in the handshake (codes 18 to 21: self-signed, issuer not found), with the
    certificates of this machine and of SSL_CERT_FILE. A server that does not send its intermediate
    certificates looks the same. requests and httpx bring certificates of their own (certifi).

    ## Fix safety
    Manual.
    """
    tls = _tls(reach)
    if tls.error not in ("self-signed", "untrusted"):
        return
    by = f"signed by itself ({tls.issuer})" if tls.error == "self-signed" else f"by {tls.issuer}"
    yield Finding(
        about=place(reach),
        message=f"the certificate of {place(reach)} is not trusted here: {by.strip()}",
        evidence=(_handshake(reach, tls),),
        fixes=(trust_issuer(reach.host, reach.port),),
    )


@check("server-certificate-ends", severity="warning", category="security", since="0.2")
def certificate_ends(reach: Reach) -> Iterator[Finding]:
    """The certificate ends within days.

    ## Why it matters
    On that day every client is refused at the same moment.

    ## How it decides
    Less than 7 days are left. Automatic renewal comes weeks earlier (Let's Encrypt: 30 days), so it
    has failed. A certificate whose whole life is shorter than 21 days is left alone.

    ## Fix safety
    Manual.
    """
    tls = _tls(reach)
    if tls.error or tls.days_left is None or tls.days_left > SOON_DAYS or _short_lived(tls):
        return
    yield Finding(
        about=place(reach),
        message=f"the certificate of {place(reach)} ends on {tls.ends}, in "
        f"{plural(round(tls.days_left), 'day')}",
        evidence=(_handshake(reach, tls),),
        fixes=(renew_certificate(reach.host, reach.port),),
    )


def _short_lived(tls: Tls) -> bool:
    from datetime import date

    if tls.begins is None or tls.ends is None:
        return False
    life = date.fromisoformat(tls.ends) - date.fromisoformat(tls.begins)
    return life.days < SHORT_LIVED_DAYS


@check("server-tls-failed", severity="error", category="server_unreachable", since="0.2")
def tls_failed(reach: Reach) -> Iterator[Finding]:
    """The port connects, but there is no TLS handshake.

    ## Why it matters
    Clients show an SSL error and no server log has a line. Most often https:// is asked of a port
    that speaks plain HTTP: vLLM and TensorRT-LLM do without --ssl-certfile.

    ## How it decides
    The handshake ends with another error than one of the certificate, or does not end within 3 s.
    OpenSSL's WRONG_VERSION_NUMBER means that the answer was no TLS.

    ## Fix safety
    Manual.
    """
    tls = _tls(reach)
    if tls.error not in ("plain", "timeout", "other"):
        return
    if tls.error == "plain":
        message = f"{place(reach)} speaks no TLS: https:// was asked, the answer is something else"
    else:
        message = f"the TLS handshake with {place(reach)} fails: {tls.said}"
    yield Finding(
        about=place(reach),
        message=message,
        confidence="certain" if tls.error == "plain" else "likely",
        evidence=(_handshake(reach, tls), *tried(reach, reach.tried[:1])),
        fixes=(ask_without_tls(reach.host, reach.port),) if tls.error == "plain" else (),
    )


@check("server-proxy-environment", severity="info", category="proxy", since="0.2")
def proxy_environment(reach: Reach) -> Iterator[Finding]:
    """The environment sends clients of this server through a proxy.

    ## Why it matters
    requests, httpx, the OpenAI client and curl heed HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
    A proxy of the company answers 403 or 503 for an address inside, or ends long answers.

    ## How it decides
    The variables as Python's urllib reads them, for this scheme and host. The doctor itself connects
    without a proxy: when that works, NO_PROXY is the cure; when it does not, the proxy may be the
    only way.

    ## Fix safety
    Manual.
    """
    if reach.proxy is None:
        return
    name, proxy = reach.proxy
    direct = "connects" if reach.connected else "does not connect"
    yield Finding(
        about=name,
        message=f"{name} sends clients of {reach.host} through {proxy}; without it "
        f"{place(reach)} {direct}",
        evidence=(Evidence(source="environment", excerpt=f"{name}={proxy}"),),
        fixes=(connect_through_proxy(name, proxy, around=reach.host if reach.connected else None),),
    )
