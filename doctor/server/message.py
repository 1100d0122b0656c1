"""The words of HTTP/1.1: the head of an answer, the bytes of a request."""

from __future__ import annotations

from collections.abc import Mapping

SIZE_DIGITS = 16

ENCODINGS = "gzip, deflate"
"""Offered, as the clients of an engine do: `encoding` unpacks them."""


class Broken(Exception):
    """The peer does not keep to HTTP, or to our bounds; `kind` is one of Answer.error."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(said)
        self.kind = kind
        self.said = said


def parse_head(head: bytes) -> tuple[int, str, dict[str, str]]:
    """Status, reason and headers (names in lower case, the values of one name joined by commas)."""
    lines = head.decode("latin-1").replace("\r\n", "\n").split("\n")
    words = lines[0].split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/") or not _is_status(words[1]):
        raise Broken("not-http", shown(head))
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        key = name.strip().lower()
        if not colon or not key:
            continue
        value = value.strip()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return int(words[1]), words[2] if len(words) > 2 else "", headers


def content_length(headers: Mapping[str, str]) -> int | None:
    """The length of a body; the same one twice is one (RFC 9112, section 6.3); raises Broken."""
    given = headers.get("content-length")
    if given is None:
        return None
    first, *more = [word.strip() for word in given.split(",")]
    valid = first.isascii() and first.isdigit() and len(first) <= SIZE_DIGITS
    if not valid or any(word != first for word in more):
        raise Broken("not-http", f"Content-Length: {given[:40]}")
    return int(first)


def _is_status(word: str) -> bool:
    return len(word) == 3 and word.isascii() and word.isdigit() and word[0] in "12345"


def shown(data: bytes, limit: int = 60) -> str:
    """The beginning of bytes that may be anything, as printable text."""
    text = data[:limit].decode("latin-1").encode("unicode_escape").decode()
    return text + (" ..." if len(data) > limit else "")


def request(
    method: str,
    path: str,
    authority: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", f"Accept-Encoding: {ENCODINGS}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    elif method != "GET":
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
