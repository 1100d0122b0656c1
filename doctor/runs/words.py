"""Command lines of an engine with options set or taken out; what the user wrote otherwise stays."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Launch, Unknown

ALIASES = {
    "tensor-parallel-size": ("-tp", "--tp_size", "--tp-size"),
    "pipeline-parallel-size": ("-pp", "--pp_size", "--pp-size"),
    "quantization": ("-q",),
    "host": (),
    "port": (),
}
"""Other names of options that a run sets (vllm/engine/arg_utils.py; trtllm-serve --help)."""

SERVES = ("serve", "api_server", "trtllm-serve")
"""Entries of a launch that can be asked over HTTP."""

OFFLINE = ("LLM", "EngineArgs", "AsyncEngineArgs")


class NoRun(Exception):
    """This launch cannot be started by the doctor; the text says why."""


@frozen
class Change:
    """Options that differ from the launch: a value, None for a flag without one, "" to take it out."""

    label: str
    options: tuple[tuple[str, str | None], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


AS_ASKED = Change(label="as asked")


def with_options(
    words: Sequence[str], options: Sequence[tuple[str, str | None]]
) -> tuple[str, ...]:
    """The words with these options set; every earlier writing of one is taken out."""
    found = list(words)
    for name, value in options:
        found = _without(found, name)
        if value is None:
            found.append(f"--{name}")
        elif value != "":
            found += [f"--{name}", value]
    return tuple(found)


def _without(words: Sequence[str], name: str) -> list[str]:
    names = {f"--{name}", "--" + name.replace("-", "_"), f"--no-{name}", *ALIASES.get(name, ())}
    found: list[str] = []
    skip = False
    for place, word in enumerate(words):
        if skip:
            skip = False
            continue
        flag, equals, _ = word.partition("=")
        if flag not in names:
            found.append(word)
        elif not equals and place + 1 < len(words) and not words[place + 1].startswith("--"):
            # a flag without a value is followed by another option or by nothing: the model stands
            # first after `serve`
            skip = not _is_switch(name)
    return found


def _is_switch(name: str) -> bool:
    return name in ("enforce-eager", "trust-remote-code", "enable-chunked-prefill", "no-enable-log")


def value_in(words: Sequence[str], name: str) -> str | None:
    """The value of an option as it is written; the last one counts."""
    names = {f"--{name}", "--" + name.replace("-", "_"), *ALIASES.get(name, ())}
    found = None
    for place, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in names:
            found = value if equals else words[place + 1] if place + 1 < len(words) else None
    return found


def model_of_words(words: Sequence[str]) -> str:
    """The model of a server's command line, for requests."""
    named = value_in(words, "served-model-name")
    if named:
        return named
    for place, word in enumerate(words):
        if word in ("serve", "trtllm-serve") and place + 1 < len(words):
            following = words[place + 1]
            if not following.startswith("-"):
                return following
    return value_in(words, "model") or ""


def program_of(launch: Launch, python: str | None) -> tuple[str, ...]:
    """What starts the server: as the user wrote it, or the engine's own module for a Python call."""
    if launch.engine is None:
        raise NoRun(f"{launch.name} starts neither vLLM nor TensorRT-LLM")
    if launch.machine != "local":
        raise NoRun(f"{launch.name} is for another machine: give the command that runs here")
    if launch.entry in SERVES:
        unknown = next((word for word in (*launch.program, *launch.words) if word.unknown), None)
        if unknown is not None:
            raise NoRun(f"{unknown.unknown} in {launch.name} has no value here")
        if not launch.program:
            raise NoRun(f"{launch.name} names no program")
        return launch.command
    if launch.entry in OFFLINE and launch.engine == "vllm":
        if python is None:
            raise NoRun(f"{launch.name} is Python code: --python names its interpreter")
        return (python, "-m", "vllm.entrypoints.cli.main", *_serve(launch.keywords, launch.name))
    if launch.entry in OFFLINE:
        from infer_doctor.runs.trtllm import program

        return program(launch, python)
    raise NoRun(
        f"{launch.name} starts {launch.entry or 'no server'}: a run needs a server or LLM()"
    )


def _serve(keywords: Sequence[Any], name: str) -> list[str]:
    """The words of `vllm serve` that take the same values as LLM(...)."""
    values: dict[str, Any] = {}
    for keyword in keywords:
        if isinstance(keyword.value, Unknown):
            raise NoRun(
                f"{keyword.name} in {name} is {keyword.value.text}, which is known only there"
            )
        values[keyword.name] = keyword.value
    model = values.pop("model", None)
    if not isinstance(model, str):
        raise NoRun(f"{name} names no model")
    words = ["serve", model]
    for option, value in values.items():
        flag = "--" + option.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append(flag.replace("--", "--no-", 1))
        elif isinstance(value, (Mapping, list, tuple)):
            words += [flag, json.dumps(value)]
        elif value is not None:
            words += [flag, str(value)]
    return words


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        number: int = made.getsockname()[1]
        return number
