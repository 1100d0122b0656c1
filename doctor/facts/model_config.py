"""The model's config.json with what the launch changes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from infer_doctor.catalog.models import hides_quantization, published
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.frozen import frozen
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Unknown
from infer_doctor.model import Evidence
from infer_doctor.models.config import merged
from infer_doctor.registry import probe


@frozen
class ModelConfig:
    """config.json in force, read with infer_doctor.models.config."""

    values: Mapping[str, Any] = field(metadata={"report": False})
    source: str
    overridden: tuple[str, ...] = ()
    """The keys that --hf-overrides sets."""

    def evidence(self, *names: str) -> Evidence:
        """These keys as config.json has them, wherever in it they stand."""
        found = []
        parts = [("", self.values)]
        parts += [(f"{k}.", v) for k, v in self.values.items() if isinstance(v, Mapping)]
        for name in names:
            rows = [(prefix, part[name]) for prefix, part in parts if name in part]
            found += [f"{prefix}{name} {value}" for prefix, value in rows[-1:]]
        return Evidence(source=self.source, excerpt=", ".join(found)[:200])


@frozen
class PublishedConfig(ModelConfig):
    """The same for a well-known model that is not here, out of the catalogue: only likely."""

    quantization_hidden: str | None = None
    """Why it is not known how the weights are quantised."""


OLD_OVERRIDES = ("rope_scaling", "rope_theta")
"""Options of their own until 0.11 (config.py: hf_overrides.update)."""


@probe
def model_config(files: ModelFiles, options: EngineOptions) -> ModelConfig:
    """Needs config.json; a GGUF file and a name that is not here have none."""
    config = files.config
    if options.get("hf_config_path") is not None:
        raise Unavailable("--hf-config-path names another configuration, which was not read")
    if config is None:
        raise Unavailable(files.gaps[0] if files.gaps else why_not(files))
    overrides = _overrides(options)
    return ModelConfig(
        values=merged(config, overrides),
        source=files.path_of("config.json"),
        overridden=tuple(overrides),
    )


@probe
def published_config(options: EngineOptions) -> PublishedConfig:
    """By the name of the repository alone; another revision may differ."""
    name = options.model.value if options.model is not None else None
    if not isinstance(name, str) or options.get("revision") is not None:
        raise Unavailable("the model is not known by its name")
    config = published(name)
    if config is None:
        raise Unavailable(f"{name} is not in the catalogue of models")
    overrides = _overrides(options)
    values = merged(config, overrides)
    hidden = (
        f"{name} is quantised as its hf_quant_config.json says, which is not here"
        if hides_quantization(name, values)
        else None
    )
    return PublishedConfig(
        values=values,
        source=f"config.json of {name} as published",
        overridden=tuple(overrides),
        quantization_hidden=hidden,
    )


def _overrides(options: EngineOptions) -> Mapping[str, Any]:
    overrides = options.get("hf_overrides")
    if isinstance(overrides, Unknown) or callable(overrides):
        raise Unavailable("--hf-overrides changes config.json in a way that is not known")
    found = dict(overrides) if isinstance(overrides, Mapping) else {}
    for name in OLD_OVERRIDES:
        value = options.get(name) if name in options.given else None
        if isinstance(value, Unknown):
            raise Unavailable(f"--{name.replace('_', '-')} changes config.json, it is not told how")
        if value is not None:
            found[name] = value
    return found


def known_config(
    config: ModelConfig | None,
    files: ModelFiles | None,
    published: PublishedConfig | None,
) -> ModelConfig:
    """The model's own configuration; raises Unavailable.

    The published one stands in for a model that is not here, never for one that cannot be read.
    """
    if config is not None:
        return config
    if published is not None and (files is None or (files.origin == "named" and not files.folder)):
        return published
    if files is None:
        raise Unavailable("the files of the model are not known")
    raise Unavailable(files.gaps[0] if files.gaps else why_not(files))


def why_not(files: ModelFiles) -> str:
    """Why there is no config.json to read."""
    if files.origin == "named":
        where = "does not exist" if files.folder else "is not on this machine"
        return f"{files.model} {where}"
    if files.origin == "gguf":
        return f"{files.model} is a GGUF file: it has no config.json"
    if "config.json" in files.broken:
        return f"{files.path_of('config.json')} {files.broken['config.json']}"
    return f"{files.folder} has no config.json"
