"""Fixes for the way to a server: name, port, certificate. What stands elsewhere is manual."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.model import Action, Fix


def command(text: str) -> Action:
    """A step that can be copied."""
    return Action(kind="command", text=text)


def text(text: str) -> Action:
    """A step in words."""
    return Action(kind="text", text=text)


def fix(
    id: str, title: str, *actions: Action, restarts: bool = False, why: str | None = None
) -> Fix:
    return Fix(
        id=id, title=title, safety="manual", restarts=restarts, why=why, actions=tuple(actions)
    )


def correct_name(host: str) -> Fix:
    """The name or its record."""
    return fix(
        "correct-server-name",
        f"Correct the name {host} or its record",
        command(f"getent ahosts {host}"),
        text(
            "in Kubernetes a service is SERVICE.NAMESPACE.svc; in Docker Compose the name of the "
            "service, and only in its network"
        ),
    )


def start_server(host: str, port: int) -> Fix:
    """See whether it runs, and where it listens."""
    local = host in ("localhost", "127.0.0.1", "::1")
    actions = [command(f"ss -ltnp 'sport = :{port}'")] if local else []
    if not local:
        actions = [text(f"on {host}: ss -ltnp 'sport = :{port}'")]
    return fix(
        "start-server",
        f"Start the server, or ask the port where it listens instead of {port}",
        *actions,
        text(
            "while the model loads the port is still closed; its log ends with Application startup "
            "complete"
        ),
        text("a server in a container must listen at 0.0.0.0, and its port be published"),
    )


def open_port(host: str, port: int, address: str) -> Fix:
    """What lies between."""
    return fix(
        "open-way-to-server",
        f"Open the way to {address} port {port}: firewall, security group, network policy",
        command(f"ip route get {address}"),
        text(f"on {host} itself: curl -sS http://127.0.0.1:{port}/health tells whether it lives"),
    )


def connect_through_proxy(name: str, proxy: str, around: str | None = None) -> Fix:
    """Around the proxy, or through it."""
    if around is not None:
        return fix(
            "bypass-proxy",
            f"Take {around} out of the proxy: NO_PROXY={around}",
            command(f'export NO_PROXY="$NO_PROXY,{around}" no_proxy="$NO_PROXY,{around}"'),
        )
    return fix(
        "ask-through-proxy",
        f"Ask through the proxy of {name}: it may be the only way",
        text(f"clients that heed the environment go through {proxy}; the doctor did not"),
    )


def renew_certificate(host: str, port: int) -> Fix:
    """A new certificate, and who should have brought it."""
    return fix(
        "renew-certificate",
        f"Renew the certificate of {host} and see why its renewal failed",
        command(
            f"openssl s_client -connect {host}:{port} -servername {host} </dev/null "
            "| openssl x509 -noout -dates -issuer"
        ),
        text(
            "reload the proxy after renewal: nginx -s reload; with vLLM's --ssl-certfile restart "
            "the server or use --enable-ssl-refresh"
        ),
    )


def use_certificate_name(host: str, port: int, names: Sequence[str]) -> Fix:
    """The name that the certificate has."""
    plain = [name for name in names if "*" not in name]
    title = (
        f"Ask https://{plain[0]}:{port}, or get a certificate that names {host}"
        if plain
        else f"Get a certificate that names {host}"
    )
    return fix("use-certificate-name", title)


def trust_issuer(host: str, port: int) -> Fix:
    """The issuer's certificate to this machine, or the chain to the server."""
    return fix(
        "trust-issuer",
        f"Let the server of {host} send its chain, or give clients the certificate of its issuer",
        command(
            f"openssl s_client -connect {host}:{port} -servername {host} -showcerts </dev/null"
        ),
        text("clients: SSL_CERT_FILE=ca.pem (Python, OpenAI client), REQUESTS_CA_BUNDLE=ca.pem"),
    )


def ask_without_tls(host: str, port: int) -> Fix:
    """http instead of https."""
    return fix(
        "ask-without-tls",
        f"Ask http://{host}:{port}, or end TLS before this port",
        text("vLLM speaks TLS itself only with --ssl-certfile and --ssl-keyfile"),
    )


def ask_inside_mesh() -> Fix:
    """The doctor has no certificate to show."""
    return fix(
        "ask-inside-mesh",
        "Ask from where the certificate is: inside the mesh, or the engine itself on its own machine",
        command("kubectl exec POD -c vllm -- curl -s http://127.0.0.1:8000/health"),
    )


def ask_with_tls(url: str) -> Fix:
    """https instead of http."""
    secure = url.replace("http://", "https://", 1)
    return fix("ask-with-tls", f"Ask {secure}", command(f"infer-doctor probe {secure}"))
