"""Command lines of an engine with options set or taken out; what the user wrote otherwise stays."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.launch.judge import CALLS, SERVERS
from infer_doctor.launch.model import Launch, Unknown

ALIASES = {
    "tensor-parallel-size": ("-tp", "--tp_size", "--tp-size"),
    "pipeline-parallel-size": ("-pp", "--pp_size", "--pp-size"),
    "quantization": ("-q",),
    "host": (),
    "port": (),
}
"""Other names of options that a run sets (vllm/engine/arg_utils.py; trtllm-serve --help)."""

LISTENING = frozenset(
    [
        "api-key",
        "uds",
        "ssl-keyfile",
        "ssl-certfile",
        "ssl-ca-certs",
        "ssl-cert-reqs",
        "ssl-ciphers",
        "enable-ssl-refresh",
        "grpc",
        "grpc-port",
    ]
)
"""Where a server listens and who may ask (vLLM's FrontendArgs, 0.32): a run has a port of its own on
127.0.0.1, in plain HTTP and without a key."""

KEYS = ("VLLM_API_KEY",)
"""Variables that set a key for the server."""

OPTION = re.compile(r"--?[A-Za-z]")
"""Not a number below zero."""

PARTS = ("program", "model")
"""What stands before the options."""

PROGRAM, MODEL = PARTS


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


def parts(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The program up to `serve`, the model, and each option with its values; the last writing counts.

    An option takes all words up to the next one. A model that stands behind a switch is taken with it,
    and so switched with it.
    """
    names = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
    serves = (at + 1 for at, word in enumerate(words) if word.rpartition(".")[2] in SERVERS)
    start = next(serves, 1)
    found: dict[str, tuple[str, ...]] = {PROGRAM: tuple(words[:start])}
    name = MODEL
    for word in words[start:]:
        if not OPTION.match(word):
            found[name] = (*found.get(name, ()), word)
            continue
        flag, equals, value = word.partition("=")
        plain, dot, key = flag.lstrip("-").partition(".")  # --hf-overrides.rope_theta 1e6
        name = plain.replace("_", "-").removeprefix("no-") + dot + key
        name = names.get(flag, name)
        found.pop(name, None)
        found[name] = (flag, value) if equals and flag.startswith("--") else (word,)
    return found


def without(words: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """The words without these options and all of their values."""
    return tuple(word for name, part in parts(words).items() if name not in names for word in part)


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
    if launch.entry in SERVERS:
        unknown = next((word for word in (*launch.program, *launch.words) if word.unknown), None)
        if unknown is not None:
            raise NoRun(f"{unknown.unknown} in {launch.name} has no value here")
        if not launch.program:
            raise NoRun(f"{launch.name} names no program")
        if any(word.text == "--headless" for word in launch.words):
            raise NoRun(f"{launch.name} is --headless: it starts no server that could be asked")
        return launch.command
    if launch.entry in CALLS and launch.engine == "vllm":
        if python is None:
            raise NoRun(f"{launch.name} is Python code: --python names its interpreter")
        return (python, "-m", "vllm.entrypoints.cli.main", *_serve(launch.keywords, launch.name))
    if launch.entry in CALLS:
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
    return ["serve", model, *_options(values)]


def of_config(launch: Launch) -> tuple[str, ...]:
    """The keys of vLLM's --config FILE as words; those of the command line count before them.

    Raises NoRun for what no option of a command line takes back.
    """
    values = {row.name: row.value for row in launch.config if not isinstance(row.value, Unknown)}
    hidden = sorted(name for name in values if name.replace("_", "-") in LISTENING)
    if hidden:
        raise NoRun(
            f"the file of --config sets {', '.join(hidden)}: give one without, the run listens on "
            f"127.0.0.1 only"
        )
    return tuple(_options(values))


def _options(values: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
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
