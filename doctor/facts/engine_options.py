"""The options of a launch as typed values, by the engine version that will run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Place

Problem = Literal[
    "unknown",
    "removed",
    "renamed",
    "not-yet",
    "ambiguous",
    "type",
    "choice",
    "range",
    "missing-value",
    "deprecated",
    "duplicate",
    "undecided",
    "ignored",
    "misplaced",
]
""""undecided": whether the version takes it is not known. "ignored": another value is taken silently.
"misplaced": it belongs to the program that starts the engine."""


@frozen
class Option:
    """One option that the launch sets.

    `name` is the engine's own name of the field ("max_model_len"), `flag` what was written
    ("--max-model-len", "-tp", a key), `value` typed as the engine types it; an
    infer_doctor.launch.model.Unknown where the file does not tell it.
    """

    name: str
    flag: str
    value: Any
    text: str
    place: Place


@frozen
class OptionProblem:
    """An argument that the version does not take as it is written."""

    kind: Problem
    flag: str
    text: str | None
    place: Place
    message: str
    """The fact in one sentence: "vLLM 0.32.0 has no --swap-space: removed in about 0.18"."""
    successor: str | None = None
    """What to write instead, whole ("--max-cudagraph-capture-size 512"); None when nothing."""
    nearest: str | None = None
    """For an unknown one: the nearest that the version has."""


@frozen
class EngineOptions:
    """What the engine will take its settings from.

    `basis` says where the list of arguments comes from: "installed source", "catalogue 0.32.0",
    "catalogue 0.31.0, the nearest older one". `exact` is False for the last kind: what is unknown
    then may be newer than the list.
    """

    engine: Literal["vllm", "tensorrt-llm"]
    version: str | None
    basis: str
    exact: bool
    entry: str
    model: Option | None
    given: Mapping[str, Option] = field(default_factory=dict)
    problems: tuple[OptionProblem, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict, metadata={"report": False})
    gaps: tuple[str, ...] = ()

    def get(self, name: str, default: Any = None) -> Any:
        """The value in force: given, else the version's default, else `default`."""
        if name in self.given:
            return self.given[name].value
        value = self.defaults.get(name)
        return default if value is None else value


@frozen
class EngineQuestion:
    """What `--engine NAME==VERSION` asks to judge for, instead of what is installed."""

    name: Literal["vllm", "tensorrt-llm"]
    version: str
