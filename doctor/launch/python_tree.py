"""Python source -> its tree, and a constant as JSON; nothing runs."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

SIZE_LIMIT = 1_000_000
"""Characters; ast needs some 150 bytes for each, and no module of CPython's library is half as long."""


class BadSource(Exception):
    """The text is not Python; the words complete "FILE" ("FILE:3: ...")."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem)
        self.line = line


def parse(text: str) -> ast.Module:
    if len(text) > SIZE_LIMIT:
        raise BadSource(f"{len(text):,} characters of Python are too many (at most {SIZE_LIMIT:,})")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in somebody's strings
        try:
            return ast.parse(text)
        except SyntaxError as error:
            raise BadSource(f"is no Python: {error.msg}", error.lineno) from None
        except (RecursionError, MemoryError):
            raise BadSource("is nested too deeply to be read") from None
        except ValueError as error:
            raise BadSource(f"is no Python: {error}") from None


def dumped(value: Any) -> str | None:
    """What json.dumps makes of a constant; None when not all of it is known."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return None
