"""The memory plan of the launch on the GPUs that it would take.

The arithmetic is loaded only where there is a launch to plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from infer_doctor.facts.chosen import ChosenGpus, left_out
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuCapabilities, GpuMemory, Gpus
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, why_not
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.vllm_options import VllmTable
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.model import Launch
from infer_doctor.launch.variables import of_engine
from infer_doctor.registry import probe

if TYPE_CHECKING:
    from infer_doctor.memory.inputs import Inputs
    from infer_doctor.memory.parts import Gpu
    from infer_doctor.memory.plan import MemoryPlan

VARIABLES = (
    "VLLM_USE_V2_MODEL_RUNNER",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_USE_V1",
    "VLLM_USE_FLASHINFER_SAMPLER",
)


@frozen
class PlanInputs:
    """The launch and its model, ready for a plan on any GPU."""

    inputs: Inputs = field(metadata={"report": False})
    basis: str
    version: str | None
    model: str
    published: bool = False
    """The model is not here: its configuration comes out of the catalogue."""


@frozen
class PlanGpu:
    """The smallest of the GPUs that the launch would take, with what others hold of it."""

    gpu: Gpu
    count: int
    """Of the machine."""
    source: str


@frozen
class Planned:
    """The plan, which memory/report.py writes into the report; `gpus` are those of the machine."""

    plan: MemoryPlan = field(metadata={"report": False})
    inputs: Inputs = field(metadata={"report": False})
    gpus: int
    source: str
    model: str
    published: bool = False


@probe
def plan_inputs(
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    launch: Launch | None,
    environ: Environ | None,
    table: VllmTable | None = None,
) -> PlanInputs:
    """Unavailable, with the reason, where the model, an option or the version is not known."""
    if options.engine != "vllm":
        raise Absent("the launch starts TensorRT-LLM; the memory plan is about vLLM")
    from infer_doctor.memory.architecture import Unplannable
    from infer_doctor.memory.inputs import version_of
    from infer_doctor.memory.settings import require_rules

    variables = of_engine(launch, environ, *VARIABLES)
    environment = {name: variables[name] for name in VARIABLES if name in variables}
    not_here = files is None or (files.origin == "named" and not files.folder)
    named = published if not_here else None
    try:
        if table is not None and table.version is not None:
            require_rules(version_of(table.version))  # its options are read as 0.6 has them
        found = _inputs(options, files, named or config, environment)
    except Unplannable as error:
        raise Unavailable(str(error)) from None
    model = files.folder or files.model if files is not None else named_model(options)
    return PlanInputs(
        inputs=found,
        basis=found.basis,
        version=options.version,
        model=model,
        published=named is not None,
    )


def named_model(options: EngineOptions) -> str:
    """The model as the launch writes it, for a sentence."""
    return str(options.model.value) if options.model is not None else "the model"


def _inputs(
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    environment: Mapping[str, str],
) -> Inputs:
    from infer_doctor.memory.architecture import Unplannable
    from infer_doctor.memory.gguf import architecture_of, weights_of
    from infer_doctor.memory.inputs import Inputs, Source, inputs_of, version_of

    values = in_force(options)
    notes = () if options.exact else (f"rules of {options.basis}",)
    if isinstance(config, PublishedConfig):
        notes = (*notes, config.source)
        if config.quantization_hidden:
            raise Unplannable(config.quantization_hidden)
    if files is not None and files.gguf is not None:
        return Inputs(
            architecture=architecture_of(files.gguf),
            options=values,
            version=version_of(options.version),
            entry=options.entry,
            weights=weights_of(files.gguf),
            basis="the GGUF file",
            environment=environment,
            notes=notes,
        )
    if config is None:
        if files is None:
            raise Unplannable(f"the files of {named_model(options)} are not known")
        raise Unplannable(files.gaps[0] if files.gaps else why_not(files))
    own = None if isinstance(config, PublishedConfig) else files
    return inputs_of(
        Source(
            config=config.values,
            quantization=own.quantization if own is not None else None,
            tensors=own.tensors if own is not None else (),
            whole=own is None or (not own.missing_shards and not own.broken),
        ),
        values,
        version=options.version,
        entry=options.entry,
        environment=environment,
        notes=notes,
    )


def in_force(options: EngineOptions) -> dict[str, Any]:
    """Given options and the version's plain defaults, by the engine's own names."""
    given = {name: option.value for name, option in options.given.items()}
    return {**options.defaults, **given}


@probe
def plan_gpu(
    gpus: Gpus,
    memory: GpuMemory,
    capabilities: GpuCapabilities | None,
    chosen: ChosenGpus | None,
) -> PlanGpu:
    """The GPU with the least free memory among those that the launch takes decides."""
    from infer_doctor.catalog.gpu_memory import UnknownGpu, find
    from infer_doctor.memory.parts import Gpu

    rows = [row for row in memory.rows if not left_out(row.index, chosen)]
    if not rows:
        raise Unavailable(memory.gaps[0] if memory.gaps else "no memory of a GPU was read")
    row = min(rows, key=lambda row: (row.usable - row.used, row.index))
    name = next((gpu.name for gpu in gpus.gpus if gpu.index == row.index), "GPU")
    known = capabilities.capabilities.get(row.index) if capabilities else None
    usable = row.usable
    if row.bounds:
        try:
            usable = min(usable, find(name).usable)
        except UnknownGpu:
            raise Unavailable(f"what CUDA can give of {name} is not in {memory.source}") from None
    return PlanGpu(
        gpu=Gpu(
            name=name,
            usable=usable,
            total=row.total,
            used=row.used,
            capability=known,
            exact=not row.bounds,
        ),
        count=len(memory.rows),
        source=memory.source,
    )


@probe
def planned(inputs: PlanInputs, gpu: PlanGpu) -> Planned:
    """The plan on these GPUs."""
    from infer_doctor.memory.architecture import Unplannable

    try:
        plan = inputs.inputs.plan(gpu.gpu)
    except Unplannable as error:
        raise Unavailable(str(error)) from None
    return Planned(
        plan=plan,
        inputs=inputs.inputs,
        gpus=gpu.count,
        source=gpu.source,
        model=inputs.model,
        published=inputs.published,
    )
