"""Which interpreter a script on PATH starts: shebangs, and the shims of pyenv. Pure parsers."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator

ENV = "env"
"""What `env` looks up on PATH is returned as this word and a space before the name."""

SHELLS = ("sh", "bash", "dash", "zsh")

LONG_FORM = re.compile(r"^'''exec' (.+?) \"\$0\" \"\$@\"", re.M)
"""The second line that pip (distlib) and uv write when the path is too long for a shebang or holds
a blank: https://github.com/pypa/pip/blob/24.0/src/pip/_vendor/distlib/scripts.py#L154"""

OWN_FOLDER = '"$(dirname -- "$(realpath -- "$0")")"'
"""What uv writes before the name for relocatable environments."""

VERSION_FILE_WORD = re.compile(r"[\w.+/-]+")


def interpreter_of(text: str, folder: str) -> str | None:
    """The path of the interpreter that a script names, "env NAME", or None when it names none.

    `folder` is the folder that holds the script, without links.
    """
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return None
    words = first[2:].split(None, 1)
    if not words:
        return None
    program = posixpath.basename(words[0])
    if program == "env":
        name = _env_program(words[1] if len(words) > 1 else "")
        return f"{ENV} {name}" if name else None
    if program in SHELLS:
        long = LONG_FORM.search(text)
        return _unquoted(long[1].replace(OWN_FOLDER, shlex.quote(folder))) if long else None
    return words[0]


def _env_program(arguments: str) -> str | None:
    """The program that env starts: the first word that is neither an option nor NAME=value."""
    for word in _words(arguments):
        if not word.startswith("-") and "=" not in word:
            return word
    return None


def _unquoted(text: str) -> str | None:
    words = _words(text)
    return words[0] if words else None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quotation mark
        return []


def pyenv_root(text: str, path: str) -> str | None:
    """The root of pyenv when this text is one of its shims, else None."""
    folder = posixpath.dirname(path)
    if posixpath.basename(folder) != "shims" or not re.search(r"\bpyenv\S*\s+exec\b", text):
        return None
    found = re.search(r'^export PYENV_ROOT="([^"]+)"', text, re.M)
    return found[1] if found else posixpath.dirname(folder)


def pyenv_versions(text: str) -> list[str]:
    """The names in a pyenv version file: one a line, `#` begins a comment."""
    lines = (line.partition("#")[0] for line in text.splitlines())
    return [name for line in lines for name in VERSION_FILE_WORD.findall(line)]


def latest(name: str, installed: tuple[str, ...]) -> str | None:
    """The installed version that pyenv takes for a name: itself, else the newest `name.N`."""
    if name in installed:
        return name
    later = [
        version for version in installed if re.fullmatch(rf"{re.escape(name)}(\.\d+)+", version)
    ]
    return max(later, key=_numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def parents(folder: str) -> Iterator[str]:
    """The folder and those above it."""
    yield folder
    while (parent := posixpath.dirname(folder)) != folder:
        folder = parent
        yield folder


def path_lines(text: str) -> list[str]:
    """The folders that a .pth file adds; lines that would be executed are left alone."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "import ", "import\t"))]


def settings(text: str) -> dict[str, str]:
    """The `key = value` lines of pyvenv.cfg."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
