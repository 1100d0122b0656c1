"""What a plan is made of, so that it can be made again with another option or on another GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from infer_doctor.facts.model_files import Tensor
from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Architecture, Unplannable, text_config
from infer_doctor.memory.parts import CONFIG, Gpu, Model
from infer_doctor.memory.plan import MemoryPlan, make_plan
from infer_doctor.memory.quantization import Scheme, cache_dtype_of, scheme_of
from infer_doctor.memory.reading import read_architecture
from infer_doctor.memory.settings import NEWEST, Settings, Version, settings_of
from infer_doctor.memory.tensors import from_config
from infer_doctor.memory.weights import Weight, from_headers
from infer_doctor.versions import release

HEADERS = "safetensors headers"


class Inputs:
    """A launch and its model; plans are made on demand."""

    def __init__(
        self,
        *,
        architecture: Architecture,
        options: Mapping[str, Any],
        version: Version,
        entry: str,
        tensors: Sequence[Tensor] = (),
        weights: Sequence[Weight] = (),
        scheme: Scheme | None = None,
        cache_dtype: str | None = None,
        basis: str = CONFIG,
        environment: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.architecture = architecture
        self.options = options
        if cache_dtype and options.get("kv_cache_dtype") in (None, "auto"):
            self.options = {**options, "kv_cache_dtype": cache_dtype}
        self.version = version
        self.entry = entry
        self.scheme = scheme
        self.environment = environment or {}
        self.notes = tuple(notes)
        self.basis = HEADERS if tensors else basis
        self._tensors = tensors
        self._given = tuple(weights)
        self._made: dict[int, Model] = {}

    def settings(self, gpu: Gpu, changed: Mapping[str, Any] | None = None) -> Settings:
        """The settings on a GPU, with some options changed."""
        return settings_of(
            {**self.options, **(changed or {})},
            self.architecture,
            version=self.version,
            entry=self.entry,
            gpu_name=gpu.name,
            gpu_total=gpu.total or gpu.usable,
            capability=gpu.capability,
            environment=self.environment,
        )

    def plan(self, gpu: Gpu, **changed: Any) -> MemoryPlan:
        """The plan on a GPU, with some options changed; raises Unplannable."""
        settings = self.settings(gpu, changed)
        made = make_plan(self._model(settings), settings, gpu)
        return replace(made, assumptions=(*made.assumptions, *self.notes))

    def _model(self, settings: Settings) -> Model:
        itemsize = settings.itemsize
        if itemsize not in self._made:
            architecture = self.architecture
            if settings.language_only:
                architecture = replace(architecture, tower=0)
            if self._given:
                weights: Sequence[Weight] = self._given
            elif self._tensors:
                weights = from_headers(
                    ((t.name, t.dtype, t.shape, t.size, t.count) for t in self._tensors),
                    architecture,
                    itemsize,
                )
            else:
                weights = from_config(architecture, itemsize, self.scheme)
            self._made[itemsize] = Model(
                architecture=architecture,
                weights=tuple(weights),
                basis=self.basis,
                scheme=self.scheme,
                itemsize=itemsize,
            )
        return self._made[itemsize]


@frozen
class Source:
    """The parts that `inputs_of` reads."""

    config: Mapping[str, Any]
    quantization: Mapping[str, Any] | None
    tensors: Sequence[Tensor] = ()
    whole: bool = True
    """All shards are there."""


def inputs_of(
    source: Source,
    options: Mapping[str, Any],
    *,
    version: str | None,
    entry: str,
    environment: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Inputs:
    """Raises Unplannable for a model, a quantisation or a version that is not known."""
    architecture = read_architecture(source.config)
    quantization = source.quantization or quantization_of(source.config)
    scheme = scheme_of(quantization)
    use = source.tensors if source.whole and options.get("load_format") != "dummy" else ()
    return Inputs(
        architecture=architecture,
        options=options,
        version=version_of(version),
        entry=entry,
        tensors=use,
        scheme=scheme,
        cache_dtype=cache_dtype_of(quantization),
        environment=environment,
        notes=notes,
    )


def quantization_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """quantization_config of the model or of its language part."""
    for part in (config, text_config(config)):
        for name in ("quantization_config", "compression_config"):
            value = part.get(name)
            if isinstance(value, Mapping):
                return value
    return None


def version_of(text: str | None) -> Version:
    """(0, 26, 0) of "0.26.0+cu130"; the newest whose rules are known when there is none."""
    if text is None:
        return NEWEST
    found = release(text, 3)
    if not found:
        raise Unplannable(f"the version {text!r} of vLLM cannot be read")
    return found
