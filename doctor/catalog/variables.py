"""Environment variables that are for debugging and make an engine slow when they are left on.

Sources, read 2026-11-30:
- CUDA_LAUNCH_BLOCKING: CUDA programming guide, "Environment variables"
- PYTORCH_NO_CUDA_MEMORY_CACHING: https://docs.pytorch.org/docs/stable/cuda_environment_variables.html
- CUDA_FORCE_PTX_JIT, CUDA_CACHE_DISABLE: the same
- VLLM_TRACE_FUNCTION, VLLM_LOGGING_LEVEL: vLLM envs.py and docs/usage/troubleshooting
- VLLM_COMPUTE_NANS_IN_LOGITS ("may add compute overhead"), VLLM_DISABLE_COMPILE_CACHE,
  VLLM_DEBUG_LOG_API_SERVER_RESPONSE, VLLM_..._SCOPES_FOR_PROFILING ("disable to avoid overheads"):
  envs.py of 0.32
- NCCL_DEBUG: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html; NCCL_P2P_DISABLE,
  NCCL_SHM_DISABLE, NCCL_IB_DISABLE: the same page, "should not be used in production nor retained in
  scripts, or only as workaround"
- TORCH_DISTRIBUTED_DEBUG: https://docs.pytorch.org/docs/stable/distributed.html, "DETAIL ... should
  only be used when debugging issues"; TORCHDYNAMO_DISABLE: torch/_dynamo/config.py
- TLLM_LOG_LEVEL: tensorrt_llm/logger.py
- PYTHONASYNCIODEBUG, PYTHONDEVMODE: https://docs.python.org/3/using/cmdline.html
"""

from __future__ import annotations

from dataclasses import dataclass

from infer_doctor.model import Severity

ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Slow:
    """Values (lower case) that switch it on, and what it does."""

    values: frozenset[str]
    effect: str
    severity: Severity = "warning"
    """info: many set it for good reasons."""


SLOW = {
    "CUDA_LAUNCH_BLOCKING": Slow(ON, "the host waits for the end of every kernel"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Slow(ON, "every tensor is a cudaMalloc"),
    "CUDA_FORCE_PTX_JIT": Slow(
        ON, "the driver compiles every kernel from PTX at the start, and those without PTX fail"
    ),
    "CUDA_CACHE_DISABLE": Slow(ON, "what the driver compiles is compiled anew at every start"),
    "VLLM_TRACE_FUNCTION": Slow(ON, "every Python call is written to a log"),
    "VLLM_LOGGING_LEVEL": Slow(frozenset({"debug"}), "every step writes to the log"),
    "VLLM_COMPUTE_NANS_IN_LOGITS": Slow(ON, "every step looks for NaN in its logits"),
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": Slow(
        frozenset({"true"}), "every answer is written to the log"
    ),
    "VLLM_DISABLE_COMPILE_CACHE": Slow(ON, "the model is compiled anew at every start"),
    "VLLM_NVTX_SCOPES_FOR_PROFILING": Slow(ON, "every step marks its parts for a profiler"),
    "VLLM_CUSTOM_SCOPES_FOR_PROFILING": Slow(ON, "every step marks its parts for a profiler"),
    "TLLM_LOG_LEVEL": Slow(
        frozenset({"debug", "verbose", "trace"}), "every step writes to the log"
    ),
    "TORCHDYNAMO_DISABLE": Slow(ON, "torch.compile does nothing: every operation is a launch"),
    "TORCH_DISTRIBUTED_DEBUG": Slow(
        frozenset({"detail"}), "every collective call is checked between the ranks before it runs"
    ),
    "NCCL_DEBUG": Slow(frozenset({"trace"}), "every collective call is written to the log"),
    "NCCL_P2P_DISABLE": Slow(
        ON, "GPUs of one machine exchange data through the host's memory", "info"
    ),
    "NCCL_SHM_DISABLE": Slow(
        ON, "GPUs without direct access exchange data through the network stack", "info"
    ),
    "NCCL_IB_DISABLE": Slow(ON, "nodes exchange data by TCP, not by RDMA", "info"),
    "PYTHONASYNCIODEBUG": Slow(ON, "the server's event loop checks every callback"),
    "PYTHONDEVMODE": Slow(ON, "Python's allocators and event loops check every call"),
}
"""NCCL_DEBUG=INFO is not here: it writes at the start only, and many run with it for good reasons."""
