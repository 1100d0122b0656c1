"""A model repository of Triton with the TensorRT-LLM backend, out of its config.pbtxt files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.trtllm.folder import TrtEngine
from infer_doctor.trtllm.pbtxt import BadText, Message, read

BACKEND = "tensorrtllm"

PLACEHOLDER = re.compile(r"\$\{[^}\n]*\}")
"""What tools/fill_template.py replaces; left alone it is a word like any other for Triton."""

UNSET = "${"

STRINGS = ("name", "backend", "platform")
INTEGER = re.compile(r"-?(?:\d+|0[xX][0-9a-fA-F]+)")


@frozen
class Parameter:
    """A `parameters { key value { string_value } }`."""

    value: str
    line: int


@frozen
class Step:
    """A step of an ensemble: what its model gets and gives, by the names of both sides."""

    model: str
    line: int
    inputs: Mapping[str, tuple[str, int]]
    """Input of the model -> tensor of the ensemble and the line."""
    outputs: Mapping[str, tuple[str, int]]


@frozen
class TritonModel:
    """One folder of the repository."""

    name: str
    """Of the folder."""
    path: str
    """Of its config.pbtxt."""
    own_name: str | None
    backend: str | None
    platform: str | None
    batch: int | None
    lines: Mapping[str, int]
    """Line of "max_batch_size", "name", "backend", "decoupled" and the like."""
    decoupled: bool | None
    inputs: Mapping[str, tuple[str, bool]]
    """Name -> (data type, whether it is optional)."""
    outputs: Mapping[str, str]
    parameters: Mapping[str, Parameter]
    placeholders: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...]
    versions: Mapping[str, tuple[str, ...]]
    queue_delay_us: int | None
    broken: str | None
    """LINE: what is wrong with config.pbtxt."""
    files: tuple[str, ...] = ()

    @property
    def is_ensemble(self) -> bool:
        return self.platform == "ensemble"

    @property
    def served_by_trtllm(self) -> bool:
        """By its backend, or by a parameter that only it has where the template is not filled."""
        if self.backend == BACKEND:
            return True
        return UNSET in (self.backend or "") and "gpt_model_path" in self.parameters

    @property
    def is_python(self) -> bool:
        return self.backend == "python"

    def parameter(self, *names: str) -> str | None:
        """The first of these that has a value; a placeholder and an empty string are none."""
        for name in names:
            found = self.parameters.get(name)
            if found is not None and found.value and UNSET not in found.value:
                return found.value
        return None

    def line_of(self, name: str) -> int | None:
        found = self.parameters.get(name)
        return found.line if found is not None else self.lines.get(name)


@frozen
class TritonRepository:
    """A model repository, and the engine folders that its models name."""

    path: str
    models: tuple[TritonModel, ...] = field(metadata={"report": False})
    engines: Mapping[str, TrtEngine] = field(default_factory=dict, metadata={"report": False})
    """Model -> its engine folder."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Model -> the engine folder that it names and that is no engine folder or not there."""
    tokenizers: Mapping[str, bool] = field(default_factory=dict)
    """Model -> whether the folder of its tokenizer_dir is there."""
    gaps: tuple[str, ...] = ()

    def model(self, name: str) -> TritonModel | None:
        return next((row for row in self.models if row.name == name), None)

    @property
    def served(self) -> tuple[TritonModel, ...]:
        """The models that run TensorRT-LLM in C++."""
        return tuple(row for row in self.models if row.served_by_trtllm)


def is_repository(answer: Mapping[str, Any]) -> bool:
    """Whether a folder holds a model that has to do with TensorRT-LLM."""
    return any(
        row["config"] and (BACKEND in row["config"] or "gpt_model_path" in row["config"])
        for row in answer["models"].values()
    )


def model_of(root: str, name: str, row: Mapping[str, Any]) -> TritonModel:
    """A model as its folder tells it."""
    path = f"{root.rstrip('/')}/{name}/config.pbtxt"
    text, broken = row["config"], row["error"]
    message = Message()
    if text is not None:
        try:
            message = read(text)
        except BadText as error:
            broken = str(error)
        else:
            broken = _refused(message)
    policy = message.message("model_transaction_policy")
    batching = message.message("dynamic_batching")
    scheduling = message.message("ensemble_scheduling")
    names = ("name", "backend", "platform", "max_batch_size", "model_transaction_policy")
    lines = {key: line for key in names if (line := message.line(key)) is not None}
    return TritonModel(
        name=name,
        path=path,
        own_name=message.text("name"),
        backend=message.text("backend"),
        platform=message.text("platform"),
        batch=whole(message.text("max_batch_size")),
        lines=lines,
        decoupled=_flag(policy.text("decoupled") if policy else None),
        inputs={
            row.text("name") or "": (row.text("data_type") or "", row.text("optional") == "true")
            for row in message.messages("input")
        },
        outputs={
            row.text("name") or "": row.text("data_type") or ""
            for row in message.messages("output")
        },
        parameters=dict(_parameters(message)),
        placeholders=_placeholders(text or ""),
        steps=tuple(_step(step) for step in scheduling.messages("step")) if scheduling else (),
        versions={number: tuple(files) for number, files in row["versions"].items()},
        queue_delay_us=whole(batching.text("max_queue_delay_microseconds")) if batching else None,
        broken=broken,
        files=tuple(row["files"]),
    )


def _refused(message: Message) -> str | None:
    """LINE: what the parser of Triton refuses in a field that takes one value (protobuf.dev, Text Format
    Language: a singular field twice, a string without quotes, a number that is no integer)."""
    for name in (*STRINGS, "max_batch_size"):
        values = message.all(name)
        if len(values) > 1:
            return f"{values[1].line}: {name} is given twice"
        for row in values:
            if not isinstance(row.value, str) or UNSET in row.value:
                continue
            if name in STRINGS and not row.quoted:
                return f"{row.line}: {name} takes a string in quotes, {row.value} has none"
            if name not in STRINGS and (row.quoted or not INTEGER.fullmatch(row.value)):
                return f"{row.line}: {name} takes an integer, {row.value} is none"
    return None


def _parameters(message: Message) -> Any:
    for row in message.messages("parameters"):
        key, value = row.text("key"), row.message("value")
        if key is None:
            continue
        found = value.first("string_value") if value is not None else None
        line = found.line if found is not None else row.line("key") or 0
        text = found.value if found is not None and isinstance(found.value, str) else ""
        yield key, Parameter(value=text, line=line)


def _step(message: Message) -> Step:
    def pairs(name: str) -> dict[str, tuple[str, int]]:
        return {
            row.text("key") or "": (row.text("value") or "", row.line("key") or 0)
            for row in message.messages(name)
        }

    return Step(
        model=message.text("model_name") or "",
        line=message.line("model_name") or 0,
        inputs=pairs("input_map"),
        outputs=pairs("output_map"),
    )


def _placeholders(text: str) -> tuple[tuple[str, int], ...]:
    """What the template left, with the key it stands for; not in comments."""
    found: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.partition("#")[0]
        found += [(match[0], number) for match in PLACEHOLDER.finditer(code)]
    return tuple(found)


def _flag(text: str | None) -> bool | None:
    return {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}.get(
        text or ""
    )


def whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None


def share(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
