"""What the checks of a launch share: its options as numbers, where they stand, whom they concern."""

from __future__ import annotations

from typing import Any

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.model import Evidence
from infer_doctor.versions import series

SERVERS = ("serve", "api_server", "trtllm-serve")
"""Entries that answer requests over HTTP."""

CALLS = ("LLM", "EngineArgs", "AsyncEngineArgs")
"""Entries that take keywords instead of flags."""


def require_vllm(options: EngineOptions) -> None:
    """The rules of vLLM say nothing about other engines."""
    if options.engine != "vllm":
        raise NotApplicable(f"the launch starts {options.engine}")


def is_here(launch: Launch) -> bool:
    """Whether the engine will run on the machine whose facts are known."""
    return launch.machine == "local"


def require_here(launch: Launch, what: str) -> None:
    """Facts of this machine never judge what starts on another."""
    if not is_here(launch):
        raise Unavailable(f"{what} of the machine that will run {launch.name} are not known")


def value_of(options: EngineOptions, name: str, default: Any = None) -> Any:
    """The value in force; raises Unavailable when the launch does not tell it."""
    value = options.get(name, default)
    if isinstance(value, Unknown):
        raise Unavailable(f"{name} is {value.text}, which the launch does not tell")
    return value


def whole(options: EngineOptions, name: str, default: int) -> int:
    """A value that is a whole number."""
    value = value_of(options, name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unavailable(f"{name} is {value!r}, no whole number")
    return value


def word(options: EngineOptions, name: str) -> str | None:
    """A value that is a word, in lower case; None when nothing is set."""
    value = value_of(options, name)
    return value.lower() if isinstance(value, str) and value else None


def evidence(options: EngineOptions, *names: str) -> tuple[Evidence, ...]:
    """Where each of these options is written; those that are not are left out."""
    found = []
    for name in names:
        given = options.model if name == "model" else options.given.get(name)
        if given is not None:
            text = f"{given.flag} {given.text}" if given.text else given.flag
            found.append(
                Evidence(source=given.place.file, line=given.place.line, excerpt=text.strip()[:200])
            )
    return tuple(found)


def flag(options: EngineOptions, name: str) -> str:
    """The option as the user writes it: the flag given, else the long one; a keyword in Python."""
    if name in options.given:
        return options.given[name].flag
    if options.entry in CALLS:
        return name
    return "--" + name.replace("_", "-")


def setting(options: EngineOptions, name: str, value: object) -> str:
    """An option with a value, as this kind of launch writes it."""
    written = flag(options, name)
    if written.startswith("-"):
        return f"{written} {value}"
    form = repr(value) if isinstance(value, str) else str(value)
    return f"{written}={form}"


def version_of(options: EngineOptions) -> tuple[int, ...] | None:
    """(0, 32); None when it is not known."""
    return series(options.version)
