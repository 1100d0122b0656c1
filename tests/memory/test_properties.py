"""What holds for every model and launch."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from memory_starts import H200, TRUTH, plan_of

from infer_doctor.memory.architecture import Unplannable
from infer_doctor.memory.changes import changes
from infer_doctor.memory.inputs import Inputs, Source, inputs_of
from infer_doctor.memory.parts import Gpu
from infer_doctor.memory.plan import MemoryPlan

GIB = 1 << 30
QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

heads = st.sampled_from([(8, 8), (16, 4), (32, 8), (64, 8)])


@st.composite
def configs(draw: Any) -> dict[str, Any]:
    """A model of one of four kinds: dense, sliding, mixture of experts, MLA."""
    query, key_value = draw(heads)
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": query * 64,
        "intermediate_size": draw(st.integers(8, 256)) * 64,
        "num_hidden_layers": draw(st.integers(2, 24)),
        "num_attention_heads": query,
        "num_key_value_heads": key_value,
        "head_dim": draw(st.sampled_from([64, 128])),
        "vocab_size": draw(st.integers(1000, 200_000)),
        "max_position_embeddings": draw(st.sampled_from([2048, 32768, 131072])),
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": draw(st.booleans()),
    }
    kind = draw(st.sampled_from(["dense", "sliding", "moe", "mla"]))
    if kind == "sliding":
        config |= {"architectures": ["Gemma3ForCausalLM"], "sliding_window": 512}
    if kind in ("moe", "mla"):
        config |= {
            "num_experts": draw(st.sampled_from([8, 64])),
            "num_experts_per_tok": draw(st.integers(1, 8)),
            "moe_intermediate_size": draw(st.integers(4, 32)) * 64,
        }
    if kind == "moe":
        config["architectures"] = ["Qwen3MoeForCausalLM"]
    if kind == "mla":
        config |= {
            "architectures": ["DeepseekV2ForCausalLM"],
            "kv_lora_rank": 512,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
        }
    return config


options = st.fixed_dictionaries(
    {},
    optional={
        "enforce_eager": st.booleans(),
        "max_num_batched_tokens": st.sampled_from([512, 2048, 16384]),
        "max_num_seqs": st.sampled_from([1, 64, 1024]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "gpu_memory_utilization": st.sampled_from([0.1, 0.5, 0.9, 0.99]),
        "quantization": st.sampled_from([None, "fp8"]),
    },
)


@QUICK
@given(configs(), options, st.sampled_from(["LLM", "serve"]))
def test_bytes_add_up_exactly(config: dict[str, Any], given: dict[str, Any], entry: str) -> None:
    plan = plan_of(config, given, entry=entry)
    for rank in plan.ranks:
        parts = (
            rank.weights, rank.activation, rank.non_torch, rank.graphs_inside, rank.cache
        )  # fmt: skip
        assert sum(parts) == plan.budget
        assert all(isinstance(part, int) for part in parts)
    assert plan.blocks * plan.cache.block_bytes <= max(plan.rank.cache, 0)
    assert (plan.blocks + 1) * plan.cache.block_bytes > plan.rank.cache


@QUICK
@given(configs(), options, st.sampled_from([(1, 2), (2, 4), (4, 8), (1, 8)]))
def test_more_gpus_never_need_more_memory_a_gpu(
    config: dict[str, Any], given: dict[str, Any], sizes: tuple[int, int]
) -> None:
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        few, many = sizes
        assume(name == "tensor_parallel_size" or many <= config["num_hidden_layers"])
        less = plan_of(config, {**given, name: few})
        more = plan_of(config, {**given, name: many})
        assert _worst(more, "weights") <= _worst(less, "weights")
        assert _worst(more, "activation") <= _worst(less, "activation")
        assert more.cache.block_bytes <= less.cache.block_bytes


def _worst(plan: MemoryPlan, part: str) -> int:
    return max(getattr(rank, part) for rank in plan.ranks)


@QUICK
@given(configs(), options, st.integers(16, 100_000), st.integers(0, 100_000))
def test_longer_context_never_gives_more_concurrency(
    config: dict[str, Any], given: dict[str, Any], length: int, more: int
) -> None:
    given = {"max_num_batched_tokens": 2048, **given}
    short = plan_of(config, {**given, "max_model_len": length})
    long = plan_of(config, {**given, "max_model_len": length + more})
    assert long.concurrency <= short.concurrency


@QUICK
@given(configs(), options, st.floats(4, 200))
def test_what_is_suggested_fits(config: dict[str, Any], given: dict[str, Any], gib: float) -> None:
    """Each change that is said to fit does so when it is made, with a margin in the context."""
    gpu = Gpu(name="GPU", usable=int(gib * GIB), capability=(9, 0))
    inputs = inputs_of(
        Source(config=config, quantization=None), given, version="0.26.0", entry="serve"
    )
    plan = inputs.plan(gpu)
    assert plan.safe_longest <= plan.longest
    for change in changes(inputs, gpu, plan, 8):
        again = inputs.plan(gpu, **change.options)
        assert (again.fits, again.tokens) == (change.plan.fits, change.plan.tokens)
        length = change.options.get("max_model_len")
        assert length is None or length <= again.longest


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)
SAMPLES = [*TRUTH["configs"].values()]


def _plan(config: Any) -> MemoryPlan:
    inputs: Inputs = inputs_of(
        Source(config=config, quantization=None), {}, version="0.26.0", entry="serve"
    )
    return inputs.plan(H200)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(SAMPLES), st.data())
def test_a_broken_config_is_a_clear_line(config: dict[str, Any], data: Any) -> None:
    """Whatever stands in a field, there is a plan or one sentence; never another exception."""
    name = data.draw(st.sampled_from(sorted(config)))
    broken = {**config, name: data.draw(json_values)}
    with contextlib.suppress(Unplannable):
        _plan(broken)


@pytest.mark.parametrize(
    "name",
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "architectures"],
)
def test_a_missing_field_is_named(name: str) -> None:
    config = {key: value for key, value in TRUTH["configs"]["llama-3.1-8b"].items() if key != name}
    with pytest.raises(Unplannable, match=name.rstrip("s")):
        _plan(config)


def test_unknown_architecture_is_unknown() -> None:
    config = {**TRUTH["configs"]["llama-3.1-8b"], "architectures": ["NopeForCausalLM"]}
    with pytest.raises(Unplannable, match="no memory model for the architecture NopeForCausalLM"):
        _plan(config)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tensor_parallel_size": 3}, "32 attention heads cannot be divided by tensor parallel"),
        ({"pipeline_parallel_size": 33}, "32 layers cannot be divided into 33 stages"),
        ({"gpu_memory_utilization": 1.5}, "not within 0 and 1"),
        ({"max_model_len": -7}, "max_model_len is -7"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"kv_cache_dtype": "int3"}, "no memory model for --kv-cache-dtype int3"),
    ],
)
def test_options_that_cannot_be(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Unplannable, match=words):
        plan_of(TRUTH["configs"]["llama-3.1-8b"], given)
