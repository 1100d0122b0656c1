"""config.json -> Architecture."""

from __future__ import annotations

from typing import Any, Literal

from infer_doctor.memory.architecture import (
    Architecture,
    Attention,
    Config,
    Experts,
    Layer,
    Unplannable,
    dtype_of,
    fraction,
    heads_of,
    layer_count,
    number,
    positive,
    section,
    text_config,
)
from infer_doctor.memory.families import FAMILIES, Family
from infer_doctor.memory.states import delta_net, mamba, mamba2
from infer_doctor.memory.towers import tower_of

CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "n_ctx",
)
"""Fields that bound the context, the smallest counts (config/model.py:1890 of vLLM 0.32.0)."""

SLIDING_PATTERN = 2


def read_architecture(config: Config) -> Architecture:
    """Raises Unplannable with one clear sentence for what is missing, wild or unknown."""
    names = config.get("architectures")
    if not isinstance(names, (list, tuple)) or not names:
        raise Unplannable("config.json names no architecture")
    name = str(names[0])
    family = FAMILIES.get(name)
    if family is None:
        raise Unplannable(f"no memory model for the architecture {name}")
    text = {**dict(family.defaults), **text_config(config)}
    if family.kind == "whisper":
        return _whisper(name, family, text)
    hidden = positive(text, "hidden_size", "n_embd", "d_model")
    layers = tuple(_layer(family, text, place) for place in range(layer_count(text)))
    tower = section(config, "vision_config", "vision_tower_config")
    parameters, tokens = tower_of(tower, hidden) if tower else (0, 0)
    return Architecture(
        name=name,
        hidden=hidden,
        vocabulary=positive(text, "vocab_size", "padded_vocab_size"),
        layers=layers,
        tied=bool(_first(text, config, "tie_word_embeddings", family.tied)),
        context=_context(text),
        dtype=dtype_of(text) if dtype_of(text) != "float32" else dtype_of(config),
        gated=family.gated,
        biases=_biases(family, text),
        norms=family.norms,
        query_norm=family.query_norm,
        positions=(_context(text) or 0) if family.positions else 0,
        rope=_rope(family, text, layers),
        tower=parameters,
        tower_tokens=tokens,
        hybrid=any(layer.state is not None for layer in layers),
    )


def _first(inner: Config, outer: Config, name: str, default: Any) -> Any:
    """The value of the inner config, else of the outer one."""
    value = inner.get(name)
    value = outer.get(name) if value is None else value
    return default if value is None else value


def _biases(family: Family, config: Config) -> frozenset[str]:
    """What the family always has and what the config switches."""
    found = set(family.biases)
    if config.get("attention_bias") is True:
        found |= {"qkv", "o"} if "qkv" not in found or "o" in found else {"qkv"}
    if config.get("mlp_bias") is True:
        found.add("mlp")
    if config.get("use_bias") is False or config.get("bias") is False:
        found -= {"qkv", "o", "mlp"}
    return frozenset(found)


def _context(config: Config) -> int | None:
    """The derived context, with the factor of rotary scaling where it lengthens."""
    found = [number(config, name) for name in CONTEXT if config.get(name)]
    if not found:
        return None
    scaling = section(config, "rope_scaling", "rope_parameters")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    context = min(found)
    if kind == "yarn" and scaling.get("original_max_position_embeddings"):
        original = positive(scaling, "original_max_position_embeddings")
        return int(original * fraction(scaling, "factor"))
    if "gemma3" in str(config.get("model_type")):  # the factor is within its 131,072 (vLLM too)
        return context
    return int(context * fraction(scaling, "factor")) if kind in ("linear", "dynamic") else context


def _rope(family: Family, config: Config, layers: tuple[Layer, ...]) -> tuple[tuple[int, int], ...]:
    """The tables of rotary embeddings: one for each kind that differs."""
    if not family.rope:
        return ()
    first = next((layer.attention for layer in layers if layer.attention), None)
    if first is None:
        return ()
    share = fraction(config, "partial_rotary_factor", "rotary_pct")
    width = first.rope_dim or int(first.head_dim * share)
    rows = _context(config) or 0
    scaling = section(config, "rope_scaling", "rope_parameters")
    if scaling.get("rope_type", scaling.get("type")) == "longrope":
        return ((rows, width), (rows, width))
    local = config.get("rope_local_base_freq") is not None
    return ((rows, width), (rows, width)) if local else ((rows, width),)


