"""The words of HTTP/1.1: the head of an answer, the bytes of a request."""

from __future__ import annotations

from collections.abc import Mapping


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


def _is_status(word: str) -> bool:
    return len(word) == 3 and word.isascii() and word.isdigit() and word[0] in "12345"


def shown(data: bytes, limit: int = 60) -> str:
    """The beginning of bytes that may be anything, as printable text."""
    text = data[:limit].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
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
    lines = [f"{method} {path} HTTP/1.1", f"Host: {authority}", "Accept-Encoding: identity"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    elif method != "GET":
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body
