"""Whether the model can be divided as the launch says, and whether there are GPUs for all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import change_option, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.judge import (
    evidence,
    flag,
    require_vllm,
    setting,
    value_of,
    whole,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import confidence, quantization_of
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import config as read
from infer_doctor.models import parallel
from infer_doctor.registry import check
from infer_doctor.units import plural

TENSOR = "tensor_parallel_size"
PIPELINE = "pipeline_parallel_size"
EXPERT = "enable_expert_parallel"


@check("launch-tp-indivisible", severity="error", category="tp_divisibility", since="0.2")
def tp_indivisible(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The model cannot be divided over so many tensor parallel ranks.

    ## Why it matters
    vLLM refuses after it has loaded its libraries: "Total number of attention heads (28) must be
    divisible by tensor parallel size (8)", or later, in a worker, "... is not divisible by ...".

    ## How it decides
    As vLLM 0.32 divides (lines in models/parallel.py): attention heads and the padded vocabulary by
    the size; key-value heads by the size or, above them, the size by the heads; the width of the MLP
    or, without expert parallelism, that of the experts; for AWQ and GPTQ whole groups on each rank,
    for block-quantised fp8 whole blocks. Numbers that config.json does not give are not judged.
    `--hf-overrides` counts. A well-known model that is not on this machine is judged by its published
    configuration (catalog/models.json), and the finding is only likely.

    ## Fix safety
    Safe: another size in the launch. The model needs the memory of that many GPUs.
    """
    require_vllm(options)
    size = whole(options, TENSOR, 1)
    if size <= 1:
        raise NotApplicable("one tensor parallel rank divides nothing")
    config = known_config(config, files, published)
    hidden = config.quantization_hidden if isinstance(config, PublishedConfig) else None
    quantization = None if hidden else quantization_of(files, config)
    experts = bool(value_of(options, EXPERT, False))
    found = list(parallel.problems(config.values, size, quantization, expert_parallel=experts))
    if not found:
        if hidden:
            raise Unavailable(hidden)  # its blocks may not be divisible
        if read.size(config.values, "heads") is None:
            raise Unavailable(f"{config.source} does not say how many attention heads there are")
        return
    good = parallel.sizes(config.values, quantization, expert_parallel=experts)
    names = ("num_attention_heads", "num_key_value_heads", "vocab_size", "intermediate_size")
    yield Finding(
        about=TENSOR,
        confidence=confidence(config),
        message=f"{setting(options, TENSOR, size)}: {' and '.join(found)} cannot be divided over "
        f"{size} ranks; sizes that work: {parallel.listed(parallel.offered(good, size))}",
        evidence=(
            *evidence(options, TENSOR, EXPERT),
            config.evidence(*names, "moe_intermediate_size"),
        ),
        fixes=_other_size(launch, options, good, size),
    )


def _other_size(
    launch: Launch, options: EngineOptions, good: Sequence[int], size: int
) -> tuple[Fix, ...]:
    lower = [known for known in good if known < size]
    if not lower:
        return ()
    best = max(lower)
    return (
        change_option(
            launch,
            options,
            TENSOR,
            best,
            why=f"the next size that works below {size}; the memory of {plural(best, 'GPU')} must "
            "hold the model",
        ),
    )


