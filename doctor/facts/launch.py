"""The command that is to be started, as far as checks of the machine need it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable

ENGINES = {"vllm": "vllm", "trtllm-serve": "tensorrt-llm", "trtllm-bench": "tensorrt-llm"}
"""Program -> engine."""

SIZES = {
    "--tensor-parallel-size": "tensor",
    "-tp": "tensor",
    "--tp_size": "tensor",
    "--pipeline-parallel-size": "pipeline",
    "-pp": "pipeline",
    "--pp_size": "pipeline",
}
"""Options of `vllm serve` and `trtllm-serve` that multiply the number of ranks."""


UTILISATION = ("--gpu-memory-utilization", "--free-gpu-memory-fraction")
"""The share of the GPU's memory that the engine asks for."""


@frozen
class Launch:
    """A command line. `ranks` is None when a size is no number."""

    command: tuple[str, ...]
    engine: str | None
    ranks: int | None
    memory_utilization: float | None


def launch_of(command: Sequence[str]) -> Launch:
    """Read the engine, the number of ranks and the memory share off a command line."""
    sizes = {"tensor": "1", "pipeline": "1"}
    share = None
    words = list(command)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        dashed = name.replace("_", "-") if name.startswith("--") else name
        kind = SIZES.get(name) or SIZES.get(dashed)
        if kind is not None:
            sizes[kind] = value
        elif dashed in UTILISATION:
            share = value
    programs = (os.path.basename(word) for word in words)
    return Launch(
        command=tuple(command),
        engine=next((ENGINES[name] for name in programs if name in ENGINES), None),
        ranks=_product(sizes.values()),
        memory_utilization=_fraction(share),
    )


def variable(launch: Launch, name: str) -> str | None:
    """What the command itself sets: `NAME=value`, also after env, -e or --env; the last one.

    Raises Unavailable when the name stands in it in a way that is not read, as within `bash -c`.
    """
    found = None
    for word in launch.command:
        word = word.removeprefix("--env=")
        if word.startswith(f"{name}=") and " " not in word:
            found = word.partition("=")[2]
        elif name in word:
            raise Unavailable(f"the launch sets {name} in a way that was not read")
    return found


def option(launch: Launch, *names: str) -> str | None:
    """The value of an option, the last one given; in long names _ and - are the same."""
    found = None
    words = launch.command
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if (name.replace("_", "-") if name.startswith("--") else name) in names:
            found = value if equals else words[place + 1] if place + 1 < len(words) else ""
    return found


def _product(sizes: Iterable[str]) -> int | None:
    product = 1
    for size in sizes:
        if not size.isascii() or not size.isdigit():
            return None
        product *= int(size)
    return product


def _fraction(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value <= 1 else None
