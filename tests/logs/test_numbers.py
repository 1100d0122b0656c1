"""Fixes with numbers: the value that is given passes the engine's own check."""

from __future__ import annotations

import math
import re

import pytest

from infer_doctor.facts.log import Cause, EngineLog
from infer_doctor.logs.read import read_texts

BLOCK = 16


def cause_of(*lines: str) -> Cause:
    log = read_texts(list(lines))[EngineLog]
    assert isinstance(log, EngineLog)
    assert log.cause is not None
    return log.cause


def flag(cause: Cause, name: str) -> float:
    """The value that the fixes give for an option."""
    for fix in cause.fixes:
        if match := re.search(rf"{name} ([\d.]+)", fix.title):
            return float(match[1])
    raise AssertionError(f"no {name} in {[fix.title for fix in cause.fixes]}")


@pytest.mark.parametrize(
    ("free", "total", "share"),
    [
        (12.1, 79.15, 0.9),
        (70.2, 79.15, 0.9),
        (7.76, 139.8, 0.92),
        (20.01, 23.64, 0.9),
        (43.99, 44.53, 0.99),
    ],
)
def test_share_that_fits_what_is_free(free: float, total: float, share: float) -> None:
    """v1/worker/utils.py: ceil(total x share) must be at most what is free; GiB are rounded to 2."""
    want = round(total * share, 2)
    cause = cause_of(
        f"ValueError: Free memory on device cuda:0 ({free}/{total} GiB) on startup is less than desired "
        f"GPU memory utilization ({share}, {want} GiB)."
    )
    value = flag(cause, "--gpu-memory-utilization")
    assert math.ceil((total + 0.005) * value * (1 << 30)) <= free * (1 << 30)
    assert (value + 0.02) * total > free
    assert f"{total - free:.1f} GiB" in cause.message


@pytest.mark.parametrize(("free", "total"), [(7.38, 8.96), (30.0, 62.8)])
def test_share_of_main_memory(free: float, total: float) -> None:
    cause = cause_of(
        f"ValueError: Available memory on node 0 ({free}/{total} GiB) on startup is less than desired CPU "
        f"memory utilization (0.99, {total * 0.99:.2f} GiB)."
    )
    assert flag(cause, "--gpu-memory-utilization") * total <= free


@pytest.mark.parametrize(
    ("length", "need", "have", "fits"),
    [
        (131072, 16.0, 6.82, 55840),
        (40960, 5.62, 3.1, None),
        (1048576, 24.0, 9.97, None),
        (8192, 1.0, 0.99, None),
    ],
)
def test_context_that_fits(length: int, need: float, have: float, fits: int | None) -> None:
    """v1/core/kv_cache_utils.py: the pages of one request of this length must fit the pool."""
    estimate = (
        f" Based on the available memory, the estimated maximum model length is {fits}."
        if fits
        else ""
    )
    cause = cause_of(
        f"ValueError: To serve at least one request with the model's max seq len ({length}), ({need} GiB "
        f"KV cache is needed, which is larger than the available KV cache memory ({have} GiB).{estimate}"
    )
    value = flag(cause, "--max-model-len")
    if fits:
        assert value == fits
        return
    per_token = (need + 0.005) / length
    assert math.ceil(value / BLOCK) * BLOCK * per_token <= have
    assert value >= 0.95 * have / need * length - BLOCK


@pytest.mark.parametrize(("length", "fits"), [(56000, 43328), (4096, 3664), (163840, 13360)])
def test_context_of_the_old_engine(length: int, fits: int) -> None:
    cause = cause_of(
        f"ValueError: The model's max seq len ({length}) is larger than the maximum number of tokens that "
        f"can be stored in KV cache ({fits})."
    )
    assert flag(cause, "--max-model-len") <= fits


@pytest.mark.parametrize(
    ("heads", "tensor"), [(28, 8), (52, 3), (12, 8), (40, 6), (64, 3), (14, 4), (9, 2)]
)
def test_parallel_size_that_divides(heads: int, tensor: int) -> None:
    cause = cause_of(
        f"ValueError: Total number of attention heads ({heads}) must be divisible by tensor parallel size "
        f"({tensor})."
    )
    value = int(flag(cause, "--tensor-parallel-size"))
    assert heads % value == 0
    assert value <= tensor
    # The KV heads are a power of two: a size between two of them would be refused for those.
    assert value & (value - 1) == 0 or heads % 2


def test_what_is_left_of_the_gpus_goes_to_the_pipeline() -> None:
    cause = cause_of(
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)."
    )
    assert cause.fixes[1].title.endswith("--tensor-parallel-size 4 --pipeline-parallel-size 2")


@pytest.mark.parametrize(("world", "gpus"), [(2, 1), (8, 3), (4, 2)])
def test_parallel_size_for_the_gpus_that_are_there(world: int, gpus: int) -> None:
    cause = cause_of(
        f"Value error, World size ({world}) is larger than the number of available GPUs ({gpus}) in this node."
    )
    assert flag(cause, "--tensor-parallel-size") <= gpus


