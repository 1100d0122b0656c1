"""The memory plan of a launch of TensorRT-LLM, for both back ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from infer_doctor.catalog.trtllm_quantization import KV_BYTES
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.memory_plan import PlanGpu
from infer_doctor.facts.model_config import ModelConfig
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.frozen import frozen
from infer_doctor.host import Absent, Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.registry import probe
from infer_doctor.trtllm.judge import backend_of, is_bare

if TYPE_CHECKING:
    from infer_doctor.trtllm.memory import Demand, TrtPlan

ENTRIES = ("trtllm-serve", "LLM", "trtllm-bench")

LIKE = "0.26.0"
"""The vLLM whose activations, measured there, stand for those of the PyTorch backend."""

ITEM = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "fp8": 1}


@frozen
class TrtPlanned:
    """The plan on the GPU with the least free memory."""

    plan: TrtPlan = field(metadata={"report": False})
    gpus: int
    source: str


@probe
def trt_planned(
    launch: Launch,
    release: TrtRelease,
    gpu: PlanGpu,
    options: EngineOptions | None,
    engine: TrtEngine | None,
    files: ModelFiles | None,
    config: ModelConfig | None,
) -> TrtPlanned:
    """Unavailable, with the reason, where the model or an option is not known."""
    from infer_doctor.trtllm.memory import plan_of

    if launch.entry not in ENTRIES:
        raise Absent(f"{launch.entry} serves nothing that is planned")
    if options is None:
        raise Unavailable("the options of the launch are not known")
    unknown = [row.flag for row in options.given.values() if isinstance(row.value, Unknown)]
    if unknown:
        raise Unavailable(f"{unknown[0]} has a value that the launch does not tell")
    if engine is not None:
        demand = _of_engine(engine, options, gpu)
    elif config is None or files is None:
        raise Unavailable("the configuration of the model is not known")
    else:
        if backend_of(launch, options, release) == "tensorrt":
            raise Unavailable("the engine is built at the start: its size is not known before")
        demand = _of_model(config, files, options, gpu)
    demand = replace(demand, version=release.version)
    if is_bare(launch):
        more = "the fraction and limits are defaults: the launch was not given"
        demand = replace(demand, assumptions=(*demand.assumptions, more))
    return TrtPlanned(plan=plan_of(demand, gpu.gpu.name), gpus=gpu.count, source=gpu.source)


def _common(options: EngineOptions, gpu: PlanGpu) -> dict[str, Any]:
    fraction = options.get("kv_cache_config.free_gpu_memory_fraction", 0.9)
    tokens = options.get("kv_cache_config.max_tokens")
    return {
        "version": None,
        "total": gpu.gpu.usable,
        "used": gpu.gpu.used,
        "fraction": float(fraction) if isinstance(fraction, (int, float)) else 0.9,
        "max_tokens": tokens if type(tokens) is int else None,
        "fail_fast": options.get("fail_fast_on_attention_window_too_large") is True,
    }


def _whole(options: EngineOptions, name: str, default: int | None = None) -> int | None:
    value = options.get(name, default)
    return value if type(value) is int else default


def _of_engine(engine: TrtEngine, options: EngineOptions, gpu: PlanGpu) -> Demand:
    """What the build fixed: the largest rank file and max_num_tokens."""
    from infer_doctor.trtllm.memory import ENGINE_ACTIVATION, ENGINE_BUFFERS, Demand, Layers

    if engine.kind != "engine" or engine.form != "current" or not engine.ranks:
        raise Unavailable(f"{engine.path} is no whole engine")
    if engine.gaps:
        raise Unavailable(engine.gaps[0])
    model = engine.pretrained
    heads = _number(model, "num_attention_heads")
    hidden = _number(model, "hidden_size")
    layers = _number(model, "num_hidden_layers")
    if not heads or not hidden or not layers:
        raise Unavailable(f"{engine.config_path} does not tell the sizes of the model")
    key_value = _number(model, "num_key_value_heads") or heads
    head_dim = _number(model, "head_size") or hidden // heads
    tensor, stages = engine.size("tp_size") or 1, engine.size("pp_size") or 1
    dtype = ITEM.get(engine.dtype or "float16", 2)
    item = KV_BYTES.get(engine.quantization("kv_cache_quant_algo") or "", float(dtype))
    tokens = engine.limit("max_num_tokens") or 8192
    block = engine.plugin("tokens_per_block")
    return Demand(
        backend="tensorrt",
        weights=max(row.size for row in engine.ranks),
        activation=ENGINE_ACTIVATION * tokens * hidden * dtype,
        buffers=ENGINE_BUFFERS,
        ranks=tensor * stages,
        per_token=Layers(layers=layers, kv_heads=key_value, head_dim=head_dim).bytes_per_token(
            item, tensor, stages
        ),
        length=engine.limit("max_seq_len"),
        most=engine.limit("max_seq_len"),
        block=block if type(block) is int and block > 0 else 64,
        basis="rank files and config.json",
        assumptions=(
            "weights are the size of the rank file",
            f"activations are estimated from one published engine ({tokens:,} tokens)",
            "nothing of TensorRT-LLM was measured here",
        ),
        **_common(options, gpu),
    )


def _of_model(
    config: ModelConfig, files: ModelFiles, options: EngineOptions, gpu: PlanGpu
) -> Demand:
    """Weights and activations as doctor/memory counts them, the cache by TensorRT-LLM's rule."""
    from infer_doctor.memory.architecture import Unplannable
    from infer_doctor.memory.inputs import Source, inputs_of
    from infer_doctor.trtllm.memory import BLOCK, Demand, Layers

    if options.get("enable_attention_dp") is True:
        raise Unavailable("no memory model of attention data parallelism: each rank holds it whole")
    if (_whole(options, "context_parallel_size", 1) or 1) > 1:
        raise Unavailable("no memory model of context parallelism")
    tensor = _whole(options, "tensor_parallel_size", 1) or 1
    stages = _whole(options, "pipeline_parallel_size", 1) or 1
    batch = _whole(options, "max_num_tokens", 8192) or 8192
    length = _whole(options, "max_seq_len")
    like: dict[str, Any] = {
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": stages,
        "max_num_batched_tokens": batch,
        "max_num_seqs": _whole(options, "max_batch_size", 2048),
        "gpu_memory_utilization": 1.0,
        "enforce_eager": True,
        "load_format": "dummy" if options.get("load_format") == "dummy" else "auto",
    }
    try:
        inputs = inputs_of(
            Source(
                config=config.values,
                quantization=files.quantization,
                tensors=files.tensors,
                whole=not files.missing_shards and not files.broken,
            ),
            like,
            version=LIKE,
            entry="serve",
        )
        rank = inputs.plan(gpu.gpu).rank
    except Unplannable as error:
        raise Unavailable(str(error)) from None
    architecture = inputs.architecture
    own = [layer.attention for layer in architecture.layers if layer.attention]
    own = [one for one in own if not one.shared]
    if not own or architecture.hybrid:
        raise Unavailable("no memory model of TensorRT-LLM for layers without a KV cache")
    item = _cache_item(options, files, architecture.dtype)
    first = own[0]
    layers = Layers(
        layers=len(own),
        kv_heads=max(one.kv_heads for one in own),
        head_dim=first.head_dim,
        latent=first.latent + first.rope_dim if first.kind == "mla" else 0,
    )
    block = options.get("kv_cache_config.tokens_per_block")
    return Demand(
        backend="pytorch",
        weights=rank.weights,
        activation=rank.activation,
        buffers=0,
        ranks=tensor * stages,
        per_token=layers.bytes_per_token(item, tensor, stages),
        length=length,
        most=architecture.context,
        block=block if type(block) is int and block > 0 else BLOCK["pytorch"],
        basis=inputs.basis,
        assumptions=(
            f"weights from {inputs.basis}",
            f"activations of {batch:,} tokens as measured on vLLM {LIKE}",
            "nothing of TensorRT-LLM was measured here",
            *(("a draft model is not counted",) if _drafts(options) else ()),
        ),
        **_common(options, gpu),
    )


def _drafts(options: EngineOptions) -> bool:
    return any(name.partition(".")[0] == "speculative_config" for name in options.given)


def _cache_item(options: EngineOptions, files: ModelFiles, dtype: str) -> float:
    """Bytes of a number in the cache: of the launch, of the checkpoint, of the model."""
    wanted = options.get("kv_cache_config.dtype")
    if isinstance(wanted, str) and wanted != "auto":
        return KV_BYTES.get(wanted.upper(), float(ITEM.get(wanted, 2)))
    document = files.documents.get("hf_quant_config.json", {})
    inner = document.get("quantization")
    rows = inner if isinstance(inner, Mapping) else document
    scheme = rows.get("kv_cache_quant_algo")
    if isinstance(scheme, str) and scheme.upper() in KV_BYTES:
        return KV_BYTES[scheme.upper()]
    return float(ITEM.get(dtype, 2)) if dtype != "float32" else 4.0


def _number(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    return value if type(value) is int and 0 < value < 1 << 30 else None
