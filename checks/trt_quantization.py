"""Quantisation of TensorRT-LLM against the GPU, the version and the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infer_doctor.catalog.trtllm_quantization import LEAST, LEAST_KV, SINCE
from infer_doctor.catalog.trtllm_releases import numbers
from infer_doctor.facts.engine_options import EngineOptions
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.model_files import ModelFiles
from infer_doctor.facts.trt_engine import TrtEngine
from infer_doctor.facts.trt_release import TrtRelease
from infer_doctor.fixes.trtllm import advise, change, rebuild
from infer_doctor.host import Unavailable
from infer_doctor.launch.model import Launch, Unknown
from infer_doctor.model import Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.trtllm import judge

FIRST_FP8_BLOCK_ADA = (0, 21)


def algorithms(
    engine: TrtEngine | None, files: ModelFiles | None
) -> tuple[str | None, str | None, Evidence | None]:
    """(of the weights, of the KV cache, where it stands), in TensorRT-LLM's own names."""
    if engine is not None:
        weights, cache = (
            engine.quantization("quant_algo"),
            engine.quantization("kv_cache_quant_algo"),
        )
        if weights or cache:
            shown = f'"quant_algo": "{weights}", "kv_cache_quant_algo": "{cache}"'
            return weights, cache, judge.of_config(engine, shown)
        return None, None, judge.of_config(engine, "quantization: none")
    if files is None:
        return None, None, None
    document = files.documents.get("hf_quant_config.json")
    if document is not None:
        inner = document.get("quantization")
        rows: Mapping[str, Any] = inner if isinstance(inner, Mapping) else document
        weights, cache = _text(rows.get("quant_algo")), _text(rows.get("kv_cache_quant_algo"))
        shown = f'"quant_algo": "{weights}", "kv_cache_quant_algo": "{cache}"'
        source = f"{files.folder or files.model}/hf_quant_config.json"
        return weights, cache, Evidence(source=source, excerpt=shown)
    if files.quantization is None:
        return (
            None,
            None,
            Evidence(source=f"{files.folder or files.model}", excerpt="not quantised"),
        )
    method = _text(files.quantization.get("quant_method")) or ""
    block = files.quantization.get("weight_block_size")
    found = {
        "FP8": "FP8_BLOCK_SCALES" if block else "FP8",
        "MXFP4": "W4A16_MXFP4",
        "AWQ": "W4A16_AWQ",
        "GPTQ": "W4A16_GPTQ",
        "MODELOPT": _text(files.quantization.get("quant_algo")),
    }.get(method)
    cache = _cache_scheme(files.quantization)
    source = f"{files.folder or files.model}/{files.quantization_source or 'config.json'}"
    return found, cache, Evidence(source=source, excerpt=f'"quant_method": "{method.lower()}"')


def _cache_scheme(quantization: Mapping[str, Any]) -> str | None:
    found = quantization.get("kv_cache_scheme") or quantization.get("kv_cache_quant_algo")
    if isinstance(found, Mapping):
        return "FP8" if found.get("num_bits") == 8 else None
    return _text(found)


def _text(value: Any) -> str | None:
    return value.upper() if isinstance(value, str) and value else None


