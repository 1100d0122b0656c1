"""What the engine will run with: the options of the launch, else its defaults for this GPU.

Defaults: engine/arg_utils.py (get_batch_defaults, get_cudagraph_capture_sizes) of vLLM 0.6 to 0.33.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.launch.model import Unknown
from infer_doctor.memory.architecture import Architecture, Unplannable
from infer_doctor.memory.sampler import sampler_bytes
from infer_doctor.units import GIB

Version = tuple[int, ...]

NEWEST: Version = (0, 33)
"""The newest vLLM whose rules were read."""

FIRST: Version = (0, 6)
"""The oldest whose rules were read: of the starts of 0.2 to 0.5 that were compared some had a third of
the cache that the rules of V0 give."""

OLDEST: Version = (0, 11)
"""Before it the budget also held the CUDA context, NCCL and other processes (vLLM PR 25359)."""

V1_SINCE: Version = (0, 8)
"""The engine V1 is the default from here. V0 took prompts whole unless they were long, counted
neither the CUDA context nor refused a start with too little free memory (worker/worker.py)."""

V0_WHOLE = 32768
"""The longest context without chunked prefill in V0 (arg_utils.py: use_long_context)."""

V0_CHUNK: Version = (0, 7)
"""Chunks of 2,048 tokens from here, of 512 before (config.py: SchedulerConfig)."""

UTILISATION_CHANGED: Version = (0, 20)
"""0.90 before, 0.92 from here, with the estimate of graph memory (config/cache.py and envs.py of the
releases 0.19.1 and 0.20.0)."""

BIG_GPU = 70 * GIB
HUGE_GPU = 160 * GIB
HUGE_SINCE: Version = (0, 28)

FITTED = (-1, "auto")

DTYPES = {
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
}

V2_SINCE: Version = (0, 22)
V2_ALWAYS: Version = (0, 32)
V2_MOE = ("DeepseekV2ForCausalLM", "GraniteMoeForCausalLM", "Qwen2MoeForCausalLM")
"""Mixtures of experts that the V2 runner takes (config/vllm.py:68 of 0.26.0; others: V1)."""

CONSUMED_SINCE: Version = (0, 27)
"""From here the runner's own buffers count (utils/mem_utils.py: total_consumed, 0.32.0)."""

Get = Callable[[str], Any]


HEAD = re.compile(r"eagle|medusa|mtp|accelerator|speculator|dflash|dspark|-draft-head", re.I)
"""Names of heads that propose tokens from the target's own states (config/speculative.py)."""


@frozen
class Settings:
    """Every value that decides about memory."""

    version: Version
    entry: str
    tensor: int
    stages: int
    data: int
    expert_parallel: bool
    context_parallel: int
    utilisation: float
    context: int
    fitted: bool
    """--max-model-len auto: the engine shortens the context to what fits."""
    tokens: int
    sequences: int
    itemsize: int
    cache_dtype: str
    block: int
    eager: bool
    full_graphs: bool
    capture_sizes: tuple[int, ...]
    quantization: str | None
    cache_bytes: int | None
    blocks_override: int | None
    offload: int
    runner: int
    in_flight: int
    states: int
    language_only: bool
    v0: bool
    """The engine before V1."""
    sampler: int
    """Bytes that the sampler holds for each logit."""
    sampler_doubt: int
    """How many of them may be wrong."""
    loras: int = 0
    """Slots for LoRA adapters, of `lora_rank` each."""
    lora_rank: int = 0
    draft: bool = False
    """A draft model for speculative decoding, which is not counted."""
    given: frozenset[str] = frozenset()
    """Names of the options that the launch itself sets."""

    @property
    def graphs_inside(self) -> bool:
        """Whether the engine takes an estimate of the graphs out of the budget."""
        if self.eager or self.version < UTILISATION_CHANGED:
            return False
        return self.runner == 1 or self.version >= CONSUMED_SINCE