def _layer(family: Family, config: Config, place: int) -> Layer:
    """One decoder layer."""
    experts = _experts(config, place)
    width = 0 if experts else _width(config)
    if family.kind == "mla":
        return Layer(attention=_latent(config), width=width, experts=experts)
    if family.kind == "qwen-next":
        if _is_full(config, place):
            return Layer(
                attention=_attention(family, config, place, gated=True),
                width=width,
                experts=experts,
            )
        return Layer(state=delta_net(config), width=width, experts=experts)
    if family.kind == "jamba":
        period = positive(config, "attn_layer_period", default=8)
        offset = number(config, "attn_layer_offset", default=4)
        if place % period == offset:
            return Layer(attention=_attention(family, config, place), width=width, experts=experts)
        return Layer(state=mamba(config, "mamba_"), width=width, experts=experts)
    if family.kind == "nemotron-h":
        return _nemotron(family, config, place)
    if family.kind == "mamba":
        return Layer(state=mamba(config, ""))
    if family.kind == "mamba2":
        return Layer(state=mamba2(config))
    return Layer(attention=_attention(family, config, place), width=width, experts=experts)


def _nemotron(family: Family, config: Config, place: int) -> Layer:
    """Nemotron-H: one part a layer, by a letter: M Mamba 2, * attention, - MLP, E experts."""
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or place >= len(pattern):
        raise Unplannable("config.json has no hybrid_override_pattern for each layer")
    letter = pattern[place]
    if letter == "*":
        return Layer(attention=_attention(family, config, place))
    if letter == "-":
        return Layer(width=_width(config))
    if letter == "M":
        return Layer(state=mamba2(config))
    if letter != "E":
        raise Unplannable(f"hybrid_override_pattern has a layer {letter!r}")
    return Layer(
        experts=Experts(
            count=positive(config, "n_routed_experts"),
            per_token=positive(config, "num_experts_per_tok"),
            width=positive(config, "moe_intermediate_size"),
            shared=number(config, "moe_shared_expert_intermediate_size", default=0),
            latent=number(config, "moe_latent_size", default=0),
        )
    )


def _width(config: Config) -> int:
    """The width of a dense MLP; four times the hidden size where the config is silent."""
    hidden = positive(config, "hidden_size", "n_embd", "d_model")
    return positive(
        config,
        "intermediate_size_mlp",
        "intermediate_size",
        "ffn_dim",
        "ffn_hidden_size",
        "n_inner",
        default=4 * hidden,
    )


def _is_full(config: Config, place: int) -> bool:
    """Qwen3-Next: which layers are full attention."""
    kinds = config.get("layer_types")
    if isinstance(kinds, (list, tuple)) and place < len(kinds):
        return str(kinds[place]) == "full_attention"
    interval = positive(config, "full_attention_interval", default=4)
    return (place + 1) % interval == 0


def _attention(family: Family, config: Config, place: int, gated: bool = False) -> Attention:
    """A layer of ordinary attention."""
    heads, key_value, head_dim = heads_of(config)
    kind, window = _window(family, config, place)
    shared_from = number(config, "num_kv_shared_layers", default=0)
    return Attention(
        kind=kind,
        heads=heads,
        kv_heads=key_value,
        head_dim=head_dim,
        value_dim=head_dim,
        window=window,
        gated=gated,
        shared=bool(shared_from) and place >= layer_count(config) - shared_from,
    )


def _window(
    family: Family, config: Config, place: int
) -> tuple[Literal["full", "sliding", "chunked"], int | None]:
    """Full, sliding or chunked, and the tokens that such a layer sees."""
    kinds = config.get("layer_types")
    chunk = number(config, "attention_chunk_size", default=0)
    window = number(config, "sliding_window", default=0)
    if config.get("use_sliding_window") is False:
        window = 0
    if isinstance(kinds, (list, tuple)) and place < len(kinds):
        kind = str(kinds[place])
        if kind == "sliding_attention" and window:
            return "sliding", window
        if kind == "chunked_attention" and chunk:
            return "chunked", chunk
        return "full", None
    if family.windows == "rope":
        if not chunk:
            return "full", None
        rope = config.get("no_rope_layers")
        if isinstance(rope, (list, tuple)) and place < len(rope):
            local = bool(rope[place])
        else:
            local = (place + 1) % positive(config, "no_rope_layer_interval", default=4) != 0
        return ("chunked", chunk) if local else ("full", None)
    if not window or family.windows == "none":
        return "full", None
    if family.windows == "even" and place % SLIDING_PATTERN:
        return "full", None
    if family.windows == "pattern":
        pattern = positive(
            config, "sliding_window_pattern", "_sliding_window_pattern", default=family.pattern
        )
        if (place + 1) % pattern == 0:
            return "full", None
    return "sliding", window


