"""What servers call their metrics, by meaning; the newest name first.

vLLM 0.6 to 0.33: vllm/engine/metrics.py (V0) and vllm/v1/metrics/loggers.py (V1) of each release;
counters carry `_total` on the wire. TensorRT-LLM: tensorrt_llm/metrics/collector.py (prefix trtllm_;
Dynamo writes trtllm:). Triton: nv_trt_llm_* of the TensorRT-LLM backend, one family with a label for
each meaning. Read 2026-12.

trtllm_generation_tokens_total and trtllm_prompt_tokens_total are left out: they grow when a request
has ended (log_request_metrics_dict), so that they do not tell whether an engine goes on. The same is
true of nv_inference_exec_count, which counts a whole answer once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """A metric; only samples with this label count when one is given. Values are multiplied."""

    metric: str
    label: tuple[str, str] | None = None
    factor: float = 1.0
    since: str = ""
    until: str = ""
    """Releases of vLLM that have it, where not all do; the last one without it."""


GAUGES: dict[str, tuple[Name, ...]] = {
    "running": (
        Name("vllm:num_requests_running"),
        Name("trtllm_num_requests_running"),
        Name("nv_trt_llm_request_metrics", ("request_type", "active")),
    ),
    "waiting": (
        Name("vllm:num_requests_waiting"),
        Name("trtllm_num_requests_waiting"),
        Name("nv_trt_llm_request_metrics", ("request_type", "waiting")),
        Name("nv_inference_pending_request_count"),
    ),
    "kv": (
        Name("vllm:kv_cache_usage_perc", since="0.9.2"),
        Name("vllm:gpu_cache_usage_perc", until="0.12"),
        Name("trtllm_kv_cache_utilization"),
        Name("nv_trt_llm_kv_cache_block_metrics", ("kv_cache_block_type", "fraction")),
    ),
}
"""kv is a share, 1 is full."""

COUNTERS: dict[str, tuple[Name, ...]] = {
    "preemptions": (Name("vllm:num_preemptions_total"),),
    "prompt_tokens": (Name("vllm:prompt_tokens_total"),),
    "tokens": (Name("vllm:generation_tokens_total"),),
    "iterations": (
        Name("vllm:iteration_tokens_total_count", since="0.6.4"),
        Name("nv_trt_llm_general_metrics", ("general_type", "iteration_counter")),
    ),
    "finished": (
        Name("vllm:request_success_total"),
        Name("trtllm_request_success_total"),
        Name("nv_inference_request_success"),
    ),
    "errors": (
        Name("trtllm_request_error_total"),
        Name("nv_inference_request_failure"),
        Name("vllm:request_success_total", ("finished_reason", "error")),
    ),
}

HISTOGRAMS: dict[str, tuple[Name, ...]] = {
    "ttft": (
        Name("vllm:time_to_first_token_seconds"),
        Name("trtllm_time_to_first_token_seconds"),
    ),
    "itl": (
        Name("vllm:inter_token_latency_seconds", since="0.10.2"),
        Name("vllm:time_per_output_token_seconds", until="0.15"),
        Name("trtllm_time_per_output_token_seconds"),
    ),
    "queue": (
        Name("vllm:request_queue_time_seconds", since="0.6.4"),
        Name("vllm:time_in_queue_requests", until="0.9.1"),
        Name("trtllm_request_queue_time_seconds"),
    ),
    "prefill": (
        Name("vllm:request_prefill_time_seconds", since="0.6.4"),
        Name("trtllm_request_prefill_time_seconds"),
    ),
    "decode": (
        Name("vllm:request_decode_time_seconds", since="0.6.4"),
        Name("trtllm_request_decode_time_seconds"),
    ),
    "e2e": (
        Name("vllm:e2e_request_latency_seconds"),
        Name("trtllm_e2e_request_latency_seconds"),
    ),
}

ASLEEP = Name("vllm:engine_sleep_state", ("sleep_state", "awake"), since="0.11.1")
"""0 while the engine sleeps (--enable-sleep-mode, POST /sleep)."""

FORMER: dict[str, str] = {
    "vllm:num_requests_swapped": "gone in 0.9.1, V1 preempts instead",
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc since 0.9.2",
    "vllm:gpu_prefix_cache_hit_rate": "prefix_cache_hits_total / prefix_cache_queries_total",
    "vllm:time_per_output_token_seconds": "vllm:inter_token_latency_seconds since 0.10.2",
    "vllm:avg_generation_throughput_toks_per_s": "the rate of vllm:generation_tokens_total",
    "vllm:avg_prompt_throughput_toks_per_s": "the rate of vllm:prompt_tokens_total",
}
"""Names of dashboards that no longer exist, and what tells the same."""

ENGINE_LABELS = ("engine", "engine_idx")
"""With data parallelism each engine has its own samples."""

KINDS = (("vllm:", "vllm"), ("trtllm_", "tensorrt-llm"), ("nv_", "triton"), ("nim:", "nim"))
"""Prefix -> the server that writes it; NIM's own names have none (server/exposition.py)."""

ITERATION_FIELDS = {
    "running": ("numActiveRequests",),
    "waiting": ("numQueuedRequests",),
}
"""Of one row of TensorRT-LLM's JSON at /metrics (executor.h, IterationStats); numCompletedRequests is
of that one iteration."""
