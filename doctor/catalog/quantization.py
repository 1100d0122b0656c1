"""The quantization methods of vLLM: names, what a checkpoint of each takes, GPUs, dtypes, the end.

Read from vLLM 0.32.0: model_executor/layers/quantization/*.py (get_min_capability,
get_supported_act_dtypes, override_quantization_method) and __init__.py; removals from the lists of
methods in the releases 0.6 to 0.33 ("about" where only a snapshot of main between is known).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSION = (0, 32)

ALIASES: dict[str, tuple[str, ...]] = {
    "awq": ("awq", "awq_marlin", "auto_awq", "marlin", "moe_wna16"),
    "gptq": ("gptq", "gptq_marlin", "auto_gptq", "marlin", "moe_wna16", "gptq_bitblas"),
    "fp8": ("fp8", "deepseek_v4_fp8"),
    "mxfp4": ("mxfp4", "gpt_oss_mxfp4"),
    "modelopt": ("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"),
    "modelopt_fp4": ("modelopt", "modelopt_fp4", "modelopt_mixed"),
    "auto-round": ("auto-round", "inc"),
    "inc": ("auto-round", "inc"),
    "compressed-tensors": ("compressed-tensors",),
    "bitsandbytes": ("bitsandbytes",),
    "quark": ("quark",),
    "torchao": ("torchao",),
    "fbgemm_fp8": ("fbgemm_fp8",),
    "fp_quant": ("fp_quant",),
    "experts_int8": ("experts_int8",),
    "gguf": ("gguf",),
}
"""quant_method of a checkpoint -> the values of --quantization that go with it."""

ANY = ("humming",)
"""Methods that take checkpoints of others."""

ONLINE = (
    "fp8",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "int8_per_channel_weight_only",
    "nvfp4_per_token",
    "mxfp8",
    "mxfp4",
    "online",
    "experts_int8",
    "bitsandbytes",
    "torchao",
    "ptpc_fp8",
    "inc",
)
"""Methods that quantise plain weights while they are loaded."""

KNOWN = frozenset(
    (
        *(name for names in ALIASES.values() for name in names if name not in ("gguf", "marlin")),
        *ANY,
        *ONLINE,
    )
) - {"bitsandbytes", "gptq_bitblas", "auto-round", "ptpc_fp8"}
"""Names that 0.32 takes."""

REMOVED: dict[str, tuple[tuple[int, int], str | None]] = {
    "squeezellm": ((0, 6), None),
    "aqlm": ((0, 10), None),
    "marlin": ((0, 10), "gptq_marlin"),
    "qqq": ((0, 10), None),
    "neuron_quant": ((0, 10), None),
    "tpu_int8": ((0, 14), None),
    "deepspeedfp": ((0, 15), None),
    "hqq": ((0, 15), None),
    "rtn": ((0, 15), None),
    "auto-round": ((0, 15), "inc"),
    "bitblas": ((0, 16), None),
    "gptq_bitblas": ((0, 16), "gptq"),
    "gptq_marlin_24": ((0, 16), None),
    "ipex": ((0, 16), None),
    "ptpc_fp8": ((0, 19), "fp8_per_channel"),
    "petit_nvfp4": ((0, 20), None),
    "gguf": ((0, 24), "the plugin vllm-gguf-plugin"),
    "bitsandbytes": ((0, 27), "the plugin vllm-bnb-plugin"),
}
"""Method -> the first minor version that surely has it no more, what to use instead."""

PLUGINS = {"gguf": "vllm-gguf-plugin", "bitsandbytes": "vllm-bnb-plugin"}

DEPRECATED = ("fbgemm_fp8", "fp_quant")
"""Refused by 0.32 without --allow-deprecated-quantization."""

LEAST: dict[str, tuple[int, int]] = {
    "awq": (7, 5),
    "gptq": (6, 0),
    "compressed-tensors": (7, 0),
    "experts_int8": (8, 0),
    "fbgemm_fp8": (8, 0),
    "fp8": (7, 5),
    "fp_quant": (10, 0),
    "humming": (7, 5),
    "inc": (6, 0),
    "modelopt": (8, 0),
    "modelopt_fp4": (7, 5),
    "modelopt_mixed": (7, 5),
    "modelopt_mxfp8": (8, 0),
    "moe_wna16": (7, 0),
    "mxfp4": (8, 0),
    "quark": (7, 0),
    "torchao": (7, 5),
}
"""Method -> the least compute capability; older versions want the same or more."""

BFLOAT_ONLY = ("mxfp4", "fp_quant", "modelopt_mxfp8")
"""Methods that take no float16 (get_supported_act_dtypes); all others take both."""

FP8_UNITS = (8, 9)
"""Below it fp8 weights are computed in 16 bits by Marlin (utils/marlin_utils_fp8.py:109)."""

FP4_UNITS = (10, 0)
"""Below it fp4 weights are (utils/marlin_utils_fp4.py:342)."""

AWQ_BFLOAT_SINCE = (0, 12)
"""Before about then method "awq" took float16 alone (vllm-project/vllm issue 28857, of 0.11)."""

Config = Mapping[str, Any]


def method_of(quantization: Config | None) -> str | None:
    """The method of a checkpoint as vLLM names it; None when it is not quantised."""
    if not quantization:
        return None
    found = quantization.get("quant_method")
    if isinstance(found, str) and found and found != "modelopt":
        return found.lower().replace("compressed_tensors", "compressed-tensors")
    inner = quantization.get("quantization")
    part = inner if isinstance(inner, Mapping) else quantization
    algorithm = str(part.get("quant_algo", "")).upper()
    if algorithm == "NVFP4":
        return "modelopt_fp4"
    if algorithm.startswith("FP8") or found == "modelopt":
        return "modelopt"
    if algorithm.startswith("MIXED"):
        return "modelopt_mixed"
    return None


def bits_of(quantization: Config, method: str) -> str | None:
    """ "fp8" or "fp4" when the weights are of that form."""
    if method in ("fp8", "fbgemm_fp8", "modelopt"):
        return "fp8"
    if method in ("modelopt_fp4", "mxfp4", "gpt_oss_mxfp4"):
        return "fp4"
    if method == "compressed-tensors":
        groups = quantization.get("config_groups")
        rows = groups.values() if isinstance(groups, Mapping) else ()
        for row in rows:
            weights = row.get("weights") if isinstance(row, Mapping) else None
            if isinstance(weights, Mapping) and weights.get("type") == "float":
                return {8: "fp8", 4: "fp4"}.get(weights.get("num_bits", 0))
    return None
