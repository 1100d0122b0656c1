"""What checks of the machine need of a launch, without the list of an engine's arguments."""

from __future__ import annotations

from collections.abc import Iterable

from infer_doctor.launch.model import Launch, Unknown

SIZES = (
    ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"),
    ("--pipeline-parallel-size", "-pp", "--pp-size", "--pp"),
)
"""Options of `vllm serve` and `trtllm-serve` that multiply the number of ranks."""

REPLICAS = ("--data-parallel-size", "-dp")

UTILISATION = ("--gpu-memory-utilization", "--free-gpu-memory-fraction")
"""The share of the GPU's memory that the engine asks for."""


def option(launch: Launch, *names: str) -> str | None:
    """The value of an option, the last one given; in long names _ and - are the same.

    The command line goes before the keywords of a call and the keys of a configuration file.
    """
    found = None
    words = launch.words
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if (name.replace("_", "-") if name.startswith("--") else name) in names:
            follows = words[index + 1].text if index + 1 < len(words) else ""
            found = value if equals else follows
    if found is not None:
        return found
    for keyword in reversed((*launch.config, *launch.keywords)):
        if f"--{keyword.name.replace('_', '-')}" in names:
            value = keyword.value
            return value.text if isinstance(value, Unknown) else str(value)
    return None


def open_ended(launch: Launch) -> bool:
    """Whether a word that is not known may stand for any options: `vllm serve $ARGS`."""
    return any(
        word.unknown is not None and not (index and words[index - 1].text.startswith("-"))
        for words in (launch.words,)
        for index, word in enumerate(words)
        if not word.text.startswith("-")
    )


def ranks(launch: Launch) -> int | None:
    """The processes that share one copy of the model; None when that is not known."""
    found = [option(launch, *names) for names in SIZES]
    if None in found and open_ended(launch):
        return None
    return _product(value if value is not None else "1" for value in found)


def all_ranks(launch: Launch) -> int | None:
    """Those of all replicas."""
    one, replicas = ranks(launch), option(launch, *REPLICAS) or "1"
    return one * int(replicas) if one is not None and _number(replicas) else None


def memory_utilization(launch: Launch) -> float | None:
    """The share of the GPU's memory, if the launch says one."""
    try:
        value = float(option(launch, *UTILISATION) or "")
    except ValueError:
        return None
    return value if 0 < value <= 1 else None


def _product(sizes: Iterable[str]) -> int | None:
    product = 1
    for size in sizes:
        if not _number(size):
            return None
        product *= int(size)
    return product


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit()
