"""What a launch names besides its model: a tokenizer, a draft model, adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_files import ModelFiles, read_model
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Host, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.models import hub
from infer_doctor.registry import probe


@frozen
class TokenizerFiles:
    """The folder that the tokenizer comes from."""

    files: ModelFiles
    named: bool
    """Whether --tokenizer names it; else it is the model's."""

    @property
    def gaps(self) -> tuple[str, ...]:
        return self.files.gaps


@frozen
class DraftModel:
    """The draft model of speculative decoding."""

    files: ModelFiles
    method: str | None


@frozen
class Adapter:
    """A LoRA adapter: adapter_config.json, or why there is none."""

    name: str
    path: str
    config: Mapping[str, Any] | None = field(default=None, metadata={"report": False})
    problem: str | None = None
    here: bool = True
    """False for a hub id that is not in the cache."""


@frozen
class LoraAdapters:
    """The adapters of --lora-modules."""

    adapters: tuple[Adapter, ...]
    gaps: tuple[str, ...] = ()


@probe
def tokenizer_files(
    host: Host,
    options: EngineOptions,
    files: ModelFiles,
    launch: Launch | None,
    environ: Environ | None,
) -> TokenizerFiles:
    """Those of --tokenizer, else the model's own."""
    name = options.get("tokenizer")
    if name is None:
        return TokenizerFiles(files=files, named=False)
    if not isinstance(name, str):
        raise Unavailable(f"the tokenizer is {name!r}, which the launch does not tell")
    revision = options.get("tokenizer_revision")
    found = read_model(host, name, options, launch, environ, revision)
    return TokenizerFiles(files=found, named=True)


@probe
def draft_model(
    host: Host, options: EngineOptions, launch: Launch | None, environ: Environ | None
) -> DraftModel:
    """The model of --speculative-config, --spec-model or, before 0.8.3, --speculative-model."""
    config = options.get("speculative_config")
    if isinstance(config, Unknown):
        raise Unavailable("--speculative-config is not known")
    config = config if isinstance(config, Mapping) else {}
    names = (options.get(name) for name in ("spec_model", "speculative_model"))
    name = config.get("model") or next((name for name in names if name), None)
    if name is None or (isinstance(name, str) and name.startswith("[")):
        raise Absent("the launch names no draft model")
    if not isinstance(name, str):
        raise Unavailable(f"the draft model is {name!r}, which the launch does not tell")
    method = config.get("method") or options.get("spec_method")
    return DraftModel(
        files=read_model(host, name, options, launch, environ, config.get("revision")),
        method=method if isinstance(method, str) else None,
    )


@probe
def lora_adapters(
    host: Host, options: EngineOptions, launch: Launch | None, environ: Environ | None
) -> LoraAdapters:
    """adapter_config.json of each --lora-modules: "name=path" or {"name", "path"}."""
    named = list(_named(options))
    if not named:
        raise Absent("the launch names no adapter")
    found = tuple(_adapter(host, options, launch, environ, *row) for row in named)
    return LoraAdapters(adapters=found)


def _named(options: EngineOptions) -> Iterator[tuple[str, str]]:
    values = options.get("lora_modules")
    if isinstance(values, Unknown):
        raise Unavailable("--lora-modules is not known")
    for value in values if isinstance(values, (list, tuple)) else [values] if values else []:
        row = value
        if isinstance(value, str) and value.lstrip().startswith("{"):
            try:
                row = json.loads(value)
            except ValueError:
                continue
        if isinstance(row, Mapping):
            name, path = row.get("name"), row.get("path")
        else:
            name, _, path = str(row).partition("=")
        if isinstance(name, str) and isinstance(path, str) and path:
            yield name, path


def _adapter(
    host: Host,
    options: EngineOptions,
    launch: Launch | None,
    environ: Environ | None,
    name: str,
    path: str,
) -> Adapter:
    files = read_model(host, path, options, launch, environ)
    if files.origin == "named":
        local = not hub.is_repository(path)
        problem = f"{path} does not exist" if local and not files.gaps else None
        return Adapter(name=name, path=path, problem=problem, here=False)
    where = files.path_of("adapter_config.json")
    config = files.documents.get("adapter_config.json")
    if config is None:
        broken = files.broken.get("adapter_config.json")
        problem = f"{where} {broken}" if broken else f"{files.folder} has no adapter_config.json"
        return Adapter(name=name, path=path, problem=problem)
    weights = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
    if not any(files.size_of(weight) for weight in weights):
        problem = f"{files.folder} has none of {', '.join(weights)}"
        return Adapter(name=name, path=path, config=config, problem=problem)
    return Adapter(name=name, path=files.folder or path, config=config)
