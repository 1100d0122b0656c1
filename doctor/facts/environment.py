"""The engine's Python environment: its interpreter and what is installed there, read from disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Question:
    """What the user asked to examine: the interpreter of `--python`, or None to look for it."""

    python: str | None


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The interpreter whose environment is examined."""

    executable: str
    version: str | None
    """major.minor, such as "3.12"."""
    prefix: str
    base_prefix: str
    kind: str
    """"venv", "conda" or "system"."""
    found_by: str
    """"--python", "vllm on PATH", "trtllm-serve on PATH" or "the doctor's own"."""
    folders: tuple[str, ...]
    """Folders of sys.path that hold distributions, in import order."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One installed distribution. `name` is normalised (PEP 503); `owns` are importable top files."""

    name: str
    written_name: str
    version: str
    requires: tuple[str, ...]
    requires_python: str | None
    installer: str | None
    editable: bool
    location: str
    """Folder of its metadata."""
    owns: Mapping[str, str]
    """Path of an importable top-level file -> its hash as RECORD has it."""


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """All distributions by normalised name; of several with one name the first on the path counts."""

    by_name: Mapping[str, Distribution] = field(metadata={"report": False})
    shadowed: tuple[Distribution, ...] = field(metadata={"report": False})
    source: str
    gaps: tuple[str, ...] = ()
