"""The layers of a model as its config.json tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from infer_doctor.frozen import frozen

LARGEST = 1 << 40
"""No size of a model is larger; a config that says so is broken."""

MOST_LAYERS = 2000
"""Llama 3.1 405B has 126; each layer is a record here, so a wild number must not fill memory."""


class Unplannable(Exception):
    """The plan cannot be made; the text says what is missing."""


@frozen
class Attention:
    """One attention layer. `window` is that of a sliding layer or the chunk of a chunked one."""

    kind: Literal["full", "sliding", "chunked", "mla", "cross"]
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    latent: int = 0
    """MLA: kv_lora_rank."""
    rope_dim: int = 0
    query_rank: int | None = None
    gated: bool = False
    """The query projection also makes an output gate."""
    indexer: tuple[int, int, int] | None = None
    """DeepSeek sparse attention: heads, head size, tokens kept."""
    shared: bool = False
    """It reads the cache of an earlier layer and has none of its own."""


@frozen
class State:
    """A layer with a state of fixed size: Mamba, gated delta net, short convolution."""

    kind: Literal["mamba", "mamba2", "gdn", "conv"]
    channels: int
    """Of the convolution."""
    kernel: int
    shape: tuple[int, ...] = ()
    """Of the recurrent state; the first axis is cut by tensor parallelism."""
    full_precision: bool = False
    parameters: int = 0


@frozen
class Experts:
    """The routed experts of a layer; `shared` is the width of the shared ones together."""

    count: int
    per_token: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    bias: bool = False
    latent: int = 0
    """The experts work on a narrower hidden size, to which two matrices lead (Nemotron 3)."""


@frozen
class Layer:
    """One decoder layer. `width` is that of its dense MLP, 0 when it has none."""

    attention: Attention | None = None
    state: State | None = None
    width: int = 0
    experts: Experts | None = None


@frozen
class Architecture:
    """A model."""

    name: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    tied: bool
    context: int | None
    dtype: str
    gated: bool = True
    biases: frozenset[str] = frozenset()
    """Of "qkv", "o", "mlp", "norm", "head"."""
    norms: int = 2
    query_norm: Literal["", "head", "full"] = ""
    positions: int = 0
    """Rows of a table of learned positions."""
    rope: tuple[tuple[int, int], ...] = ()
    """(positions, dimensions) of each table of rotary embeddings."""
    tower: int = 0
    """Parameters of vision or audio encoders with their projectors."""
    tower_tokens: int = 0
    """Tokens of its largest item; 0 when it has no encoder or that is not known."""
    hybrid: bool = False
    """It has layers with a state: another block size, prefix caching off by default."""

    @property
    def moe(self) -> bool:
        return any(layer.experts is not None for layer in self.layers)


Config = Mapping[str, Any]

ABSENT = object()


def number(config: Config, *names: str, default: Any = ABSENT) -> int:
    """The first of these fields that is there; raises Unplannable when it is missing or wild."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unplannable(f"config.json: {name} is {value!r}, no whole number")
        if not 0 <= value < LARGEST:
            raise Unplannable(f"config.json: {name} is {value}")
        return value
    if default is ABSENT:
        raise Unplannable(f"config.json has no {names[0]}")
    return int(default)


def positive(config: Config, *names: str, default: Any = ABSENT) -> int:
    """A number that cannot be zero."""
    value = number(config, *names, default=default)
    if value == 0:
        raise Unplannable(f"config.json: {names[0]} is 0")
    return value


def fraction(config: Config, *names: str, default: float = 1.0) -> float:
    """The first of these that is there, as a positive number."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 < value < LARGEST
        ):
            raise Unplannable(f"config.json: {name} is {value!r}")
        return float(value)
    return default


def section(config: Config, *names: str) -> Config:
    """The first of these that is an object, else an empty one."""
    for name in names:
        value = config.get(name)
        if isinstance(value, Mapping):
            return value
    return {}


def text_config(config: Config) -> Config:
    """The part of the language model in the config of a multimodal one."""
    thinker = section(config, "thinker_config")
    if thinker:
        config = thinker
    inner = section(config, "text_config", "llm_config", "language_config", "language_model_config")
    if not inner:
        return config
    shared = {name: config[name] for name in ("torch_dtype", "dtype") if name in config}
    return {**shared, **{key: value for key, value in inner.items() if value is not None}}


def heads_of(config: Config) -> tuple[int, int, int]:
    """Query heads, key-value heads and head size.

    The order of the names of the key-value heads is the engine's
    (transformers_utils/model_arch_config_convertor.py:150 of vLLM 0.32.0).
    """
    heads = positive(config, "num_attention_heads", "n_head", "num_heads", "n_heads")
    if config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        key_value = 1
    else:
        key_value = positive(
            config,
            "n_head_kv",
            "num_kv_heads",
            "num_key_value_heads",
            "multi_query_group_num",
            "num_attention_groups",
            default=heads,
        )
    hidden = positive(config, "hidden_size", "n_embd", "d_model")
    if config.get("head_dim") is None and hidden % heads:
        raise Unplannable(f"config.json: {hidden} is not a multiple of {heads} heads")
    head_dim = positive(config, "head_dim", "kv_channels", default=hidden // heads)
    if key_value > heads:
        raise Unplannable(f"config.json: {key_value} key-value heads, but {heads} heads")
    return heads, key_value, head_dim


def dtype_of(config: Config) -> str:
    """The dtype of the weights as the config says, float32 when it does not (as transformers)."""
    value = config.get("dtype") or config.get("torch_dtype") or "float32"
    return str(value).removeprefix("torch.")


def layer_count(config: Config) -> int:
    """The number of decoder layers."""
    count = positive(
        config, "num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"
    )
    if count > MOST_LAYERS:
        raise Unplannable(f"config.json: {count} layers")
    return count
