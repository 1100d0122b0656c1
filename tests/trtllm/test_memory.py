"""The KV cache formula against the numbers of public logs and pages; the plan of both back ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from doctor_process import Run
from model_folder import folder
from trtllm_files import engine

from infer_doctor.trtllm.memory import (
    Demand,
    Layers,
    allocated,
    available,
    plan_of,
    tokens_in,
)

GIB = 1 << 30
MIB = 1 << 20

LOGS = [
    # layers, KV heads, head size, bytes, bytes a token, tokens in whole blocks, block, GiB
    (36, 8, 64, 2, 73728, 86720, 32, 5.95),  # gpt-oss-120b, 1.1.0rc3, DGX Spark
    (30, 3, 64, 2, 23040, 422048, 32, 9.06),  # SmolLM2-135M: 13,189 blocks
    (28, 8, 128, 2, 114688, 643136, 32, 68.69),  # Qwen3-Reranker-0.6B, H100
    (32, 8, 128, 2, 131072, 12800, 32, 1.56),  # an engine of 1.2.1
    (32, 16, 128, 2, 262144, 259840, 64, 63.44),  # reference/memory.md of 0.14: 4,060 blocks
]


@pytest.mark.parametrize(
    ("layers", "heads", "size", "item", "per_token", "tokens", "block", "shown"), LOGS
)
def test_tokens_and_bytes_of_the_logs(
    layers: int,
    heads: int,
    size: int,
    item: int,
    per_token: int,
    tokens: int,
    block: int,
    shown: float,
) -> None:
    found = Layers(layers=layers, kv_heads=heads, head_dim=size).bytes_per_token(item)
    assert found == per_token
    assert round(tokens * found / GIB, 2) == shown
    assert allocated(tokens, block) == tokens
    assert allocated(tokens - block + 1, block) == tokens
    assert tokens_in(tokens * found, found) == tokens


def test_the_dry_run_of_gpt_oss() -> None:
    """total 119.70, peak 113.65, temporary pool 0.56, fraction 0.9: 5.95 GiB, 86,711 tokens."""
    assert round(available(119.70, 113.65, 0.56, 0.9), 2) == 5.95
    assert allocated(86711, 32) == 86720
    exact = 86711 * 73728
    assert round(exact / GIB, 2) == 5.95
    assert tokens_in(exact, 73728) == 86711


def test_the_page_of_the_engine() -> None:
    """79.10 GiB, 70.48 free after the engine and its buffers; 0.9 of them are 63.43."""
    assert round(0.9 * 70.48, 2) == 63.43
    assert 4060 * 64 == 259840
    demand = Demand(
        backend="tensorrt",
        version="0.14.0",
        total=int(79.10 * GIB),
        used=0,
        weights=6695 * MIB,
        activation=int(1134.01 * MIB),
        buffers=int(43.29 * MIB + 180.30 * MIB),
        ranks=1,
        per_token=262144,
        fraction=0.9,
        max_tokens=None,
        length=4096,
        most=4096,
        block=64,
    )
    plan = plan_of(demand, "GPU")
    assert plan.cache == pytest.approx(63.44 * GIB, rel=0.001)
    assert plan.tokens == pytest.approx(259840, rel=0.001)


def test_a_server_with_little_room() -> None:
    """1.42 GiB free, fraction 0.9, 262,144 bytes a token: 82 blocks of 64, 1.28 GiB (a log of 0.1x)."""
    tokens = allocated(tokens_in(available(1.42 * GIB, 0, 0, 0.9), 262144), 64)
    assert (tokens, round(tokens * 262144 / GIB, 2)) == (5248, 1.28)


def test_heads_are_replicated_and_mla_is_not_cut() -> None:
    few = Layers(layers=32, kv_heads=2, head_dim=128)
    assert few.bytes_per_token(2, tensor=8) == 2 * 32 * 1 * 128 * 2
    latent = Layers(layers=61, kv_heads=128, head_dim=192, latent=576)
    assert latent.bytes_per_token(1, tensor=8) == 61 * 576
    assert (
        Layers(layers=61, kv_heads=8, head_dim=128).bytes_per_token(2, 1, 4) == 2 * 16 * 8 * 128 * 2
    )


def test_plan_of_an_engine(tmp_path: Path) -> None:
    path = engine(tmp_path / "e", version="1.2.1", sizes=[14 * GIB])
    run = Run(tmp_path)
    report = json.loads(run("plan", "--format", "json", "--gpu", "H100-80GB:1", str(path)).stdout)
    plan = report["plan"]
    assert plan["engine"] == "tensorrt-llm"
    assert plan["weights_bytes"] == 14 * GIB
    assert plan["kv_bytes_per_token"] == 131072
    assert plan["kv_cache_tokens"] == pytest.approx(0.9 * 63 * GIB / 131072, rel=0.05)
    assert plan["fits"]
    small = run("plan", "--format", "json", "--gpu", "T4:1", str(path))
    assert json.loads(small.stdout)["plan"]["limit"] in ("load", "no_cache")
    assert small.returncode == 1


def test_plan_of_a_model(tmp_path: Path) -> None:
    path = folder(tmp_path / "m")
    run = Run(tmp_path)
    words = ("plan", "--format", "json", "--gpu", "H100-80GB:1", "--engine", "tensorrt-llm==1.2.1")
    command = ("trtllm-serve", str(path), "--max_num_tokens", "1024", "--max_seq_len", "2048")
    plan = json.loads(run(*words, "--", *command).stdout)["plan"]
    assert plan["engine_version"] == "1.2.1"
    assert plan["kv_bytes_per_token"] == 2 * 2 * 2 * 64 * 2
    assert plan["max_model_len"] == 2048
    options = tmp_path / "o.yaml"
    options.write_text("kv_cache_config: {dtype: fp8, max_tokens: 4096}\n")
    plan = json.loads(run(*words, "--", *command, "--config", str(options)).stdout)["plan"]
    assert (plan["kv_bytes_per_token"], plan["kv_cache_tokens"]) == (512, 4096)
