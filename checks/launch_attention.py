"""The attention backend and the KV cache of the launch against model and GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infer_doctor.catalog import attention as catalog
from infer_doctor.catalog.quantization import method_of
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise, change_option, change_variable, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.device import weakest, written
from infer_doctor.launch.judge import (
    evidence,
    is_here,
    require_here,
    require_vllm,
    setting,
    value_of,
    version_of,
    word,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import confidence, quantization_of
from infer_doctor.launch.variables import of_engine
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import config as read
from infer_doctor.registry import check

BACKEND = "attention_backend"
VARIABLE = "VLLM_ATTENTION_BACKEND"
VARIABLE_GONE = (0, 15)
"""VLLM_ATTENTION_BACKEND is not read since about then."""

EXACT = (0, 32)
"""The version that the table was read from."""


def _asked(
    launch: Launch, options: EngineOptions, environ: Environ | None
) -> tuple[str, tuple[Evidence, ...], bool] | None:
    """The backend that is forced, where, and whether by the variable."""
    found = value_of(options, BACKEND)
    name = BACKEND
    if found is None:
        part = value_of(options, "attention_config")
        found = part.get("backend") if isinstance(part, Mapping) else None
        name = "attention_config"
    if isinstance(found, str) and found.lower() != "auto":
        return found.upper(), evidence(options, name), False
    version = version_of(options)
    if version is None or version >= VARIABLE_GONE:
        return None
    if value := of_engine(launch, environ, VARIABLE).get(VARIABLE):
        where = Evidence(source="environment", excerpt=f"{VARIABLE}={value}")
        return value.upper().removesuffix("_VLLM_V1"), (where,), True
    return None


@check(
    "launch-attention-backend-refused", severity="error", category="attention_backend", since="0.2"
)
def attention_backend_refused(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    capabilities: GpuCapabilities | None,
    chosen: ChosenGpus | None,
    environ: Environ | None,
) -> Iterator[Finding]:
    """The attention backend that the launch forces does not take this model or these GPUs.

    ## Why it matters
    vLLM stops when the model is built: "Selected backend FLASHINFER is not valid for this
    configuration. Reason: ['head_size not supported']".

    ## How it decides
    `--attention-backend` (or its key in `--attention-config`; before 0.15 VLLM_ATTENTION_BACKEND)
    against what each backend of 0.32.0 takes: compute capability, dtype, dtype of the KV cache, head
    size, latent attention (catalog/attention.py). For another version than 0.32 the finding is only
    likely. Where the GPUs are not known the rest is judged.

    ## Fix safety
    Safe: without the option the engine chooses one that works.
    """
    require_vllm(options)
    asked = _asked(launch, options, environ)
    if asked is None:
        raise NotApplicable("no attention backend is forced")
    name, where, variable = asked
    backend = catalog.BACKENDS.get(name)
    if backend is None:
        raise Unavailable(f"what the backend {name} takes is not catalogued")
    config = known_config(config, files, published)
    have = None
    if is_here(launch) and capabilities is not None:
        have = weakest(capabilities, chosen)
    reasons = list(_reasons(name, backend, options, config, have))
    if not reasons:
        if have is None:
            raise Unavailable("the GPUs that will run this are not known")
        return
    fix: tuple[Fix, ...] = ()
    if variable:
        fix = (change_variable(launch, VARIABLE, None),)
    elif BACKEND in options.given:
        fix = (drop_option(launch, options, BACKEND),)
    proof = (
        ()
        if have is None
        else (Evidence(source="GPUs", excerpt=f"compute capability {written(have)}"),)
    )
    yield Finding(
        about=BACKEND,
        confidence=confidence(config) if version_of(options) == EXACT else "likely",
        message=f"{name} does not take this launch: {'; '.join(reasons)}",
        evidence=(
            *where,
            config.evidence("head_dim", "num_attention_heads", "hidden_size"),
            *proof,
        ),
        fixes=fix,
    )


def _reasons(
    name: str,
    backend: catalog.Backend,
    options: EngineOptions,
    config: ModelConfig,
    have: tuple[int, int] | None,
) -> Iterator[str]:
    mla = read.is_mla(config.values)
    if mla != backend.mla:
        yield "the model has latent attention (MLA)" if mla else "the model has no latent attention"
    if have is not None and not backend.takes(have):
        yield f"it needs compute capability {backend.gpus}, a GPU here has {written(have)}"
    head = read.head_size(config.values)
    if head and not mla and backend.heads is not None and head not in backend.heads:
        yield f"heads of {head} elements (it takes {', '.join(map(str, backend.heads))})"
    if head and name == "FLASH_ATTN" and not mla:
        larger = head > catalog.FLASH_HEAD and (have is None or have[0] != catalog.FLASH_4)
        if head % 8 or larger:
            yield f"heads of {head} elements (it takes multiples of 8 up to {catalog.FLASH_HEAD})"
    asked = word(options, "dtype") or "auto"
    dtype = read.dtype(config.values) if asked == "auto" else asked
    if asked in ("float", "float32") and "float32" not in backend.dtypes:
        yield f"dtype {dtype}"
    cache = word(options, "kv_cache_dtype") or "auto"
    if backend.caches is not None and cache not in backend.caches:
        yield f"a KV cache in {cache}"
    elif name == "FLASH_ATTN" and cache.startswith("fp8") and have:
        if have[0] in catalog.FLASH_FP8:
            return
        yield f"a KV cache in {cache} on compute capability {written(have)}"


NVFP4 = ("nvfp4", "nvfp4_4over6")


@check("launch-kv-cache-dtype-refused", severity="error", category="capability_fp8_fa", since="0.2")
def kv_cache_dtype_refused(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    capabilities: GpuCapabilities | None,
    chosen: ChosenGpus | None,
) -> Iterator[Finding]:
    """The dtype of the KV cache does not work on these GPUs.

    ## Why it matters
    On Ampere and older an fp8 (e4m3) cache fails in the first forward pass, when Triton compiles:
    "type fp8e4nv not supported in this architecture".

    ## How it decides
    `--kv-cache-dtype` fp8 or fp8_e4m3 below compute capability 8.9, where FlashAttention reads no fp8
    cache and Triton has no e4m3 (vllm-project/vllm issue 26431): likely, for FlashInfer may take it.
    fp8_e5m2 needs none of both, but vLLM refuses it for checkpoints in fp8 ("fp8_e5m2 kv-cache is not
    supported with fp8 checkpoints", layers/attention/attention.py:219). nvfp4 (not nvfp4_ds_mla) with latent attention is refused everywhere (config/vllm.py:3296 of
    0.32).

    ## Fix safety
    Safe: a cache in 16 bits, which holds half as many tokens.
    """
    require_vllm(options)
    name = "kv_cache_dtype"
    dtype = word(options, name)
    if dtype is None or dtype == "auto":
        raise NotApplicable("the KV cache has the dtype of the model")
    if dtype in NVFP4:
        config = known_config(config, files, published)
    fix = change_option(
        launch, options, name, "auto", why="the cache then holds half as many tokens"
    )
    if config is not None and dtype in NVFP4 and read.is_mla(config.values):
        yield Finding(
            about=name,
            category="launch_argument",
            message=f"{setting(options, name, dtype)}: models with latent attention take no nvfp4 cache",
            evidence=(*evidence(options, name), config.evidence("model_type", "kv_lora_rank")),
            fixes=(fix,),
        )
        return
    if dtype == "fp8_e5m2":
        method = method_of(quantization_of(files, known_config(config, files, published)))
        if method in ("fp8", "modelopt"):
            yield Finding(
                about=name,
                category="launch_argument",
                message=f"{setting(options, name, dtype)}: a checkpoint in fp8 takes no e5m2 cache",
                evidence=(
                    *evidence(options, name),
                    Evidence(source="checkpoint", excerpt=f"quant_method {method}"),
                ),
                fixes=(change_option(launch, options, name, "fp8"),),
            )
    if dtype not in ("fp8", "fp8_e4m3"):
        return
    require_here(launch, "the GPUs")
    if capabilities is None:
        raise Unavailable("the compute capability of the GPUs is not known")
    have = weakest(capabilities, chosen)
    if have >= catalog.E4M3_IN_TRITON:
        return
    yield Finding(
        about=name,
        severity="warning",
        confidence="likely",
        message=f"{setting(options, name, dtype)} needs compute capability "
        f"{written(catalog.E4M3_IN_TRITON)} in most backends, a GPU here has {written(have)}",
        evidence=(
            *evidence(options, name),
            Evidence(source=capabilities.source, excerpt=f"compute capability {written(have)}"),
        ),
        fixes=(fix,),
    )


SCALES = ("k_scale", "v_scale", "kv_scale", "k_proj.output_scale", "v_proj.output_scale")
"""Names of the scales of a KV cache in a checkpoint (maybe_remap_kv_scale_name of weight_utils.py)."""


@check("launch-kv-cache-unscaled", severity="warning", category="quality", since="0.2")
def kv_cache_unscaled(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The KV cache is kept in fp8, and the checkpoint has no scales for it.

    ## Why it matters
    The engine then uses 1.0 for every scale ("Using KV cache scaling factor 1.0 for fp8_e4m3"): keys
    and values outside of fp8's range are cut, answers get worse, most with long prompts, and no error
    is shown.

    ## How it decides
    `--kv-cache-dtype` fp8, fp8_e4m3 or fp8_inc; no tensor of the checkpoint is called k_scale,
    v_scale or the like, and its quantization names no scheme for the cache (kv_cache_scheme,
    kv_cache_quant_algo). `--calculate-kv-scales`, which versions before 0.27 have, makes them. Models
    with latent attention are left out: their formats bring scales of their own.

    ## Fix safety
    Safe: a cache in 16 bits, which holds half as many tokens.
    """
    require_vllm(options)
    name = "kv_cache_dtype"
    dtype = word(options, name)
    if dtype not in ("fp8", "fp8_e4m3", "fp8_inc"):
        raise NotApplicable("the KV cache is not kept in fp8 with scales")
    config = known_config(config, files, published)
    measured = word(options, "quantization") == "inc"  # its scales lie beside: QUANT_CONFIG
    if measured or options.get("calculate_kv_scales") is True or read.is_mla(config.values):
        raise NotApplicable("the scales do not come from the checkpoint")
    found = quantization_of(files, config) or {}
    inner = found.get("quantization")
    parts = (found, inner if isinstance(inner, Mapping) else {})
    if any(part.get("kv_cache_scheme") or part.get("kv_cache_quant_algo") for part in parts):
        return
    fixes = (
        change_option(
            launch, options, name, "auto", why="the cache then holds half as many tokens"
        ),
        advise(
            "use-scaled-checkpoint",
            "Or serve a checkpoint that was calibrated for an fp8 cache",
        ),
    )
    if isinstance(config, PublishedConfig) and not found:
        yield Finding(
            about=name,
            confidence="likely",
            message=f"{setting(options, name, dtype)}, but a checkpoint that is not quantised has no "
            "scales for it: the engine takes 1.0",
            evidence=(
                *evidence(options, name),
                Evidence(source=config.source, excerpt="no quantization_config"),
            ),
            fixes=fixes,
        )
        return
    if files is None or not files.tensors:
        raise Unavailable("the tensors of the checkpoint were not read")
    if any(tensor.name.endswith(SCALES) for tensor in files.tensors):
        return
    yield Finding(
        about=name,
        message=f"{setting(options, name, dtype)}, but none of the {len(files.tensors)} tensors read "
        "is a scale for it: the engine takes 1.0",
        evidence=(
            *evidence(options, name),
            Evidence(source=files.path_of(files.tensors[0].file), excerpt="no k_scale, no v_scale"),
        ),
        fixes=fixes,
    )
