"""The model's config.json with what the launch changes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

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


@probe
def model_config(files: ModelFiles, options: EngineOptions) -> ModelConfig:
    """Needs config.json; a GGUF file and a name that is not here have none."""
    config = files.config
    if config is None:
        raise Unavailable(files.gaps[0] if files.gaps else why_not(files))
    overrides = options.get("hf_overrides")
    if isinstance(overrides, Unknown) or callable(overrides):
        raise Unavailable("--hf-overrides changes config.json in a way that is not known")
    if not isinstance(overrides, Mapping):
        overrides = {}
    return ModelConfig(
        values=merged(config, overrides),
        source=files.path_of("config.json"),
        overridden=tuple(overrides),
    )


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
