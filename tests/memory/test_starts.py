"""The plan beside what a real engine measured."""

from __future__ import annotations

import statistics

import pytest
from memory_starts import H200, STARTS, TRUTH, plan_of, plan_of_start

from infer_doctor.memory.parts import Gpu

GIB = 1 << 30
LOADED = [name for name, start in STARTS.items() if "weights_gib" in start]
SERVED = [name for name, start in STARTS.items() if "kv_cache_tokens" in start]


@pytest.mark.parametrize("name", LOADED)
def test_weights(name: str) -> None:
    true = STARTS[name]["weights_gib"]
    made = plan_of_start(name).rank.weights / GIB
    assert abs(made - true) <= max(0.01 * true, 0.1)


def test_pool() -> None:
    """The KV pool of every start, within a tenth and three tenths of a GiB."""
    errors = [
        abs(plan_of_start(name).rank.cache / GIB - STARTS[name]["available_kv_gib"])
        for name in LOADED
    ]
    assert statistics.median(errors) <= 0.1
    assert max(errors) <= 0.3


def test_tokens() -> None:
    errors = {}
    for name in SERVED:
        plan = plan_of_start(name)
        true = STARTS[name]["kv_cache_tokens"]
        room = 0.15 * GIB / plan.rank.cache
        errors[name] = abs(plan.tokens / true - 1)
        assert errors[name] <= max(0.02, room), name
        assert plan.concurrency == pytest.approx(STARTS[name]["max_concurrency"], rel=0.02)
    assert statistics.median(errors.values()) <= 0.005


def test_tokens_are_exact_for_the_pool_of_the_log() -> None:
    """Groups, padding and blocks: two figures of 0.01 GiB bound the tokens of each start."""
    for name in SERVED:
        plan = plan_of_start(name)
        pool = STARTS[name]["available_kv_gib"]
        for_each = plan.tokens / plan.rank.cache
        low, high = (for_each * (pool + step) * GIB for step in (-0.006, 0.006))
        assert low - 16 <= STARTS[name]["kv_cache_tokens"] <= high + 16, name


def test_weights_do_not_load() -> None:
    plan = plan_of_start("fail-70b-load-oom")
    assert plan.limit == "no_cache"
    assert plan.rank.cache / GIB == pytest.approx(-6.46, abs=0.1)
    assert plan.reason is not None
    assert "weights 131.5 GiB" in plan.reason and "budget of 128.6 GiB" in plan.reason


def test_longest_context_starts_for_real() -> None:
    """At most 3 % below what the engine says, never above."""
    plan = plan_of_start("fail-8b-len-kv")
    true = STARTS["fail-8b-len-kv"]["longest"]
    assert plan.limit == "context"
    assert 0.97 * true <= plan.safe_longest <= true


def test_others_hold_the_gpu() -> None:
    free = STARTS["fail-orphan-holds-gpu"]["gpu_free_gib"]
    held = H200.usable - int((free + 0.51) * GIB)
    gpu = Gpu(name=H200.name, usable=H200.usable, used=held, capability=(9, 0))
    start = STARTS["fail-orphan-holds-gpu"]
    plan = plan_of(TRUTH["configs"][start["model"]], start["options"], gpu)
    assert plan.limit == "free"
    assert plan.reason is not None
    assert "wants 128.6 GiB" in plan.reason and "7.8 GiB are, 131.5 GiB are held" in plan.reason


def test_graphs_that_were_captured() -> None:
    seen = [name for name in STARTS if "cuda_graph_gib" in STARTS[name]]
    for name in (name for name in seen if STARTS[name]["cuda_graph_gib"]):
        plan = plan_of_start(name)
        true = STARTS[name]["cuda_graph_gib"]
        assert plan.rank.graphs / GIB == pytest.approx(true, rel=0.2), name
    assert len(seen) >= 5


def test_graphs_that_the_engine_reserves() -> None:
    """The V1 runner takes an estimate out of the budget, the V2 runner of 0.26 does not."""
    for name in LOADED:
        plan = plan_of_start(name)
        true = STARTS[name].get("cuda_graph_estimate_gib", 0.0)
        assert plan.rank.graphs_inside / GIB == pytest.approx(true, abs=0.03), name


def test_graphs_stop_a_start_that_leaves_no_room() -> None:
    plan = plan_of_start("fit-8b-default", gpu_memory_utilization=0.995)
    assert plan.limit == "graphs"
    assert plan_of_start("fit-8b-eager", gpu_memory_utilization=0.995).limit is None


def test_entry_points_have_other_defaults() -> None:
    config = TRUTH["configs"]["llama-3.1-8b"]
    served = plan_of(config, {}, entry="serve")
    assert served.settings.tokens == 8192
    assert plan_of(config, {}).settings.tokens == 16384
    assert served.rank.activation < plan_of(config, {}).rank.activation
