"""Environment variables of TensorRT-LLM that are switches, and how their value is read.

Source: cpp/tensorrt_llm/common/envUtils.cpp (02734d9e, 2026; getBoolEnv is the same in 0.14) and
tensorrt_llm/commands/serve.py of 1.2. Read 2026-11-30.
"""

from __future__ import annotations

ONLY_ONE = frozenset(
    [
        "FORCE_ALL_REDUCE_DETERMINISTIC",
        "FORCE_ATTENTION_KERNEL_DETERMINISTIC",
        "FORCE_DETERMINISTIC",
        "FORCE_MOE_KERNEL_DETERMINISTIC",
        "TRTLLM_DISABLE_CHUNKED_ATTENTION_IN_GEN_PHASE",
        "TRTLLM_DISABLE_KV_CACHE_TRANSFER_OVERLAP",
        "TRTLLM_DISAGG_BENCHMARK_GEN_ONLY",
        "TRTLLM_DISAGG_LAYERWISE",
        "TRTLLM_ENABLE_KVCACHE_RECEIVE_PARALLEL",
        "TRTLLM_ENABLE_MMHA_MULTI_BLOCK_DEBUG",
        "TRTLLM_EPLB_FORCE_GDRCOPY",
        "TRTLLM_GEN_ENABLE_TILE_SIZE_KV64",
        "TRTLLM_KVCACHE_POOL_USE_FABRIC_MEMORY",
        "TRTLLM_KVCACHE_TRANSFER_ALL_BLOCKS_FOR_WINDOW",
        "TRTLLM_KVCACHE_TRANSFER_USE_ASYNC_BUFFER",
        "TRTLLM_KVCACHE_TRANSFER_USE_SYNC_BUFFER",
        "TRTLLM_MOE_DISABLE_FINALIZE_FUSION",
        "TRTLLM_NIXL_ENABLE_COALESCE",
        "TRTLLM_PRINT_SKIP_SOFTMAX_STAT",
        "TRTLLM_REQUEST_KV_CACHE_CONCURRENT",
        "TRTLLM_SERVER_DISABLE_GC",
        "TRTLLM_TRY_ZCOPY_FOR_KVCACHE_TRANSFER",
        "TRTLLM_USE_MOONCAKE_KVCACHE",
        "TRTLLM_USE_MPI_KVCACHE",
        "TRTLLM_USE_NIXL_KVCACHE",
        "TRTLLM_USE_UCX_KVCACHE",
    ]
)
"""On when the value is exactly "1": "true", "yes", "on" and "1 " are off."""

ONE_OR_ZERO = frozenset({"TRTLLM_ENABLE_PDL"})
""""1" is on, "0" is off, all else leaves the default."""

WHOLE = frozenset(
    [
        "TRTLLM_ENABLE_XQA_JIT",
        "TRTLLM_FORCE_XQA",
        "TRTLLM_XQA_BLOCKS_PER_SEQUENCE",
        "TRTLLM_KVCACHE_RECV_BUFFER_COUNT",
        "TRTLLM_KVCACHE_SEND_MAX_CONCURRENCY_NUM",
        "TRTLLM_NIXL_PORT",
        "FORCE_ALLREDUCE_KERNEL_WORKSPACE_SIZE",
    ]
)
"""Read with std::stoi or std::stoull: a word ends the process with std::invalid_argument."""

TRUE_WORDS = ("true", "yes", "on", "y", "t", "enable", "enabled")
"""Values that mean "on" to whoever wrote them."""
