"""Bytes of the weights on each rank, out of safetensors headers or of the architecture.

How each tensor is cut: layers/linear.py, layers/vocab_parallel_embedding.py and the model code of
vLLM 0.26.0 and 0.32.0. Only the number of bytes counts, so one rule for each kind is enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.memory.architecture import Architecture, Unplannable
from infer_doctor.memory.layout import Layout

Rule = Literal["cut", "kv", "qkv", "vocabulary", "expert", "whole"]

VOCABULARY_PADDING = 64
"""DEFAULT_VOCAB_PADDING_SIZE, vocab_parallel_embedding.py:36."""

CAST = {"F64", "F32", "F16", "BF16", "F8_E5M2"} - {"F8_E5M2"}
"""Floating tensors that are cast to the dtype of the model."""

QUANTISED = re.compile(
    r"\.(?:qweight|qzeros|scales|g_idx|weight_packed|weight_scale(?:_2|_inv)?|weight_shape|"
    r"weight_zero_point|weight_g_idx|input_scale|[a-z_]*_blocks|[a-z_]*_scales|absmax|quant_map|"
    r"weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map|quant_state\S*)|e_score_correction_bias)$"
)
"""What keeps its own dtype: the parts of quantised layers and the bias of a router."""

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
EXPERT = re.compile(r"\.(?:experts|switch_mlp)\.|\.block_sparse_moe\.(?:input|output)_linear\.")
SHARED_EXPERT = re.compile(r"\.shared_experts?\.|\.shared_mlp\.")
EMBEDDING = re.compile(
    r"(?:embed_tokens|word_embeddings|wte|tok_embeddings|embed_in|embedding|embeddings)\.weight$"
)
HEAD = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_layer)\.|^output\.weight$")
KEY_VALUE = re.compile(r"\.(?:k_proj|v_proj|key|value)\.")
FUSED = re.compile(r"\.(?:qkv_proj|query_key_value|c_attn|W_pack|wqkv|Wqkv|qkv)\.")
CUT = re.compile(
    r"\.(?:q_proj|o_proj|gate_proj|up_proj|down_proj|gate_up_proj|q_b_proj|kv_b_proj|w1|w2|w3|fc1|fc2|"
    r"c_fc|c_proj|dense_h_to_4h|dense_4h_to_h|attention\.dense|self_attention\.dense|dense|out_proj|"
    r"in_proj|in_proj_qkvz|in_proj_ba|in_proj_qkv|in_proj_z|in_proj_a|in_proj_b|x_proj|dt_proj|conv1d|"
    r"A_log|D|dt_bias|wo|fc_in|fc_out|linear_fc1|linear_fc2|linear_1|linear_2|merger\.mlp|input_linear|output_linear|feed_forward\.w[123]|proj)(?:\.|$)"
)
TOWER = re.compile(
    r"^(?:model\.)?(?:visual|vision_tower|vision_model|vision_encoder|multi_modal_projector|"
    r"audio_tower|encoder|patch_merger)\."
)
DRAFT = re.compile(r"(?:^|\.)(?:mtp|nextn|eagle)\.")
STATE_TENSOR = re.compile(r"\.(?:mamba|mixer|linear_attn|conv)\.")


MERGED = (
    (re.compile(r"\.(?:q_proj|k_proj|v_proj)\."), ".qkv."),
    (re.compile(r"\.(?:gate_proj|up_proj|w1|w3)\."), ".gate_up."),
    (re.compile(r"\.experts\.(?:\d+|\*)\."), ".experts."),
)
"""Tensors that the engine holds as one."""


def merged_name(name: str) -> str:
    """The name of the engine's tensor that this one is a part of."""
    name = f"{name}."
    for pattern, whole in MERGED:
        name = pattern.sub(whole, name)
    return name


@frozen
class Weight:
    """A tensor as the engine holds it. `linear`: online quantisation changes it."""

    name: str
    rule: Rule
    size: int
    layer: int | None = None
    linear: bool = False
    numbers: int = 0
    head: bool = False
    first: bool = False
    kv_share: float = 0.0
    """Of a fused qkv: the part of the bytes that keys and values have."""


