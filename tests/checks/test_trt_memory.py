"""Launches of TensorRT-LLM that leave no room for their KV cache."""

from __future__ import annotations

from typing import Any

from trtllm_files import facts

from infer_doctor.checks.trt_memory import length_reduced, memory_full
from infer_doctor.facts.trt_plan import TrtPlanned
from infer_doctor.testing import contract, examine
from infer_doctor.trtllm.memory import Demand, plan_of

GIB = 1 << 30


def demand(**more: Any) -> Demand:
    found: dict[str, Any] = {
        "backend": "pytorch",
        "version": "1.2.1",
        "total": 80 * GIB,
        "used": 0,
        "weights": 16 * GIB,
        "activation": GIB,
        "buffers": 0,
        "ranks": 1,
        "per_token": 131072,
        "fraction": 0.9,
        "max_tokens": None,
        "length": 8192,
        "most": 131072,
        "block": 32,
        "basis": "safetensors headers",
    }
    return Demand(**{**found, **more})


def planned(**more: Any) -> TrtPlanned:
    return TrtPlanned(plan=plan_of(demand(**more), "H100"), gpus=1, source="nvml")


def test_memory_full() -> None:
    launch, _, options = facts("trtllm-serve m --tp_size 1", "1.2.1")
    contract(
        memory_full,
        fires=[planned(weights=140 * GIB), launch, options],
        passes=[planned(), launch, options],
    )
    (finding,) = examine(memory_full, planned(weights=140 * GIB), launch, options).findings
    assert (finding.category, finding.confidence) == ("oom_load", "certain")
    assert finding.fixes[0].title == "Start with --tp_size 2"
    (finding,) = examine(memory_full, planned(weights=79 * GIB), launch, options).findings
    assert finding.category == "trt_kv_memory"


def test_length_reduced() -> None:
    launch, _, options = facts("trtllm-serve m --max_seq_len 131072", "1.2.1")
    short = planned(weights=70 * GIB, length=131072)
    contract(length_reduced, fires=[short, launch, options], passes=[planned(), launch, options])
    (finding,) = examine(length_reduced, short, launch, options).findings
    assert finding.severity == "warning"
    fast = planned(weights=70 * GIB, length=131072, fail_fast=True)
    (finding,) = examine(length_reduced, fast, launch, options).findings
    assert finding.severity == "error"
    assert planned(max_tokens=1000).plan.tokens == 1024
