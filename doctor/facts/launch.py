"""The command that is to be started, as far as checks of the machine need it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A command line. `ranks` is None when a size is no number."""

    command: tuple[str, ...]
    engine: str | None
    ranks: int | None


def launch_of(command: Sequence[str]) -> Launch:
    """Read the engine and the number of ranks off a command line."""
    sizes = {"tensor": 1, "pipeline": 1}
    readable = True
    words = list(command)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") and name not in SIZES else name
        if name not in SIZES:
            continue
        if not equals:
            value = words[place + 1] if place + 1 < len(words) else ""
        if value.isdigit():
            sizes[SIZES[name]] = int(value)
        else:
            readable = False
    programs = (os.path.basename(word) for word in words)
    return Launch(
        command=tuple(command),
        engine=next((ENGINES[name] for name in programs if name in ENGINES), None),
        ranks=sizes["tensor"] * sizes["pipeline"] if readable else None,
    )