def settings_of(
    options: Mapping[str, Any],
    model: Architecture,
    *,
    version: Version,
    entry: str,
    gpu_name: str,
    gpu_total: int,
    capability: tuple[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """`options` are the values in force by the engine's own names; None or absent is the default."""
    require_rules(version)
    get = _getter(options)
    v0 = _is_v0(version, environment or {})
    serve = entry not in ("LLM", "bench")
    context = _context(get, model)
    tokens, sequences = _batch(get, model, version, serve, gpu_name, gpu_total, context, v0)
    stages = _count(get, "pipeline_parallel_size")
    mode = _mode(get)
    eager = bool(get("enforce_eager")) or mode == "NONE"
    runner = _runner(model, version, environment or {})
    speculative = get("speculative_config")
    draft = speculative.get("num_speculative_tokens", 0) if isinstance(speculative, Mapping) else 0
    quantization = get("quantization")
    caching = get("enable_prefix_caching")
    cache_bytes = get("kv_cache_memory_bytes")
    sampler, sampler_doubt = sampler_bytes(version, runner, environment or {})
    return Settings(
        version=version,
        entry=entry,
        tensor=_count(get, "tensor_parallel_size"),
        stages=stages,
        data=_count(get, "data_parallel_size"),
        expert_parallel=bool(get("enable_expert_parallel")),
        context_parallel=_count(get, "decode_context_parallel_size"),
        utilisation=_share(get, version),
        context=context,
        fitted=get("max_model_len") in FITTED,
        tokens=tokens,
        sequences=sequences,
        itemsize=_itemsize(get, model),
        cache_dtype=str(get("kv_cache_dtype") or "auto"),
        block=_count(get, "block_size", 16),
        eager=eager,
        full_graphs=mode not in ("PIECEWISE",),
        capture_sizes=() if eager else _captures(get, model, tokens, sequences, draft, capability),
        quantization=str(quantization) if quantization else None,
        cache_bytes=int(cache_bytes) if cache_bytes else None,
        blocks_override=get("num_gpu_blocks_override") or None,
        offload=int(float(get("cpu_offload_gb") or 0) * GIB),
        runner=runner,
        in_flight=tokens * _batches(get, stages, runner, version),
        states=2 if model.hybrid and caching is True else 1,
        language_only=bool(get("language_model_only")),
        v0=v0,
        sampler=sampler,
        sampler_doubt=sampler_doubt,
        loras=_count(get, "max_loras") if get("enable_lora") else 0,
        lora_rank=_count(get, "max_lora_rank", 16) if get("enable_lora") else 0,
        draft=_has_draft(speculative),
        given=frozenset(name for name, value in options.items() if value is not None),
    )


def require_rules(version: Version) -> None:
    """Raises Unplannable for a version before all that were read."""
    if version < FIRST:
        said = ".".join(map(str, version[:2]))
        raise Unplannable(f"vLLM {said} is older than the rules, which begin with 0.6")


def _has_draft(speculative: Any) -> bool:
    """Methods without weights of their own: ngram and suffix.

    A head (EAGLE, Medusa, MTP) is a layer or two: within the band. A whole model has as many layers
    with a cache as its target may have: Unplannable.
    """
    if not isinstance(speculative, Mapping):
        return False
    method, model = speculative.get("method"), speculative.get("model")
    if method in ("ngram", "suffix", "[ngram]") or model in ("ngram", "[ngram]"):
        return False
    whole = method == "draft_model" or (method is None and model and not HEAD.search(str(model)))
    if whole:
        raise Unplannable(
            f"the draft model {model} has weights and a KV cache of its own, which are not planned"
        )
    return True


def _getter(options: Mapping[str, Any]) -> Get:
    def get(name: str) -> Any:
        value = options.get(name)
        if isinstance(value, Unknown):
            raise Unplannable(f"{name} is {value.text}, whose value is not in the file")
        return value

    return get


def _count(get: Get, name: str, default: int = 1) -> int:
    value = get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
        raise Unplannable(f"{name} is {value!r}")
    return value


def _share(get: Get, version: Version) -> float:
    value = get("gpu_memory_utilization")
    if value is None:
        return 0.9 if version < UTILISATION_CHANGED else 0.92
    if not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise Unplannable(f"gpu_memory_utilization is {value!r}, not within 0 and 1")
    return float(value)


def _context(get: Get, model: Architecture) -> int:
    value = get("max_model_len")
    if value is None or value in FITTED:
        if model.context is None:
            raise Unplannable(
                "config.json has no max_position_embeddings and no --max-model-len is given"
            )
        return model.context
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Unplannable(f"max_model_len is {value!r}")
    return value


def _itemsize(get: Get, model: Architecture) -> int:
    """`auto`: the dtype of the config; a float32 model is loaded as 16 bit (config/model.py)."""
    dtype = str(get("dtype") or "auto")
    if dtype == "auto":
        dtype = "bfloat16" if model.dtype == "float32" else model.dtype
    if dtype not in DTYPES:
        raise Unplannable(f"the dtype {dtype} is not known")
    return DTYPES[dtype]


def _batch(
    get: Get,
    model: Architecture,
    version: Version,
    serve: bool,
    gpu_name: str,
    gpu_total: int,
    context: int,
    v0: bool,
) -> tuple[int, int]:
    """max_num_batched_tokens and max_num_seqs (get_batch_defaults and the rules behind it)."""
    if gpu_total >= HUGE_GPU and version >= HUGE_SINCE:
        default, rows = 16384, 1024
    elif gpu_total >= BIG_GPU and "a100" not in gpu_name.lower():
        default, rows = (8192 if serve else 16384), 1024
    else:
        default, rows = (2048 if serve else 8192), 256
    if v0:
        default, rows = _v0_tokens(get, model, version, context), 256
    given_tokens, given_rows = get("max_num_batched_tokens"), get("max_num_seqs")
    double = 2 if get("performance_mode") == "throughput" else 1
    tokens = _count(get, "max_num_batched_tokens", default * double)
    sequences = _count(get, "max_num_seqs", rows * double)
    if given_tokens is None and not v0:
        if get("enable_chunked_prefill") is False:
            tokens = max(tokens, context)
        tokens = min(tokens, sequences * context)
    if given_rows is None:
        sequences = min(sequences, tokens)
    return tokens, sequences


def _is_v0(version: Version, environment: Mapping[str, str]) -> bool:
    """V0 was the default before 0.8 and gone with 0.11."""
    forced = environment.get("VLLM_USE_V1")
    return version < OLDEST and (forced == "0" or (version < V1_SINCE and forced != "1"))


def _v0_tokens(get: Get, model: Architecture, version: Version, context: int) -> int:
    """V0's default: the whole context, unless it is long and goes in chunks."""
    chunked = get("enable_chunked_prefill")
    if chunked is None:
        windows = any(layer.attention and layer.attention.window for layer in model.layers)
        other = model.tower or windows or get("enable_lora") or get("speculative_config")
        chunked = context > V0_WHOLE and not other
    if chunked:
        return 2048 if version >= V0_CHUNK else 512
    return max(context, 2048)


def _runner(model: Architecture, version: Version, environment: Mapping[str, str]) -> int:
    """Which of the two model runners the version takes for this model (config/vllm.py)."""
    forced = environment.get("VLLM_USE_V2_MODEL_RUNNER")
    if forced in ("0", "1"):
        return 2 if forced == "1" else 1
    if version < V2_SINCE:
        return 1
    if version >= V2_ALWAYS:
        return 2
    if model.hybrid:
        return 1
    return 1 if model.moe and model.name not in V2_MOE else 2


def _batches(get: Get, stages: int, runner: int, version: Version) -> int:
    """Concurrent batches (config/vllm.py: max_concurrent_batches): async scheduling adds one."""
    wanted = get("async_scheduling")
    asynchronous = version >= (0, 14) if wanted is None else bool(wanted)
    if not asynchronous:
        return stages
    if runner == 2:
        return stages + 1
    return 2 if stages == 1 else stages


def _mode(get: Get) -> str:
    """cudagraph_mode of --compilation-config, "" for the default."""
    level = get("optimization_level")
    compilation = get("compilation_config")
    mode = compilation.get("cudagraph_mode") if isinstance(compilation, Mapping) else None
    if mode is not None:
        return str(mode).upper()
    return "NONE" if level == 0 and level is not False and not isinstance(level, bool) else ""


def _captures(
    get: Get,
    model: Architecture,
    tokens: int,
    sequences: int,
    draft: int,
    capability: tuple[int, int] | None,
) -> tuple[int, ...]:
    """Batch sizes that are captured (config/vllm.py:2292-2546 of 0.32.0)."""
    compilation = get("compilation_config")
    listed = get("cudagraph_capture_sizes")
    if listed is None and isinstance(compilation, Mapping):
        listed = compilation.get("cudagraph_capture_sizes")
    if isinstance(listed, (list, tuple)) and listed:
        return tuple(sorted(size for size in listed if isinstance(size, int) and size <= tokens))
    most = get("max_cudagraph_capture_size")
    if most is None:
        large = model.name == "GptOssForCausalLM"  # models/config.py
        cap = 1024 if large or (capability is not None and capability[0] == 10) else 512
        most = min(2 * sequences * (1 + int(draft)), cap)
    most = min(int(most), tokens)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)]
    return tuple(size for size in sizes if size <= most)
