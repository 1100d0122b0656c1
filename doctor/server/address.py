"""Where a server is, out of the URL that was given; never another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

API = "/v1"
ENDPOINTS = ("/chat/completions", "/completions")
"""What a URL may end with that was copied whole; before it stands the base, as openai's clients take it."""

VERSION = re.compile(r"api-version=[\w.-]{1,40}")

PORTS = {"http": 80, "https": 443}


class BadAddress(Exception):
    """The URL cannot be asked; the text says why, without the URL's own secrets."""


@dataclass(frozen=True)
class Address:
    """`root` is the path before /v1 ("" or "/llm"); `api` the path under which the API is asked."""

    scheme: str
    host: str
    port: int
    root: str
    api: str
    given: str
    """The path as it was given."""
    query: str = ""
    """What Azure wants with every request: ?api-version=...; nothing else of a query is kept."""

    @property
    def deployment(self) -> str | None:
        """The name in .../deployments/NAME, which is the model on Azure."""
        names = self.api.split("/")
        return names[-1] if names[-2:-1] == ["deployments"] else None

    @property
    def authority(self) -> str:
        """host or host:port, as in a URL."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """Without query, fragment and credentials."""
        return f"{self.scheme}://{self.authority}{self.root}"


def is_url(text: str) -> bool:
    """Whether a target is an address and no file."""
    return text.lower().startswith(("http://", "https://"))


def parse(text: str) -> Address:
    """The address of a URL such as http://host:8000, .../v1 or .../v1/chat/completions."""
    if any(character.isspace() or not character.isprintable() for character in text):
        raise BadAddress("the URL holds a blank or a control character")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"the URL cannot be read: {error}") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise BadAddress("the URL must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise BadAddress(
            "a password in a URL is seen by every user of this machine; use --key-file FILE or a "
            "variable such as VLLM_API_KEY"
        )
    if not parts.hostname:
        raise BadAddress("the URL names no host")
    if port == 0:
        raise BadAddress("port 0 cannot be asked")
    path = parts.path.rstrip("/")
    place = f"{path}/".find(f"{API}/")
    root = path if place < 0 else path[:place]
    if path.endswith("/metrics"):
        root = path.removesuffix("/metrics")
    api = root + API
    ending = next((name for name in ENDPOINTS if path.endswith(name)), "")
    if place < 0 and ending:
        api = root = path.removesuffix(ending)
    return Address(
        scheme=scheme,
        host=_ascii(parts.hostname),
        port=port or PORTS[scheme],
        root=root,
        api=api,
        given=path,
        query="".join(f"?{pair}" for pair in parts.query.split("&") if VERSION.fullmatch(pair)),
    )


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise BadAddress("the host of the URL is no name") from None
