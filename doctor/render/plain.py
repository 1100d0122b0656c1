"""Text that a terminal only shows and never obeys."""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and those that turn the direction of text; files of strangers may hold them."""


def plain(text: str) -> str:
    """The text with such characters written as \\x1b or \\u202e."""
    return CONTROL.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
