"""The weights of a model that is known by its config only."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.memory.architecture import Architecture, Attention, Layer
from infer_doctor.memory.quantization import Scheme
from infer_doctor.memory.weights import VOCABULARY_PADDING, Rule, Weight

PACKED_STEP = 128
"""The mxfp4 kernels pad the width of the experts (quantization/mxfp4.py): gpt-oss, 2880 to 2944."""


def from_config(model: Architecture, itemsize: int, scheme: Scheme | None) -> list[Weight]:
    """One weight for each tensor, as the checkpoint of the family would have it."""
    made = _Maker(model, itemsize, scheme)
    return list(made.all())


class _Maker:
    """Writes the tensors of one model down."""

    def __init__(self, model: Architecture, itemsize: int, scheme: Scheme | None) -> None:
        self._model = model
        self._itemsize = itemsize
        self._scheme = scheme

    def all(self) -> Iterator[Weight]:
        model = self._model
        rows = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
        yield self._plain("embed_tokens", "vocabulary", rows * model.hidden, first=True)
        if model.positions:
            yield self._plain("positions", "whole", model.positions * model.hidden, first=True)
        if model.tower:
            yield self._plain("tower", "cut", model.tower, first=True)
        for place, layer in enumerate(model.layers):
            yield from self._layer(layer, place)
        yield self._plain("norm", "whole", self._norm())
        if not model.tied:
            yield self._plain("lm_head", "vocabulary", rows * model.hidden, head=True)
        if "head" in model.biases:
            yield self._plain("lm_head.bias", "vocabulary", rows, head=True)

    def _norm(self) -> int:
        return self._model.hidden * (2 if "norm" in self._model.biases else 1)

    def _plain(
        self,
        name: str,
        rule: Rule,
        numbers: int,
        layer: int | None = None,
        *,
        first: bool = False,
        head: bool = False,
    ) -> Weight:
        """A tensor that is never quantised."""
        return Weight(
            name=name if layer is None else f"layers.{layer}.{name}",
            rule=rule,
            size=numbers * self._itemsize,
            layer=layer,
            numbers=numbers,
            first=first,
            head=head,
        )

    def _matrix(
        self, name: str, rule: Rule, rows: int, columns: int, layer: int, copies: int = 1
    ) -> Weight:
        """The matrix of a linear layer; `copies` for the experts."""
        numbers = rows * columns * copies
        scheme = self._scheme
        size = numbers * self._itemsize
        if scheme is not None and scheme.takes(f"layers.{layer}.{name}", expert=rule == "expert"):
            size = scheme.bytes_of(rows, columns) * copies
        return Weight(
            name=f"layers.{layer}.{name}",
            rule=rule,
            size=size,
            layer=layer,
            linear=rule != "whole" or name.endswith("_a_proj"),
            numbers=numbers,
        )

    def _layer(self, layer: Layer, place: int) -> Iterator[Weight]:
        model = self._model
        if model.norms:
            yield self._plain("norms", "whole", model.norms * self._norm(), place)
        if layer.attention is not None:
            make = self._latent if layer.attention.kind == "mla" else self._attention
            yield from make(layer.attention, place)
        if layer.state is not None:
            yield self._plain("mixer", "cut", layer.state.parameters, place)
        if layer.width:
            yield from self._mlp("mlp", layer.width, place)
        if layer.experts is not None:
            yield from self._experts(layer, place)

    def _attention(self, attention: Attention, place: int) -> Iterator[Weight]:
        model = self._model
        hidden = model.hidden
        query = attention.heads * attention.head_dim * (2 if attention.gated else 1)
        key = attention.kv_heads * attention.head_dim
        value = attention.kv_heads * attention.value_dim
        yield self._matrix("self_attn.q_proj", "cut", query, hidden, place)
        if not attention.shared:
            yield self._matrix("self_attn.k_proj", "kv", key, hidden, place)
            yield self._matrix("self_attn.v_proj", "kv", value, hidden, place)
        yield self._matrix(
            "self_attn.o_proj", "cut", hidden, attention.heads * attention.value_dim, place
        )
        if "qkv" in model.biases:
            yield self._plain("self_attn.bias", "cut", query + key + value, place)
        if "o" in model.biases:
            yield self._plain("self_attn.o_proj.bias", "whole", hidden, place)
        if model.query_norm == "head":
            yield self._plain("self_attn.norms", "whole", 2 * attention.head_dim, place)
        if model.query_norm == "full":
            yield self._plain("self_attn.norms", "whole", query + key, place)

    def _latent(self, attention: Attention, place: int) -> Iterator[Weight]:
        """q_a and kv_a are on every rank (ReplicatedLinear, models/deepseek_v2.py:494)."""
        hidden, heads = self._model.hidden, attention.heads
        query = heads * attention.head_dim
        if attention.query_rank:
            yield self._matrix("self_attn.q_a_proj", "whole", attention.query_rank, hidden, place)
            yield self._matrix("self_attn.q_b_proj", "cut", query, attention.query_rank, place)
            yield self._plain("self_attn.q_a_norm", "whole", attention.query_rank, place)
        else:
            yield self._matrix("self_attn.q_proj", "cut", query, hidden, place)
        latent = attention.latent + attention.rope_dim
        nope = attention.head_dim - attention.rope_dim
        yield self._matrix("self_attn.kv_a_proj", "whole", latent, hidden, place)
        yield self._plain("self_attn.kv_a_norm", "whole", attention.latent, place)
        up = heads * (nope + attention.value_dim)
        yield self._matrix("self_attn.kv_b_proj", "cut", up, attention.latent, place)
        yield self._matrix("self_attn.o_proj", "cut", hidden, heads * attention.value_dim, place)
        if attention.indexer:
            number, size, _ = attention.indexer
            rank = attention.query_rank or hidden
            yield self._matrix("indexer.wq_b", "whole", number * size, rank, place)
            yield self._matrix("indexer.wk", "whole", size, hidden, place)
            yield self._plain("indexer.weights_proj", "whole", number * hidden + 2 * size, place)

    def _mlp(self, name: str, width: int, place: int) -> Iterator[Weight]:
        model = self._model
        ups = 2 if model.gated else 1
        yield self._matrix(f"{name}.up_proj", "cut", ups * width, model.hidden, place)
        yield self._matrix(f"{name}.down_proj", "cut", model.hidden, width, place)
        if "mlp" in model.biases:
            yield self._plain(f"{name}.bias", "cut", ups * width, place)
            yield self._plain(f"{name}.down_proj.bias", "whole", model.hidden, place)

    def _experts(self, layer: Layer, place: int) -> Iterator[Weight]:
        experts = layer.experts
        assert experts is not None
        hidden, count = self._model.hidden, experts.count
        ups = 2 if self._model.gated else 1
        yield self._plain("mlp.gate", "whole", count * hidden, place)
        if experts.latent:
            yield self._matrix("mlp.latent", "whole", 2 * experts.latent, hidden, place)
        wide, hidden = hidden, experts.latent or hidden
        width = experts.width
        if self._scheme is not None and self._scheme.experts_only:
            width = -(-width // PACKED_STEP) * PACKED_STEP
        yield self._matrix("mlp.experts.up", "expert", ups * width, hidden, place, count)
        yield self._matrix("mlp.experts.down", "expert", hidden, width, place, count)
        if experts.bias:
            biases = count * (ups * experts.width + hidden + 1)
            yield self._plain("mlp.experts.bias", "expert", biases, place)
        if experts.shared:
            yield from self._mlp("mlp.shared_experts", experts.shared, place)
        if experts.shared_gate:
            yield self._plain("mlp.shared_expert_gate", "whole", wide, place)
