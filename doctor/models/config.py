"""config.json as the engine reads it: the text part, its sizes under all their names, its limits.

vllm/transformers_utils/model_arch_config_convertor.py and vllm/config/model.py of 0.32.0; compared
with that engine's own ModelConfig in tests. What a config leaves to the defaults of its transformers
class is None here, except for the few that DEFAULTS knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Config = Mapping[str, Any]

NAMES: dict[str, tuple[str, ...]] = {
    "heads": ("num_attention_heads", "n_head", "n_heads", "encoder_attention_heads"),
    "kv_heads": (
        "n_head_kv",
        "num_kv_heads",
        "num_key_value_heads",
        "multi_query_group_num",
        "num_attention_groups",
    ),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"),
    "width": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "expert_width": ("moe_intermediate_size", "expert_ffn_hidden_size"),
    "window": ("sliding_window",),
}
"""What a config calls a size, the first name first; attribute_map of the transformers classes."""

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""derive_max_model_len_and_key: the smallest of these is the limit."""

TEXT_PARTS = ("text_config", "llm_config", "language_config", "decoder", "generator")
"""Where the language model of a larger one stands (get_text_config; _CONFIG_ATTRS_MAPPING)."""

MLA_TYPES = (
    "axk1",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "deepseek_v41",
    "deepseek_mtp",
    "glm_moe_dsa",
    "glm4_moe_lite",
    "kimi_k2",
    "kimi_linear",
    "longcat_flash",
    "pangu_ultra_moe",
    "bailing_hybrid",
)
"""is_deepseek_mla, the types that are published."""

ALREADY_SCALED = (
    "su",
    "longrope",
    "llama3",
    "yarn",
    "deepseek_yarn",
    "deepseek_llama_scaling",
)
"""Rope types whose max_position_embeddings is the scaled length (_get_and_verify_max_len)."""

DEFAULTS: dict[str, Config] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "vocab_size": 262_208,
    },
    "falcon": {"max_position_embeddings": 2048},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
}
"""Defaults of transformers' classes (5.19) that published configs rely on, by text model type."""


def text_part(config: Config) -> Config:
    """The part that describes the language model."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        config = thinker
    for name in TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping) and part:
            return part
    return config


def merged(config: Config, overrides: Config) -> dict[str, Any]:
    """The config with --hf-overrides put in, section by section."""
    result = dict(config)
    for key, value in overrides.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def number(config: Config, names: tuple[str, ...]) -> int | None:
    """The first of these that is a whole number; of a list its largest."""
    defaults = DEFAULTS.get(str(config.get("model_type")), {})
    for part in (config, defaults):
        for name in names:
            value = part.get(name)
            if isinstance(value, list) and value and all(type(item) is int for item in value):
                value = max(value)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) is int and 0 <= value < 1 << 40:
                return value
    return None


def size(config: Config, what: str) -> int | None:
    """One of NAMES in the text part."""
    return number(text_part(config), NAMES[what])


def architectures(config: Config) -> tuple[str, ...]:
    """The names of the classes that may load it."""
    found = config.get("architectures")
    names = found if isinstance(found, list) else []
    return tuple(name for name in names if isinstance(name, str))


def model_type(config: Config) -> str | None:
    """The name by which transformers finds the class of the config."""
    found = config.get("model_type")
    return found if isinstance(found, str) and found else None


def is_mla(config: Config) -> bool:
    """Whether its attention keeps one compressed vector a token (multi-head latent attention)."""
    text = text_part(config)
    if text.get("model_type") not in MLA_TYPES:
        return False
    if "compress_ratios" in text:
        return text.get("head_dim") is not None
    return text.get("kv_lora_rank") is not None


def kv_heads(config: Config) -> int | None:
    """Key-value heads: one for multi-query attention, as many as heads when nothing is said."""
    text = text_part(config)
    if text.get("model_type") in ("mamba", "mamba2"):
        return 0
    attention = text.get("attn_config")
    if isinstance(attention, Mapping) and "kv_n_heads" in attention:
        return number(attention, ("kv_n_heads",))
    if text.get("multi_query") is True and text.get("new_decoder_architecture") is not True:
        return 1
    found = size(config, "kv_heads")
    return size(config, "heads") if found is None else found


def head_size(config: Config) -> int | None:
    """Elements of one head as the attention backend sees it."""
    text = text_part(config)
    if is_mla(config) and "compress_ratios" not in text:
        parts = (number(text, ("kv_lora_rank",)), number(text, ("qk_rope_head_dim",)))
        return None if None in parts else sum(part or 0 for part in parts)
    found = number(text, ("head_dim", "hidden_size_per_head"))
    if found:
        return found
    hidden, heads = size(config, "hidden"), size(config, "heads")
    return hidden // heads if hidden and heads else None


def experts(config: Config) -> int:
    """Routed experts of a layer, 0 for a dense model."""
    return size(config, "experts") or 0


def rope_rows(config: Config) -> Iterator[Config]:
    """The parameters of the rotary embedding, one row for each kind of layer that has its own."""
    text = text_part(config)
    for name in ("rope_parameters", "rope_scaling"):
        found = text.get(name)
        if not isinstance(found, Mapping) or not found:
            continue
        rows = [row for row in found.values() if isinstance(row, Mapping)]
        yield from rows if rows else [found]
        return


def rope_type(row: Config) -> str:
    """Its kind under both names; "mrope" and nothing are the default one."""
    found = row.get("rope_type") or row.get("type") or "default"
    return "longrope" if found == "su" else "default" if found == "mrope" else str(found)


def longest(config: Config) -> tuple[int | None, str | None]:
    """The most tokens that the config allows and the key that says so; None without a limit."""
    text = text_part(config)
    limit, key = None, None
    for name in LENGTHS:
        value = number(text, (name,))
        if value is not None and (limit is None or value < limit):
            limit, key = value, name
    if (own := number(text, ("model_max_length",))) is not None and own:
        limit, key = own, "model_max_length"
    if limit is None or "gemma3" in str(text.get("model_type")):
        return limit, key
    factor = 1.0
    for row in rope_rows(config):
        value = row.get("factor")
        if rope_type(row) not in ALREADY_SCALED and isinstance(value, (int, float)):
            factor = float(value)
    return int(limit * factor), key


def scaled_before(config: Config) -> int | None:
    """What versions that multiply YaRN's original length with its factor take for the limit."""
    for row in rope_rows(config):
        original, factor = row.get("original_max_position_embeddings"), row.get("factor")
        if rope_type(row) == "yarn" and isinstance(original, int):
            return int(original * (factor if isinstance(factor, (int, float)) else 1))
    return None


def dtype(config: Config) -> str | None:
    """The dtype of the weights: "bfloat16"; None when the config does not say it."""
    parts = [config, text_part(config), config.get("vision_config"), config.get("encoder_config")]
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        for name in ("dtype", "torch_dtype"):
            if isinstance(found := part.get(name), str) and found:
                return found.removeprefix("torch.")
    return None
