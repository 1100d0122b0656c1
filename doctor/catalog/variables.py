"""Environment variables that are for debugging and make an engine slow when they are left on.

Sources, read 2026-11-30:
- CUDA_LAUNCH_BLOCKING: CUDA programming guide, "Environment variables"
- PYTORCH_NO_CUDA_MEMORY_CACHING: https://docs.pytorch.org/docs/stable/cuda_environment_variables.html
- VLLM_TRACE_FUNCTION, VLLM_LOGGING_LEVEL: vLLM envs.py and docs/usage/troubleshooting
- NCCL_DEBUG: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
- PYTHONASYNCIODEBUG, PYTHONDEVMODE: https://docs.python.org/3/using/cmdline.html
"""

from __future__ import annotations

from dataclasses import dataclass

ON = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True)
class Slow:
    """Values (lower case) that switch it on, and what it does."""

    values: frozenset[str]
    effect: str


SLOW = {
    "CUDA_LAUNCH_BLOCKING": Slow(ON, "the host waits for the end of every kernel"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": Slow(ON, "every tensor is a cudaMalloc"),
    "VLLM_TRACE_FUNCTION": Slow(ON, "every Python call is written to a log"),
    "VLLM_LOGGING_LEVEL": Slow(frozenset({"debug"}), "every step writes to the log"),
    "NCCL_DEBUG": Slow(frozenset({"trace"}), "every collective call is written to the log"),
    "PYTHONASYNCIODEBUG": Slow(ON, "the server's event loop checks every callback"),
    "PYTHONDEVMODE": Slow(ON, "Python's allocators and event loops check every call"),
}
"""NCCL_DEBUG=INFO is not here: it writes at the start only, and many run with it for good reasons."""