def test_size_that_cuts_no_quantisation_group() -> None:
    cause = cause_of(
        "INFO 11-30 10:00:00 [api_utils.py:273] non-default args: {'tensor_parallel_size': 8}",
        "ValueError: Weight input_size_per_partition = 3696 is not divisible by min_thread_k = 128. Consider "
        "reducing tensor_parallel_size or running with --quantization gptq.",
    )
    value = int(flag(cause, "--tensor-parallel-size"))
    assert 3696 * 8 % value == 0
    assert 3696 * 8 // value % 128 == 0


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        (
            "ValueError: max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256).",
            "--max-num-seqs",
            128,
        ),
        (
            "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (8192).",
            "--max-num-batched-tokens",
            8192,
        ),
        (
            "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len "
            "(max_position_embeddings=32768.0 or model_max_length=None in model's config.json).",
            "--max-model-len",
            32768,
        ),
        (
            "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (311).",
            "--max-num-seqs",
            311,
        ),
        ("ValueError: LoRA rank 48 is greater than max_lora_rank 16.", "--max-lora-rank", 64),
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
            "--port",
            8001,
        ),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
            "--max-num-seqs",
            256,
        ),
    ],
)
def test_value_of_a_limit(line: str, option: str, value: int) -> None:
    assert flag(cause_of(line), option) == value


def test_dtype_that_the_method_takes() -> None:
    cause = cause_of(
        "ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: "
        "[torch.float16]"
    )
    assert cause.fixes[0].title == "Start with --dtype half"


def test_driver_code_is_read_out() -> None:
    cause = cause_of(
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update"
    )
    assert "serves CUDA 12.2 at most" in cause.message


def test_shared_memory_for_all_ranks() -> None:
    cause = cause_of(
        "INFO 11-30 10:00:00 [api_utils.py:273] non-default args: {'tensor_parallel_size': 8}",
        "OSError: Insufficient space in /dev/shm for broadcast ring: 240 MiB required, 63 MiB free",
    )
    assert "--shm-size=3g" in cause.fixes[0].title
    assert 3 * 1024 >= 240 * 9


def test_ranks_of_a_tensorrt_engine() -> None:
    cause = cause_of("AssertionError: Engine world size (4 * 2) != Runtime world size (1)")
    assert "mpirun -n 8" in cause.fixes[0].title


def test_memory_of_tensorrt_wants_opposite_changes() -> None:
    small = cause_of(
        "maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion"
    )
    full = cause_of("The following component could not be created: KV cache")
    assert small.fixes[0].title.startswith("Raise")
    assert full.fixes[0].title.startswith("Lower")


def test_flag_that_was_renamed_keeps_its_value() -> None:
    cause = cause_of(
        "vllm: error: unrecognized arguments: --guided-decoding-backend xgrammar --swap-space 16"
    )
    titles = [fix.title for fix in cause.fixes]
    assert (
        titles[0]
        == "Write --structured-outputs-config.backend xgrammar instead of --guided-decoding-backend"
    )
    assert titles[1] == "Remove --swap-space"


def test_a_process_number_in_a_container_may_be_our_own() -> None:
    """Without "this process has" torch could not tell its own process from others."""
    own = cause_of(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.71 GiB. GPU 0 has a total capacity "
        "of 79.14 GiB of which 1.00 GiB is free. Process 3514 has 78.10 GiB memory in use."
    )
    assert own.category == "oom_load"
    other = cause_of(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.71 GiB. GPU 0 has a total capacity "
        "of 79.14 GiB of which 1.00 GiB is free. Process 3514 has 50.10 GiB memory in use. Including "
        "non-PyTorch memory, this process has 28.00 GiB memory in use."
    )
    assert other.category == "oom_startup_free_mem"
    assert other.numbers["pid"] == "3514"


@pytest.mark.parametrize(
    ("version", "option"), [("0.9.2", "--enforce-eager"), ("0.11.1", "--cudagraph-capture-sizes")]
)
def test_fewer_graphs_by_a_flag_that_the_version_has(version: str, option: str) -> None:
    log = read_texts(
        [
            f"(EngineCore pid=7) INFO 11-30 10:00:09 [core.py:116] Initializing a V1 LLM engine (v{version}) "
            "with config: model='/models/m', tensor_parallel_size=1",
            '(EngineCore pid=7) ERROR 11-30 10:00:19 [core.py:1]   File "/v/w.py", line 9, in capture_model',
            "(EngineCore pid=7) ERROR 11-30 10:00:19 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. "
            "Tried to allocate 20.00 MiB.",
        ]
    )[EngineLog]
    assert isinstance(log, EngineLog) and log.cause is not None
    assert option in log.cause.fixes[1].title


def test_an_image_larger_than_the_encoder_cache() -> None:
    line = (
        "ValueError: The decoder prompt contains a(n) image item with length 6042, which exceeds the "
        "pre-allocated encoder cache size 4800. Please reduce the input size"
    )
    log = read_texts([line])[EngineLog]
    assert isinstance(log, EngineLog)
    # vllm/config/scheduler.py 0.32: encoder_cache_size = max_num_batched_tokens
    assert [fix.title for fix in log.requests[0].fixes] == [
        "Start with --max-num-batched-tokens 6042"
    ]