def from_headers(
    tensors: Iterable[tuple[str, str, Sequence[int], int, int]],
    architecture: Architecture,
    itemsize: int,
) -> list[Weight]:
    """(name, dtype, shape, size, count) of all headers as weights; MTP layers stay out as in the engine."""
    found = []
    count = len(architecture.layers)
    share = _kv_share(architecture)
    for name, dtype, shape, size, copies in tensors:
        if size < 0 or any(side < 0 for side in shape):
            raise Unplannable(f"the header gives {name} a negative size")
        match = LAYER.search(name)
        layer = int(match[1]) if match and not TOWER.match(name) else None
        if DRAFT.search(name) or (layer is not None and layer >= count):
            continue
        if architecture.tied and HEAD.search(name):
            continue
        if name.endswith((".rotary_emb.inv_freq", ".attn.bias", ".masked_bias")):
            continue
        numbers = copies
        for side in shape:
            numbers *= side
        if dtype in CAST and not QUANTISED.search(name):
            size = numbers * itemsize
        rule = rule_of(name)
        found.append(
            Weight(
                name=name,
                rule=rule,
                size=_padded(size, shape, architecture) if rule == "vocabulary" else size,
                layer=layer,
                linear=rule in ("cut", "kv", "qkv", "expert")
                and len(shape) >= 2
                and dtype in CAST
                and not STATE_TENSOR.search(name),
                numbers=numbers,
                head=bool(HEAD.search(name)),
                first=layer is None and not HEAD.search(name) and not _is_last(name),
                kv_share=share if rule == "qkv" else 0.0,
            )
        )
    return found


def rule_of(name: str) -> Rule:
    """How a tensor is cut, by its name."""
    if HEAD.search(name) or (EMBEDDING.search(name) and not TOWER.match(name)):
        return "vocabulary"
    if EXPERT.search(name) and not SHARED_EXPERT.search(name):
        return "expert"
    if name.endswith("e_score_correction_bias"):
        return "whole"
    if FUSED.search(name):
        return "cut" if TOWER.match(name) else "qkv"
    if KEY_VALUE.search(name):
        return "cut" if TOWER.match(name) else "kv"
    return "cut" if CUT.search(name) else "whole"


def _is_last(name: str) -> bool:
    """The norm after the last layer, in the words of the families."""
    return bool(re.search(r"(?:^|\.)(?:norm|final_layernorm|ln_f|final_layer_norm|norm_f)\.", name))


def _padded(size: int, shape: Sequence[int], architecture: Architecture) -> int:
    """The bytes of an embedding whose rows are padded."""
    rows = shape[0] if shape else 0
    return size if not rows else size // rows * _up(rows, VOCABULARY_PADDING)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _kv_share(architecture: Architecture) -> float:
    """How much of a fused query-key-value tensor belongs to keys and values."""
    for layer in architecture.layers:
        if attention := layer.attention:
            both = attention.kv_heads * (attention.head_dim + attention.value_dim)
            return both / (both + attention.heads * attention.head_dim)
    return 0.0


def rank_bytes(
    weights: Iterable[Weight], layout: Layout, stage: int
) -> Iterator[tuple[Weight, int]]:
    """Each weight that this pipeline stage holds, with its bytes on one rank of it."""
    last = layout.stages - 1
    first_layer, end = layout.layers_of(stage)
    for weight in weights:
        if weight.layer is not None:
            if not first_layer <= weight.layer < end:
                continue
        elif weight.head or not weight.first:
            if stage != last:
                continue
        elif stage != 0 and not (layout.tied and stage == last and weight.rule == "vocabulary"):
            continue
        yield weight, cut(weight, layout)


def cut(weight: Weight, layout: Layout) -> int:
    """The bytes of a weight on one rank."""
    tensor = layout.tensor
    key_value = min(tensor, layout.kv_heads)
    if weight.rule in ("cut", "vocabulary"):
        return -(-weight.size // tensor)
    if weight.rule == "kv":
        return -(-weight.size // key_value)
    if weight.rule == "qkv":
        shared = int(weight.size * weight.kv_share)
        return -(-(weight.size - shared) // tensor) + -(-shared // key_value)
    if weight.rule == "expert":
        return -(-weight.size // (tensor * layout.data))
    return weight.size