@check("trt-quantization-gpu", severity="error", category="capability_fp8_fa", since="0.3")
def quantization_gpu(
    capabilities: GpuCapabilities,
    release: TrtRelease,
    engine: TrtEngine | None,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """The GPU has no kernels for how the weights are quantised.

    ## Why it matters
    "Networks with FP8 precision require hardware with FP8 support", "W4A(fp)8 kernel is unsupported on
    pre-Ada (sm<89) architectures!", "Unsupported architecture": after the weights were loaded.

    ## How it decides
    quant_algo of the engine's config.json, of hf_quant_config.json, or the quant_method of the model,
    against the least compute capability of each method (docs/source/features/quantization.md and the
    precision table of 0.14): FP8 8.9, FP8 with block scales 9.0 (8.9 since 0.21), AWQ and GPTQ with
    FP8 activations 8.9, NVFP4 and MXFP4 with 8-bit activations 10.0, SmoothQuant 7.5. Several GPUs:
    the least counts.

    ## Fix safety
    Manual: another checkpoint or another GPU.
    """
    if engine is None and files is None:
        raise Unavailable("the files of the model are not known")
    weights, _, source = algorithms(engine, files)
    if weights is None or weights not in LEAST:
        return
    if not capabilities.capabilities:
        raise Unavailable("the compute capability of the GPUs is not known")
    index, found = min(capabilities.capabilities.items(), key=lambda row: (row[1], row[0]))
    least = LEAST[weights]
    version = numbers(release.version)
    if weights == "FP8_BLOCK_SCALES" and least <= found < (9, 0):
        if version is None:
            raise Unavailable(release.basis)
        if version < FIRST_FP8_BLOCK_ADA:
            least = (9, 0)
    if found >= least:
        return
    yield Finding(
        about=f"{engine.path if engine else files.model if files else ''} {weights}",
        message=f"{weights} needs compute capability {least[0]}.{least[1]}; GPU {index} has "
        f"{found[0]}.{found[1]}",
        evidence=judge.present(
            source, Evidence(source=capabilities.source, excerpt=f"{found[0]}.{found[1]}")
        ),
        fixes=(_other_checkpoint(found, engine),),
    )


def _other_checkpoint(found: tuple[int, int], engine: TrtEngine | None) -> Fix:
    fitting = "W4A16_AWQ, W8A16 or no quantisation" if found < (8, 9) else "FP8 or W4A16_AWQ"
    if engine is not None:
        return rebuild(engine, f"Quantise again for this GPU ({fitting}) and build")
    return advise("other-checkpoint", f"Use a checkpoint for this GPU: {fitting}")


@check("trt-quantization-version", severity="error", category="quantization", since="0.3")
def quantization_version(
    release: TrtRelease,
    engine: TrtEngine | None,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """The TensorRT-LLM that will run does not know how the weights are quantised.

    ## Why it matters
    "Unsupported quant_mode", a KeyError of QuantAlgo, or weights that are read as something else.

    ## How it decides
    quant_algo against the methods of each release (tensorrt_llm/quantization/mode.py of 0.14, 0.17 and
    1.1, release notes of 0.15 and 0.21). A name that no release has is told whatever the version; likely, where the release that
    brought it is only known as at the latest.

    ## Fix safety
    Manual: a newer release, or another checkpoint.
    """
    if engine is None and files is None:
        raise Unavailable("the files of the model are not known")
    weights, _, source = algorithms(engine, files)
    if weights is None:
        return
    version = numbers(release.version)
    since = SINCE.get(weights)
    if since is None:
        yield Finding(
            about=weights,
            confidence="likely",
            message=f"no TensorRT-LLM that is known has the quantisation {weights}",
            evidence=judge.present(source),
            fixes=(advise("newer-release", "Use the release that the checkpoint was made for"),),
        )
    elif since > (0, 0):
        if version is None:
            raise Unavailable(release.basis)
        if version[:2] < since:
            yield Finding(
                about=weights,
                confidence="likely",
                message=f"{weights} is known from TensorRT-LLM {since[0]}.{since[1]} on; "
                f"{release.basis} will run",
                evidence=judge.present(source, judge.of_release(release)),
                fixes=(
                    advise("newer-release", f"Use TensorRT-LLM {since[0]}.{since[1]} or newer"),
                ),
            )


@check("trt-kv-scales-missing", severity="warning", category="quality", since="0.3")
def kv_scales_missing(
    launch: Launch,
    options: EngineOptions,
    release: TrtRelease,
    engine: TrtEngine | None,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """The KV cache is to be fp8, but no scales are there for it, or the setting does nothing.

    ## Why it matters
    Scales that are missing count as 1.0: values beyond the range of fp8 are cut, and answers get worse
    without an error (one such bug cost 22 points of GSM8K, NVIDIA/TensorRT-LLM PR 16916). On the
    TensorRT backend the setting is ignored, so the cache is twice as large as planned.

    ## How it decides
    kv_cache_config.dtype or --kv_cache_dtype is fp8 or nvfp4, and neither hf_quant_config.json nor
    config.json names a quantised cache (kv_cache_quant_algo, kv_cache_scheme). For an engine: its own
    kv_cache_quant_algo counts alone.

    ## Fix safety
    Safe: the cache gets the model's dtype.
    """
    judge.require_trtllm(options)
    name = "kv_cache_config.dtype"
    wanted = options.get(name)
    if isinstance(wanted, Unknown):
        raise Unavailable(f"{name} is {wanted.text}, which the launch does not tell")
    if wanted not in ("fp8", "nvfp4", "fp8_ds_mla"):
        return  # trt-argument-value judges a value that is none
    if engine is None and files is None:
        raise Unavailable("the files of the model are not known")
    _, cache, source = algorithms(engine, files)
    auto = change(launch, options, name, "--kv_cache_dtype", "auto")
    if engine is not None or judge.backend_of(launch, options, release) == "tensorrt":
        if cache is None:
            yield Finding(
                about=f"{launch.name} {name}",
                message=f"{name} {wanted} does nothing on the TensorRT backend: the engine's own KV "
                "cache is not quantised",
                evidence=judge.present(judge.given(options, name), source),
                fixes=(
                    advise(
                        "quantise-kv-cache",
                        "Make the checkpoint with quantize.py --kv_cache_dtype fp8 and build again",
                    ),
                    auto,
                ),
            )
        return
    if cache is None:
        assert files is not None
        if files.origin == "named" or files.gaps:
            raise Unavailable(f"the files of {files.model} were not read")
        yield Finding(
            about=f"{launch.name} {name}",
            message=f"the KV cache is to be {wanted}, but {files.model} has no scales for it: they "
            "count as 1.0",
            confidence="likely",
            evidence=judge.present(judge.given(options, name), source),
            fixes=(
                auto,
                advise(
                    "calibrate-kv-cache",
                    "Or calibrate them: hf_ptq.py of NVIDIA's Model Optimizer with "
                    "--kv_cache_qformat fp8, and compare answers with auto",
                ),
            ),
        )


@check("trt-kv-cache-gpu", severity="warning", category="capability_fp8_fa", since="0.3")
def kv_cache_gpu(
    launch: Launch,
    options: EngineOptions,
    release: TrtRelease,
    capabilities: GpuCapabilities,
    engine: TrtEngine | None,
    files: ModelFiles | None,
) -> Iterator[Finding]:
    """The GPU has no instructions for the number format of the KV cache.

    ## Why it matters
    Decoding converts each value in software, or finds no kernel ("Unsupported data type").

    ## How it decides
    The KV cache is fp8 (compute capability 8.9) or nvfp4 (10.0) by the launch or the checkpoint. The
    documentation marks fp8 as supported on 8.0 and 8.6, but that hardware cannot convert it, so it is
    a warning there.

    ## Fix safety
    Safe where the launch asks for it.
    """
    judge.require_trtllm(options)
    name = "kv_cache_config.dtype"
    wanted = options.get(name)
    if isinstance(wanted, Unknown):
        raise Unavailable(f"{name} is {wanted.text}, which the launch does not tell")
    source = judge.given(options, name)
    if wanted in (None, "auto"):
        if engine is None and files is None:
            raise Unavailable("the files of the model are not known")
        _, wanted, source = algorithms(engine, files)
    least = LEAST_KV.get(str(wanted).upper()) if wanted else None
    if least is None:
        return
    if not capabilities.capabilities:
        raise Unavailable("the compute capability of the GPUs is not known")
    index, found = min(capabilities.capabilities.items(), key=lambda row: (row[1], row[0]))
    if found >= least:
        return
    cure = (
        (change(launch, options, name, "--kv_cache_dtype", "auto"),)
        if name in options.given
        else (advise("other-kv-cache", "Use a checkpoint whose KV cache is not quantised"),)
    )
    yield Finding(
        about=f"{launch.name} {name}",
        message=f"a KV cache of {str(wanted).lower()} needs compute capability "
        f"{least[0]}.{least[1]}; GPU {index} has {found[0]}.{found[1]}",
        evidence=judge.present(
            source, Evidence(source=capabilities.source, excerpt=f"{found[0]}.{found[1]}")
        ),
        fixes=cure,
    )
