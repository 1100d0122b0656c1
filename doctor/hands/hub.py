"""One question to a model hub: may this repository be read? Headers only, no file is fetched."""

from __future__ import annotations

import os
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

Json = dict[str, Any]

TOKEN_LIMIT = 4096
REDIRECTS = 3
HEADERS = ("x-error-code", "x-error-message", "x-repo-commit", "location")
VALUE_LIMIT = 300


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer: files lie on other hosts, which must not see the token."""

    def redirect_request(self, *_: Any) -> None:
        return None


def hub(
    endpoint: str,
    repository: str,
    revision: str,
    variables: list[str],
    token_file: str,
    limit_s: float,
) -> Json:
    """HEAD config.json of a repository, as the engine would: {"status", "headers", "token"}.

    `token` says where the token that was sent is from, never what it is. A relative redirect (a
    renamed repository) is followed. Without an answer: {"error", "token"}.
    """
    token, source = _token(variables, token_file)
    if urlsplit(endpoint).scheme not in ("http", "https"):
        return {"error": "it is no address of a web server", "token": source}
    path = f"/{quote(repository)}/resolve/{quote(revision, safe='')}/config.json"
    url = endpoint.rstrip("/") + path
    opener = urllib.request.build_opener(_Stay)
    for _ in range(REDIRECTS):
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (https or the user's own)
        request.add_header("User-Agent", "infer-doctor")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with opener.open(request, timeout=limit_s) as answer:
                status, headers = answer.status, answer.headers
        except urllib.error.HTTPError as error:
            status, headers = error.code, error.headers
        except (OSError, ValueError) as error:
            return {"error": _words(error), "token": source}
        target = headers.get("location", "")
        if status not in (301, 302, 307, 308) or urlsplit(target).netloc:
            break
        url = urljoin(url, target)
    kept = {name: headers.get(name, "")[:VALUE_LIMIT] for name in HEADERS}
    kept["location"] = kept["location"].partition("?")[0]  # signatures are no one's business
    return {
        "status": status,
        "headers": {name: value for name, value in kept.items() if value},
        "token": source,
        "asked": url,
    }


def _words(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the certificate was refused: {reason.verify_message}"
    if isinstance(reason, socket.gaierror):
        return f"the name is not known: {reason.strerror}"
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    return str(getattr(reason, "strerror", None) or reason)[:VALUE_LIMIT]


def _token(variables: list[str], file: str) -> tuple[str | None, str | None]:
    for name in variables:
        if value := os.environ.get(name, "").strip():
            return value, name
    try:
        with open(file, "rb") as handle:
            value = handle.read(TOKEN_LIMIT).decode("ascii", "ignore").strip()
    except OSError:
        return None, None
    return (value, file) if value else (None, None)
