"""Bytes of quantised layers, by the quantization_config of the model or `--quantization`.

Layouts: model_executor/layers/quantization/ of vLLM 0.26.0 and the formats' own documents
(github.com/vllm-project/compressed-tensors, github.com/casper-hansen/AutoAWQ, OCP MX 1.0).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Unplannable

ONLINE = {"fp8": 8.0, "bitsandbytes": 4.0 + 8 / 64, "mxfp8": 8.0 + 8 / 32}
"""What `--quantization` makes of 16-bit weights at load: bits a number, scales included.

bitsandbytes: nf4 with a one-byte absmax a block of 64 (compress_statistics=True)."""

ALIASES = {
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "auto_awq": "awq",
    "auto_gptq": "gptq",
    "modelopt_fp8": "modelopt",
    "modelopt_fp4": "modelopt",
    "nvfp4": "modelopt",
    "gptq_bitblas": "gptq",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
}

EXPERTS_ONLY = ("mxfp4", "gpt_oss_mxfp4", "moe_wna16")


@frozen
class Scheme:
    """Bits a number, and what comes to it: `group` numbers share `group_bits`."""

    method: str
    bits: float
    group: int = 0
    group_bits: float = 0.0
    row_bits: float = 0.0
    """For each output row: a scale a channel."""
    column_bits: float = 0.0
    """For each input column: the order of GPTQ's activations."""
    block: tuple[int, int] | None = None
    """A float32 scale for each block of this shape."""
    ignored: tuple[str, ...] = ()
    experts_only: bool = False

    def bytes_of(self, rows: int, columns: int) -> int:
        """A matrix with its scales."""
        numbers = rows * columns
        bits = numbers * self.bits + rows * self.row_bits + columns * self.column_bits
        if self.group:
            bits += rows * -(-columns // self.group) * self.group_bits
        if self.block:
            bits += -(-rows // self.block[0]) * -(-columns // self.block[1]) * 32
        return -(-int(bits) // 8)

    def takes(self, name: str, *, expert: bool) -> bool:
        """Whether the layer of this name is quantised."""
        if self.experts_only and not expert:
            return False
        return not any(_matches(pattern, name) for pattern in self.ignored)


def _matches(pattern: str, name: str) -> bool:
    """An ignore list names whole modules, globs or, after "re:", regular expressions."""
    full = f"model.{name}"
    if pattern.startswith("re:"):
        try:
            return any(re.match(pattern[3:], one) is not None for one in (name, full))
        except re.error:
            return False
    if any(
        fnmatch.fnmatchcase(one, form) for one in (name, full) for form in (pattern, f"{pattern}.*")
    ):
        return True
    return pattern.removeprefix("model.") in name


def scheme_of(config: Mapping[str, Any] | None) -> Scheme | None:
    """The scheme of a checkpoint; None when it is not quantised; Unplannable for an unknown one."""
    if not config:
        return None
    method = str(config.get("quant_method") or _modelopt(config) or "").lower()
    method = ALIASES.get(method.replace("-", "_"), method.replace("-", "_"))
    ignored = _ignored(config)
    if method == "awq":
        bits, group = (
            _whole(config, 4, "bits", "w_bit"),
            _whole(config, 128, "group_size", "q_group_size"),
        )
        zero = bits if config.get("zero_point", True) else 0
        return Scheme(method=method, bits=bits, group=group, group_bits=16 + zero, ignored=ignored)
    if method == "gptq":
        bits, group = _whole(config, 4, "bits"), _whole(config, 128, "group_size")
        return Scheme(
            method=method,
            bits=bits,
            group=group,
            group_bits=16 + bits,
            row_bits=0 if group > 0 else 16 + bits,
            column_bits=32,
            ignored=ignored,
        )
    if method == "fp8":
        block = config.get("weight_block_size")
        if (
            isinstance(block, (list, tuple))
            and len(block) == 2
            and all(isinstance(side, int) and side > 0 for side in block)
        ):
            return Scheme(method=method, bits=8, block=(block[0], block[1]), ignored=ignored)
        return Scheme(method=method, bits=8, ignored=ignored)
    if method == "compressed_tensors":
        return _compressed(config, ignored)
    if method == "modelopt":
        kind = str(config.get("quant_algo") or config.get("quantization", {}).get("quant_algo", ""))
        if "FP4" in kind.upper():
            return Scheme(method="nvfp4", bits=4, group=16, group_bits=8, ignored=ignored)
        return Scheme(method="fp8", bits=8, ignored=ignored)
    if method in EXPERTS_ONLY:
        return Scheme(
            method="mxfp4", bits=4, group=32, group_bits=8, experts_only=True, ignored=ignored
        )
    if method == "bitsandbytes":
        if config.get("load_in_8bit"):
            return Scheme(method=method, bits=8, row_bits=32, ignored=ignored)
        nested = bool(config.get("bnb_4bit_use_double_quant"))
        return Scheme(
            method=method, bits=4, group=64, group_bits=8 if nested else 32, ignored=ignored
        )
    raise Unplannable(f"no memory model for the quantisation {method or 'without a quant_method'}")


def cache_dtype_of(config: Mapping[str, Any] | None) -> str | None:
    """The dtype of the KV cache that a checkpoint asks for where the launch leaves it "auto".

    utils/torch_utils.py (get_kv_cache_quant_algo_string) and layers/attention/attention.py of 0.26:
    a kv_cache_scheme of 8-bit floats or kv_cache_quant_algo FP8 makes it fp8.
    """
    inner = (config or {}).get("quantization")
    for part in (inner if isinstance(inner, Mapping) else {}, config or {}):
        scheme = part.get("kv_cache_scheme")
        if isinstance(scheme, Mapping) and scheme.get("type") == "float":
            return {8: "fp8", 4: "nvfp4"}.get(_whole(scheme, 0, "num_bits"))
        kind = str(part.get("kv_cache_quant_algo") or "").lower()
        if kind in ("fp8", "nvfp4"):
            return kind
    return None


def _modelopt(config: Mapping[str, Any]) -> str | None:
    """hf_quant_config.json names its producer instead of a method."""
    return "modelopt" if "quantization" in config or "producer" in config else None


def _compressed(config: Mapping[str, Any], ignored: tuple[str, ...]) -> Scheme:
    """compressed-tensors: the weights of the first group."""
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise Unplannable("quantization_config has no config_groups")
    weights = next(iter(groups.values())).get("weights") or {}
    bits = _whole(weights, 8, "num_bits")
    group = weights.get("group_size")
    group = group if isinstance(group, int) and group > 0 else 0
    if bits == 4 and weights.get("type") == "float":
        group_bits = 8
    else:
        group_bits = 16 if weights.get("symmetric", True) else 16 + bits
    return Scheme(
        method="compressed-tensors",
        bits=bits,
        group=group,
        group_bits=group_bits,
        row_bits=16 if weights.get("strategy") == "channel" else 0,
        ignored=ignored,
    )


def _ignored(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that stay as they are."""
    found: list[str] = []
    inner = config.get("quantization")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        for name in (
            "ignore",
            "modules_to_not_convert",
            "ignored_layers",
            "exclude_modules",
            "llm_int8_skip_modules",
        ):
            value = part.get(name)
            if isinstance(value, (list, tuple)):
                found += [str(item) for item in value]
    return tuple(found)


def _whole(config: Mapping[str, Any], default: int, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 1 << 20:
            return value
    return default
