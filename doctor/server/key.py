"""Where the key of a server comes from. It is held here and shown nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infer_doctor.server.address import Address

FILE_LIMIT = 16 << 10

OWN = ("INFER_DOCTOR_API_KEY", "VLLM_API_KEY", "TRTLLM_API_KEY")
"""Variables whose key is meant for the servers that one runs oneself."""

FOREIGN = (
    "OPENAI_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "LITELLM_API_KEY",
    "LITELLM_MASTER_KEY",
    "NVIDIA_API_KEY",
)
"""Variables whose key may belong to somebody else: sent only when the server refuses without one."""

BEARER = "authorization"
HOSTED = {
    "api.openai.com": ("OPENAI_API_KEY", BEARER),
    "integrate.api.nvidia.com": ("NVIDIA_API_KEY", BEARER),
    ".openai.azure.com": ("AZURE_OPENAI_API_KEY", "api-key"),
    ".cognitiveservices.azure.com": ("AZURE_OPENAI_API_KEY", "api-key"),
    "api.anthropic.com": ("ANTHROPIC_API_KEY", "x-api-key"),
}
"""Hosts, or their ends, that a foreign key belongs to: there it is sent at once, in this header."""

HEADERS = ("x-api-key", "api-key")
"""That a refusal may name instead of Authorization: Anthropic's and Azure's APIs, gateways."""


class BadKey(Exception):
    """The key file cannot be used; the text says why."""


@dataclass(frozen=True)
class Key:
    """`eager`: sent with the first request, not only after a refusal."""

    source: str
    eager: bool
    value: str = field(repr=False)
    header: str = BEARER

    @property
    def headers(self) -> dict[str, str]:
        """What is sent."""
        if self.header == BEARER:
            return {"Authorization": f"Bearer {self.value}"}
        return {self.header: self.value}

    def otherwise(self, said: str) -> Key | None:
        """The same key in the header that a refusal names; None when it names no other."""
        named = next((name for name in HEADERS if name in said.lower()), None)
        if named is None or named == self.header:
            return None
        return replace(self, header=named)


def find(address: Address, file: str | None, variables: Mapping[str, str]) -> Key | None:
    """The key of the file, else of a variable; raises BadKey."""
    hosted, header = next(
        (found for end, found in HOSTED.items() if _is_host(address.host, end)), (None, BEARER)
    )
    if file is not None:
        value = _checked(_read(file), "--key-file")
        return Key(source="--key-file", eager=True, value=value, header=header)
    names = (hosted, *OWN) if hosted else (*OWN, *FOREIGN)
    for name in names:
        if name and (value := variables.get(name, "").strip()):
            eager = name == hosted or name in OWN
            return Key(source=name, eager=eager, value=_checked(value, name), header=header)
    return None


def _is_host(host: str, end: str) -> bool:
    return host == end or (end.startswith(".") and host.endswith(end))


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(FILE_LIMIT + 1) or b""
    except OSError as error:
        raise BadKey(f"--key-file {path}: {error.strerror}") from None
    if len(data) > FILE_LIMIT:
        raise BadKey(f"--key-file {path}: more than {FILE_LIMIT:,} bytes are no key")
    return data.decode("utf-8", "replace").strip()


def _checked(value: str, source: str) -> str:
    """A key that can stand in a header."""
    if not value:
        raise BadKey(f"{source}: is empty")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise BadKey(f"{source}: holds a blank, a line break or a letter beyond ASCII")
    return value
