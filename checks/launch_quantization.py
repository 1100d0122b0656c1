"""Quantization and dtype of the launch against the checkpoint and the GPUs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from infer_doctor.catalog import quantization as catalog
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.chosen import ChosenGpus
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.environment import Distributions
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.model_config import ModelConfig, PublishedConfig, known_config
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.fixes.models import advise, change_option, drop_option
from infer_doctor.host import Unavailable
from infer_doctor.launch.device import weakest, written
from infer_doctor.launch.judge import (
    evidence,
    is_here,
    require_here,
    require_vllm,
    setting,
    version_of,
    word,
)
from infer_doctor.launch.model import Launch
from infer_doctor.launch.model_judge import confidence, quantization_of
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.models import config as read
from infer_doctor.registry import check

METHOD = "quantization"
HALF = ("half", "float16")

NO_HALF = ("gemma2", "gemma3", "gemma3_text", "plamo2", "glm4")
"""Model types that are unstable in float16 (_FLOAT16_NOT_SUPPORTED_MODELS of vllm/config/model.py)."""


def evidence_of(files: ModelFiles | None, config: ModelConfig, method: str | None) -> Evidence:
    """What the checkpoint says of itself."""
    source = config.source
    if files is not None and files.quantization_source:
        source = files.path_of(files.quantization_source)
    return Evidence(
        source=source, excerpt=f"quant_method {method}" if method else "no quantization_config"
    )


@check("launch-quantization-unknown", severity="error", category="quantization", since="0.2")
def quantization_unknown(
    launch: Launch, options: EngineOptions, distributions: Distributions | None
) -> Iterator[Finding]:
    """The version has no quantization method of this name.

    ## Why it matters
    Since 0.9.1 the command line takes any word; the engine stops half a minute later with "Unknown
    quantization method".

    ## How it decides
    `--quantization` against the methods of 0.32 and the list of those removed since 0.6
    (catalog/quantization.py). A name that is on neither list is only judged for 0.32 and newer; for
    gguf and bitsandbytes the plugin that has them now is looked for in the environment.

    ## Fix safety
    Safe for a name that was renamed, unsafe for the nearest one of a misspelt name; another method
    needs another checkpoint.
    """
    require_vllm(options)
    asked = word(options, METHOD)
    if asked is None or asked in ("none", "null"):
        raise NotApplicable("no quantization is asked for")
    version = version_of(options)
    if version is None:
        raise Unavailable("the version of vLLM is not known")
    if asked in catalog.REMOVED:
        gone, instead = catalog.REMOVED[asked]
        if version <= gone if asked not in catalog.PLUGINS else version < gone:
            return
        plugin = catalog.PLUGINS.get(asked)
        if plugin and distributions is not None and plugin in distributions.by_name:
            return
        if plugin and not is_here(launch):
            raise Unavailable("whether the plugin is installed there is not known")
        names = distributions.by_name if distributions is not None else ()
        looked = any(one == "vllm" or one.startswith("vllm-") for one in names)
        yield Finding(
            about=METHOD,
            confidence="certain" if looked or not plugin else "likely",
            message=f"vLLM {options.version} has no quantization {asked!r} any more: removed in about "
            f"{gone[0]}.{gone[1]}{f', now {instead}' if instead else ''}",
            evidence=evidence(options, METHOD),
            fixes=_instead(launch, options, asked, instead, plugin),
        )
        return
    if asked in catalog.KNOWN or version < catalog.VERSION:
        return
    near = difflib.get_close_matches(asked, sorted(catalog.KNOWN), 1)
    yield Finding(
        about=METHOD,
        confidence="certain" if version == catalog.VERSION else "likely",
        message=f"vLLM {options.version} has no quantization {asked!r}"
        f"{f'; nearest: {near[0]}' if near else ''}",
        evidence=evidence(options, METHOD),
        fixes=(
            change_option(
                launch,
                options,
                METHOD,
                near[0],
                why="if that is what is meant: another method gives other answers",
                safety="unsafe",
            ),
        )
        if near
        else (),
    )


def _instead(
    launch: Launch, options: EngineOptions, asked: str, instead: str | None, plugin: str | None
) -> tuple[Fix, ...]:
    if plugin:
        return (
            advise(
                "install-quantization-plugin",
                f"Install {plugin}, or serve a checkpoint of another format",
                commands=(f"pip install {plugin}",),
            ),
        )
    if instead:
        return (change_option(launch, options, METHOD, instead),)
    return (
        advise("use-other-checkpoint", f"Serve a checkpoint that is not quantised with {asked}"),
    )


@check("launch-quantization-mismatch", severity="error", category="quantization", since="0.2")
def quantization_mismatch(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
) -> Iterator[Finding]:
    """The launch asks for another quantization than the checkpoint has.

    ## Why it matters
    vLLM stops with "Quantization method specified in the model config (awq) does not match ..." or,
    for a model that is not quantised, "Cannot find the config file for awq".

    ## How it decides
    `--quantization` against quant_method of config.json (also in its text part, or
    hf_quant_config.json of ModelOpt). Names that go together, such as awq and awq_marlin, are those
    of override_quantization_method in vLLM 0.32 and before. A plain checkpoint goes with the methods
    that quantise while loading; awq and gptq also with a quantize_config.json or quant_config.json.

    ## Fix safety
    Safe: without the option the engine takes what the checkpoint says.
    """
    require_vllm(options)
    asked = word(options, METHOD)
    if asked is None or asked in ("none", "null") or asked in catalog.ANY:
        raise NotApplicable("no quantization is asked for")
    config = known_config(config, files, published)
    found = quantization_of(files, config)
    method = catalog.method_of(found)
    if method is None:
        if found and (files is None or files.quantization_source != "config.json"):
            return
        if asked in catalog.ONLINE or asked not in catalog.ALIASES:
            return
        message = f"{setting(options, METHOD, asked)}, but the checkpoint is not quantised"
    elif asked in catalog.ALIASES.get(method, (method,)):
        return
    else:
        message = (
            f"{setting(options, METHOD, asked)}, but the checkpoint is quantised with {method}"
        )
    yield Finding(
        about=METHOD,
        confidence=confidence(config) if method is None or method in catalog.ALIASES else "likely",
        message=message,
        evidence=(*evidence(options, METHOD), evidence_of(files, config, method)),
        fixes=(drop_option(launch, options, METHOD),) if METHOD in options.given else (),
    )


@check("launch-quantization-online", severity="info", category="quality", since="0.2")
def quantization_online(
    launch: Launch, options: EngineOptions, files: ModelFiles | None, config: ModelConfig | None
) -> Iterator[Finding]:
    """The model is quantised while it is loaded, without calibration.

    ## Why it matters
    `--quantization fp8` on plain weights needs the whole 16-bit checkpoint read at each start, scales
    are guessed from the weights alone, and what it costs in quality was not measured for this model:
    a checkpoint that was quantised with calibration data is smaller, starts faster and has been
    evaluated.

    ## How it decides
    `--quantization fp8` (or another fp8 form) and a checkpoint without quantization; where the
    checkpoint is not on this machine, one without "fp8" in its name, and then it is only possible.
    vLLM 0.32 takes fp8 for fp8_per_tensor with a warning.

    ## Fix safety
    Manual: another checkpoint.
    """
    require_vllm(options)
    asked = word(options, METHOD)
    if asked is None or not asked.startswith("fp8"):
        raise NotApplicable("no quantization while loading is asked for")
    known = files is not None and config is not None
    if files is not None and config is not None and quantization_of(files, config):
        return
    name = options.model.text if options.model is not None else "the model"
    if not known and "fp8" in name.lower():
        return
    version = version_of(options)
    mapped = asked == "fp8" and version is not None and version >= catalog.VERSION
    yield Finding(
        about=METHOD,
        confidence="certain" if known else "possible",
        message=f"{setting(options, METHOD, asked)} "
        f"{'on plain weights' if known else f'is applied while loading if {name} is not fp8 itself'}: "
        f"no calibration, native from compute capability {written(catalog.FP8_UNITS)}"
        f"{', taken as fp8_per_tensor by this version' if mapped else ''}",
        evidence=evidence(options, METHOD, "model"),
        fixes=(
            advise(
                "use-calibrated-checkpoint",
                "Serve a checkpoint that was quantised to fp8 with calibration",
            ),
        ),
    )


@check("launch-quantization-gpu", severity="error", category="quantization", since="0.2")
def quantization_gpu(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    capabilities: GpuCapabilities,
    chosen: ChosenGpus | None,
) -> Iterator[Finding]:
    """The GPUs cannot compute with this quantization, or only in a slower way.

    ## Why it matters
    Below the least capability vLLM stops: "The quantization method fp8 is not supported for the
    current GPU. Minimum capability: 75". Between, fp8 and fp4 weights are unpacked to 16 bits for
    each product (Marlin): the memory is saved, the speed of fp8 is not there.

    ## How it decides
    The least compute capability of the GPUs that the launch takes against get_min_capability of each
    method of 0.32 (catalog/quantization.py); an info below 8.9 for fp8 and below 10.0 for fp4.

    ## Fix safety
    Manual: another checkpoint or other GPUs.
    """
    require_vllm(options)
    require_here(launch, "the GPUs")
    config = known_config(config, files, published)
    found = quantization_of(files, config)
    method = word(options, METHOD) or catalog.method_of(found)
    if method is None:
        raise NotApplicable("the model is not quantised")
    family = next((key for key, names in catalog.ALIASES.items() if method in names), method)
    family = "fp8" if family.startswith("fp8_") else family
    least = catalog.LEAST.get(family)
    have = weakest(capabilities, chosen)
    proof = (
        *evidence(options, METHOD),
        evidence_of(files, config, catalog.method_of(found)),
        Evidence(source=capabilities.source, excerpt=f"compute capability {written(have)}"),
    )
    if least is not None and have < least:
        yield Finding(
            about=METHOD,
            confidence=confidence(config),
            message=f"{method} needs compute capability {written(least)}, a GPU here has "
            f"{written(have)}",
            evidence=proof,
            fixes=(
                advise(
                    "use-other-checkpoint",
                    "Serve another checkpoint, such as a GPTQ or a 16-bit one",
                ),
            ),
        )
        return
    form = catalog.bits_of(found or {}, family)
    wanted = {"fp8": catalog.FP8_UNITS, "fp4": catalog.FP4_UNITS}.get(form or "")
    if wanted is None or have >= wanted:
        return
    yield Finding(
        about=METHOD,
        severity="info",
        confidence=confidence(config),
        message=f"{form} weights are computed in 16 bits here: {form} units begin with compute "
        f"capability {written(wanted)}, a GPU here has {written(have)}",
        evidence=proof,
    )


@check("launch-dtype-unsupported", severity="error", category="dtype", since="0.2")
def dtype_unsupported(
    launch: Launch,
    options: EngineOptions,
    files: ModelFiles | None,
    config: ModelConfig | None,
    published: PublishedConfig | None,
    capabilities: GpuCapabilities | None,
    chosen: ChosenGpus | None,
) -> Iterator[Finding]:
    """The dtype of the launch does not go with the GPU, the model or its quantization.

    ## Why it matters
    vLLM stops with "Bfloat16 is only supported on GPUs with compute capability of at least 8.0", "The
    model type 'gemma3' does not support float16" or "torch.float16 is not supported for quantization
    method mxfp4". Curing one can reveal another: Gemma 3 as AWQ on a T4 allows none.

    ## How it decides
    `--dtype`, for "auto" what config.json says. bfloat16 below compute capability 8.0
    (platforms/cuda.py:632): an error when asked for by name, an info with "auto", for newer versions
    then take float16. float16 for the model types of _FLOAT16_NOT_SUPPORTED_MODELS
    (config/model.py:2378). Methods that take bfloat16 only: mxfp4, fp_quant, modelopt_mxfp8; float32
    with any of AWQ, GPTQ, fp8; bfloat16 with `--quantization awq` before 0.12.

    ## Fix safety
    Safe: another dtype in the launch; float16 has a smaller range than bfloat16.
    """
    require_vllm(options)
    config = known_config(config, files, published)
    sure = confidence(config)
    asked = word(options, "dtype") or "auto"
    dtype = read.dtype(config.values) if asked == "auto" else asked
    dtype = {"half": "float16", "float": "float32"}.get(dtype or "", dtype)
    kind = read.model_type(config.values) or ""
    method = word(options, METHOD) or catalog.method_of(quantization_of(files, config))
    where = (
        *evidence(options, "dtype", METHOD),
        config.evidence("torch_dtype", "dtype", "model_type"),
    )

    def finding(message: str, better: str | None) -> Finding:
        fixes = (change_option(launch, options, "dtype", better),) if better else ()
        return Finding(about="dtype", message=message, confidence=sure, evidence=where, fixes=fixes)

    weak = None
    if dtype == "bfloat16":
        if not is_here(launch) or capabilities is None:
            if asked == "bfloat16":
                raise Unavailable("the GPUs that will run this are not known")
        elif (have := weakest(capabilities, chosen)) < (8, 0):
            weak = have
    if weak is not None:
        better = None if kind in NO_HALF or method in catalog.BFLOAT_ONLY else "half"
        proof = Evidence(source=capabilities.source if capabilities else "", excerpt=written(weak))
        yield Finding(
            about="dtype",
            category="dtype_bf16",
            severity=None if asked == "bfloat16" or better is None else "info",
            confidence=sure if asked == "bfloat16" else "likely",
            message=f"bfloat16 needs compute capability 8.0, a GPU here has {written(weak)}"
            + (f"; {kind} does not work in float16 either" if kind in NO_HALF else "")
            + ("; newer versions take float16 by themselves" if better and asked == "auto" else ""),
            evidence=(*where, proof),
            fixes=(change_option(launch, options, "dtype", better),) if better else (),
        )
    if dtype == "float16" and kind in NO_HALF and asked != "auto":
        yield finding(f"{kind} models are unstable in float16 and vLLM refuses it", "bfloat16")
    if dtype == "float16" and method in catalog.BFLOAT_ONLY:
        yield finding(f"{method} takes bfloat16 only, the dtype is float16", "bfloat16")
    if dtype == "float32" and asked != "auto" and method in ("awq", "gptq", "fp8"):
        yield finding(f"{method} takes float16 and bfloat16, the dtype is float32", "auto")
    version = version_of(options)
    old = version is not None and version < catalog.AWQ_BFLOAT_SINCE
    if dtype == "bfloat16" and word(options, METHOD) == "awq" and old:
        yield finding(
            f"method awq of vLLM {options.version} takes float16 only, the dtype is bfloat16",
            None if kind in NO_HALF else "half",
        )