def _latent(config: Config) -> Attention:
    """Multi-head latent attention (DeepSeek V2 and later, MiniCPM 3)."""
    heads = positive(config, "num_attention_heads")
    nope = positive(config, "qk_nope_head_dim")
    rope = positive(config, "qk_rope_head_dim")
    indexer = None
    if config.get("index_topk"):
        indexer = (
            positive(config, "index_n_heads"),
            positive(config, "index_head_dim"),
            positive(config, "index_topk"),
        )
    return Attention(
        kind="mla",
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        value_dim=positive(config, "v_head_dim", default=nope),
        latent=positive(config, "kv_lora_rank"),
        rope_dim=rope,
        query_rank=number(config, "q_lora_rank", default=0) or None,
        indexer=indexer,
    )


def _experts(config: Config, place: int) -> Experts | None:
    """The routed experts of a layer, None where it is dense."""
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    count = number(config, *names, default=0)
    if count <= 1 or not _is_sparse(config, place):
        return None
    width = positive(config, "moe_intermediate_size", "intermediate_size")
    each = number(
        config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts", default=0
    )
    shared = number(
        config, "shared_expert_intermediate_size", "shared_intermediate_size", default=each * width
    )
    per_token = number(
        config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", default=2
    )
    llama4 = config.get("interleave_moe_layer_step") is not None
    return Experts(
        count=count,
        per_token=per_token,
        width=width,
        shared=width if llama4 else shared,
        shared_gate=config.get("shared_expert_intermediate_size") is not None,
        bias=config.get("model_type") == "gpt_oss",
    )


def _is_sparse(config: Config, place: int) -> bool:
    """Whether the layer has routed experts, in the words of the family."""
    kinds = config.get("mlp_layer_types")
    if isinstance(kinds, (list, tuple)):
        return place < len(kinds) and str(kinds[place]) == "sparse"
    dense = config.get("mlp_only_layers")
    if isinstance(dense, (list, tuple)) and place in dense:
        return False
    if place < number(config, "first_k_dense_replace", "moe_layer_start_index", default=0):
        return False
    if config.get("expert_layer_period") is not None:
        period = positive(config, "expert_layer_period")
        return place % period == number(config, "expert_layer_offset", default=0)
    step = positive(config, "decoder_sparse_step", "interleave_moe_layer_step", default=1)
    if (place + 1) % step:
        return False
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, (list, tuple)):
        return place < len(frequency) and bool(frequency[place])
    return place % positive(config, "moe_layer_freq", default=1) == 0


def _whisper(name: str, family: Family, config: Config) -> Architecture:
    """Whisper: decoder layers with self and cross attention; the encoder is a tower."""
    hidden = positive(config, "d_model")
    heads = positive(config, "decoder_attention_heads")
    width = positive(config, "decoder_ffn_dim")
    frames = positive(config, "max_source_positions", default=1500)

    def attention(kind: Literal["full", "cross"]) -> Attention:
        size = hidden // heads
        return Attention(
            kind=kind,
            heads=heads,
            kv_heads=heads,
            head_dim=size,
            value_dim=size,
            window=frames if kind == "cross" else None,
        )

    layers = []
    for _ in range(layer_count(config)):
        layers += [
            Layer(attention=attention("full"), width=width),
            Layer(attention=attention("cross")),
        ]
    block = 4 * hidden * hidden + 2 * hidden * positive(config, "encoder_ffn_dim")
    mels = positive(config, "num_mel_bins", default=80)
    encoder = (
        positive(config, "encoder_layers") * block + 3 * hidden * (mels + hidden) + frames * hidden
    )
    return Architecture(
        name=name,
        hidden=hidden,
        vocabulary=positive(config, "vocab_size"),
        layers=tuple(layers),
        tied=True,
        context=positive(config, "max_target_positions", default=448),
        dtype=dtype_of(config),
        gated=False,
        biases=frozenset(family.biases),
        norms=2,
        positions=positive(config, "max_target_positions", default=448),
        tower=encoder,
        tower_tokens=frames,
    )
