"""Parameters of Triton's TensorRT-LLM backend, and what their values may be.

Source: docs/model_config.md and all_models/inflight_batcher_llm/*/config.pbtxt of
triton-inference-server/tensorrtllm_backend (0.12 to 1.0). Read 2026-11-30.
"""

from __future__ import annotations

CHOICES: dict[str, tuple[str, ...]] = {
    "gpt_model_type": ("V1", "v1", "inflight_batching", "inflight_fused_batching"),
    "batch_scheduler_policy": ("max_utilization", "guaranteed_no_evict"),
    "batching_strategy": ("V1", "v1", "inflight_batching", "inflight_fused_batching"),
    "batching_type": ("V1", "v1", "inflight_batching", "inflight_fused_batching"),
    "xgrammar_tokenizer_info_path": (),
}
"""An empty tuple: any value. V1 went with 0.20 (release notes)."""

REFUSED = ("gpt_model_type",)
"""Those whose wrong value ends the start; of others that cannot be read the backend takes its default
with a warning (inflight_batcher_llm/src/model_instance_state.cc: each in a try of its own)."""

SHARES = ("kv_cache_free_gpu_mem_fraction", "cross_kv_cache_fraction")

WHOLE = (
    "max_beam_width",
    "max_tokens_in_paged_kv_cache",
    "sink_token_length",
    "kv_cache_host_memory_bytes",
    "iter_stats_max_iterations",
    "request_stats_max_iterations",
    "recv_poll_period_ms",
    "max_queue_size",
)

SWITCHES = (
    "enable_kv_cache_reuse",
    "enable_chunked_context",
    "exclude_input_in_output",
    "normalize_log_probs",
    "kv_cache_onboard_blocks",
    "enable_trt_overlap",
    "multi_block_mode",
    "cuda_graph_mode",
)
TRUE = ("true", "True", "TRUE", "1")
FALSE = ("false", "False", "FALSE", "0")

OPTIONAL_PARAMETERS = frozenset(
    [
        "max_attention_window_size",
        "sink_token_length",
        "max_tokens_in_paged_kv_cache",
        "kv_cache_host_memory_bytes",
        "kv_cache_onboard_blocks",
        "enable_trt_overlap",
        "exclude_input_in_output",
        "cancellation_check_period_ms",
        "stats_check_period_ms",
        "iter_stats_max_iterations",
        "request_stats_max_iterations",
        "enable_kv_cache_reuse",
        "normalize_log_probs",
        "enable_chunked_context",
        "gpu_device_ids",
        "participant_ids",
        "num_nodes",
        "lora_cache_optimal_adapter_size",
        "lora_cache_max_adapter_size",
        "lora_cache_gpu_memory_fraction",
        "lora_cache_host_memory_bytes",
        "lora_prefetch_dir",
        "decoding_mode",
        "lookahead_window_size",
        "lookahead_ngram_size",
        "lookahead_verification_set_size",
        "medusa_choices",
        "eagle_choices",
        "encoder_model_path",
        "encoder_engine_dir",
        "cross_kv_cache_fraction",
        "gpu_weights_percent",
        "enable_context_fmha_fp32_acc",
        "multi_block_mode",
        "cuda_graph_mode",
        "cuda_graph_cache_size",
        "speculative_decoding_fast_logits",
        "speculative_decoding_mode",
        "max_beam_width",
        "batch_scheduler_policy",
        "kv_cache_free_gpu_mem_fraction",
        "logits_datatype",
        "prompt_embedding_table_data_type",
        "xgrammar_tokenizer_info_path",
        "guided_decoding_backend",
        "tokenizer_dir",
        "add_special_tokens",
        "skip_special_tokens",
        "visual_model_path",
        "multimodal_model_path",
        "multimodal_encoders_name",
        "engine_dir",
        "max_num_images",
        "preprocessing_instance_count",
        "postprocessing_instance_count",
        "bls_instance_count",
        "accumulate_tokens",
        "tensorrt_llm_model_name",
        "tensorrt_llm_draft_model_name",
        "max_queue_size",
        "prompt_table_extra_id_data_type",
        "external_draft_tokens",
    ]
)
"""Parameters that may be left as `${...}`: the backend takes its default then (model_config.md)."""

NEEDED = ("gpt_model_path", "gpt_model_type")

SCALAR_FIELDS = ("max_batch_size", "decoupled", "count", "preferred_batch_size", "backend", "name")