@check("launch-pipeline-too-deep", severity="error", category="tp_divisibility", since="0.2")
def pipeline_too_deep(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The launch has more pipeline stages than the model has layers.

    ## Why it matters
    A stage without a layer fails when the model is built, in a worker and without a clear word.

    ## How it decides
    Pipeline parallel size against num_hidden_layers of config.json
    (vllm/distributed/utils.py:126, get_pp_indices).

    ## Fix safety
    Safe: another size in the launch.
    """
    require_vllm(options)
    stages = whole(options, PIPELINE, 1)
    if stages <= 1:
        raise NotApplicable("one pipeline stage")
    config = known_config(config, files, published)
    layers = read.size(config.values, "layers")
    if layers is None:
        raise Unavailable(f"{config.source} does not say how many layers there are")
    if stages <= layers:
        return
    yield Finding(
        about=PIPELINE,
        confidence=confidence(config),
        message=f"{setting(options, PIPELINE, stages)}, but the model has {plural(layers, 'layer')}",
        evidence=(*evidence(options, PIPELINE), config.evidence("num_hidden_layers", "n_layer")),
        fixes=(change_option(launch, options, PIPELINE, 1),),
    )


EXPERTS_BY_DEFAULT = ("nemotron_h",)
"""Model types whose class in transformers (5.19) has experts that a config may leave out."""


@check("launch-expert-parallel-dense", severity="error", category="launch_argument", since="0.2")
def expert_parallel_dense(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """Expert parallelism is asked for, and the model has no experts.

    ## Why it matters
    vLLM stops with "Number of experts in the model must be greater than 0 when expert parallelism
    is enabled".

    ## How it decides
    `--enable-expert-parallel` with none of the keys under which vLLM looks for experts
    (num_experts, moe_num_experts, n_routed_experts, num_local_experts, block_configs;
    transformers_utils/model_arch_config_convertor.py:180) above 0.

    ## Fix safety
    Safe: the option does nothing for a dense model.
    """
    require_vllm(options)
    if value_of(options, EXPERT, False) is not True:
        raise NotApplicable("expert parallelism is not asked for")
    config = known_config(config, files, published)
    text = read.text_part(config.values)
    if read.experts(config.values) or "block_configs" in text:
        return
    kind = read.model_type(config.values) or "model"
    if kind in EXPERTS_BY_DEFAULT:
        raise Unavailable(f"{kind} models have experts that config.json need not name")
    yield Finding(
        about=EXPERT,
        confidence=confidence(config),
        message=f"{flag(options, EXPERT)}, but this {kind} model has no experts",
        evidence=(
            *evidence(options, EXPERT),
            Evidence(source=config.source, excerpt="no num_experts, n_routed_experts or the like"),
        ),
        fixes=(drop_option(launch, options, EXPERT),) if EXPERT in options.given else (),
    )


@check("launch-context-parallel-refused", severity="error", category="tp_divisibility", since="0.2")
def context_parallel_refused(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The decode context parallel size does not fit the heads and the tensor parallel size.

    ## Why it matters
    vLLM stops with "`--decode-context-parallel-size` (4) exceeds the maximum supported value".

    ## How it decides
    vllm/config/model.py:1569-1589 and config/parallel.py:596 (0.32): the tensor parallel size must be
    a multiple of it; without latent attention it must also be at most the tensor parallel size
    divided by the key-value heads, and divide the query heads of each key-value head.

    ## Fix safety
    Safe: another size in the launch.
    """
    require_vllm(options)
    name = "decode_context_parallel_size"
    ranks, tensor = whole(options, name, 1), whole(options, TENSOR, 1)
    if ranks <= 1:
        raise NotApplicable("decode context parallelism is not asked for")
    config = known_config(config, files, published)
    problem, best = None, 1
    shared, heads = read.kv_heads(config.values), read.size(config.values, "heads")
    if tensor % ranks:
        problem = f"{tensor} tensor parallel ranks are no multiple of {ranks}"
    elif not read.is_mla(config.values):
        if not shared or not heads:
            raise Unavailable(f"{config.source} does not say how many heads there are")
        best = max(1, tensor // shared)
        if tensor <= shared:
            problem = f"{tensor} tensor parallel ranks do not exceed {shared} key-value heads"
        elif ranks > best:
            problem = f"at most {tensor} / {shared} = {best} is possible"
        elif heads // shared % ranks:
            problem, best = f"{heads // shared} query heads of each key-value head", 1
    if problem is None:
        return
    yield Finding(
        about=name,
        confidence=confidence(config),
        message=f"{setting(options, name, ranks)}: {problem}",
        evidence=(
            *evidence(options, name, TENSOR),
            config.evidence("num_attention_heads", "num_key_value_heads"),
        ),
        fixes=(change_option(launch, options, name, best),),
    )
