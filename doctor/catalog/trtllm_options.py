"""Arguments of LLM(...) of TensorRT-LLM, which are also the keys of the extra options file.

Read from hlapi/llm_utils.py of 0.14, llmapi/llm_utils.py of 0.17, llmapi/llm_args.py of 1.2 and the
manifest of the newest (llm_args_golden_manifest.json, 00043967). Read 2026-11-30. Between the
snapshots names came and went: a name is called unknown only where none of them has it. The list holds
a few names more that were only seen in passing: it decides what is accused, so it may be too long.
"""

from __future__ import annotations

from infer_doctor.catalog.trtllm_releases import Version


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARGUMENTS = _names(
    """
    model parallel_config tokenizer skip_tokenizer_init tokenizer_revision dtype revision
    load_format enable_lora max_lora_rank max_loras max_cpu_loras build_config quant_config
    calib_config embedding_parallel_mode share_embedding_table kv_cache_config peft_cache_config
    decoding_config logits_post_processor_map scheduler_config normalize_log_probs
    iter_stats_max_iterations request_stats_max_iterations batching_type enable_build_cache
    enable_tqdm trust_remote_code
    speculative_model speculative_model_dir tokenizer_mode tensor_parallel_size
    pipeline_parallel_size context_parallel_size moe_tensor_parallel_size
    moe_expert_parallel_size moe_cluster_parallel_size cp_config auto_parallel
    auto_parallel_world_size enable_prompt_adapter max_prompt_adapter_token enable_chunked_prefill
    guided_decoding_backend workspace fast_build speculative_config
    extended_runtime_perf_knob_config use_runtime_defaults enable_processes_for_single_gpu
    max_batch_size max_num_tokens max_seq_len max_input_len max_beam_width
    custom_tokenizer model_kwargs gpus_per_node enable_attention_dp enable_lm_head_tp_in_adp
    pp_partition lora_config batched_logits_processor cache_transceiver_config
    sparse_attention_config garbage_collection_gen0_threshold cuda_graph_config
    attention_dp_config disable_overlap_scheduler moe_config attn_backend sampler_type
    enable_iter_perf_stats enable_iter_req_stats print_iter_log perf_metrics_max_requests
    batch_wait_timeout_ms batch_wait_timeout_iters batch_wait_max_tokens_ratio
    torch_compile_config enable_autotuner enable_layerwise_nvtx_marker enable_min_latency
    stream_interval force_dynamic_quantization allreduce_strategy checkpoint_loader
    checkpoint_format kv_connector_config connector_config mm_encoder_only ray_worker_extension_cls
    orchestrator_type num_postprocess_workers postprocess_tokenizer_dir reasoning_parser
    fail_fast_on_attention_window_too_large gather_generation_logits return_perf_metrics backend
    otlp_traces_endpoint checkpoint_io_policy disable_mm_encoder dwdp_config
    enable_early_first_token_response enable_energy_metrics enable_in_graph_sampling
    enable_low_latency_host_dispatch enable_resource_governor encode_only encoder_max_batch_size
    encoder_max_num_tokens generation_config gms_config kv_cache_compression_config max_stats_len
    disagg_cluster env_overrides mm_server_config multimodal_config nvfp4_gemm_config
    perf_config preprocess_config sampler_config telemetry_config video_pruning_rate
    hang_detection_timeout multi_stream_config layer_wise_benchmarks_config mx_config
    num_serve_frontends prefill_capture_num_tokens prefill_cuda_graph_backend
    prometheus_metrics_config ray_placement_config reorder_policy_config
    sampler_force_async_worker mla_skip_correction_threshold enable_mla_skip_correction
    enable_speculative_beam_history_d2h encoder_cuda_graph_config
    enable_encoder_decoder_mixed_cuda_graph use_cute_dsl_bf16_bmm use_cute_dsl_bf16_gemm
    use_cute_dsl_blockscaling_bmm use_cute_dsl_blockscaling_mm use_fine_grained_sync sleep_config
    """
)

EARLIER: dict[str, tuple[Version, str]] = {
    "pytorch_backend_config": ((0, 20), "its keys stand at the top level"),
    "enable_overlap_scheduler": (
        (0, 20),
        "the scheduler is on, disable_overlap_scheduler turns it off",
    ),
    "use_cuda_graph": ((1, 0), "cuda_graph_config is on without it, null turns graphs off"),
    "cuda_graph_batch_sizes": ((1, 0), "cuda_graph_config.batch_sizes"),
    "cuda_graph_max_batch_size": ((1, 0), "cuda_graph_config.max_batch_size"),
    "cuda_graph_padding_enabled": ((1, 0), "cuda_graph_config.enable_padding"),
    "kv_cache_dtype": ((1, 0), "kv_cache_config.dtype"),
    "moe_backend": ((1, 0), "moe_config.backend"),
    "moe_max_num_tokens": ((1, 0), "moe_config.max_num_tokens"),
    "moe_load_balancer": ((1, 0), "moe_config.load_balancer"),
    "torch_compile_enabled": ((1, 0), "torch_compile_config"),
    "torch_compile_fullgraph": ((1, 0), "torch_compile_config.enable_fullgraph"),
    "torch_compile_inductor_enabled": ((1, 0), "torch_compile_config.enable_inductor"),
    "torch_compile_piecewise_cuda_graph": (
        (1, 0),
        "torch_compile_config.enable_piecewise_cuda_graph",
    ),
    "torch_compile_enable_userbuffers": ((1, 0), "torch_compile_config.enable_userbuffers"),
    "autotuner_enabled": ((1, 0), "enable_autotuner"),
    "mixed_sampler": ((1, 0), "sampler_type"),
    "enable_mixed_sampler": ((1, 1), "sampler_type"),
    "enable_trtllm_sampler": ((1, 1), "sampler_type: TRTLLMSampler"),
    "use_torch_sampler": ((1, 1), "sampler_type: TorchSampler"),
    "enable_trtllm_decoder": ((0, 20), "sampler_type: TRTLLMSampler"),
    "auto_deploy_config": ((1, 0), "--backend _autodeploy and its own keys"),
    "use_kv_cache": ((1, 0), "nothing: the cache is always used"),
}
"""Names that 0.17 to 1.1 had -> from which release they are refused (at the latest), and what does
the same. A release below keeps them."""

NESTED: dict[str, frozenset[str]] = {
    "kv_cache_config": _names(
        """
        enable_block_reuse max_tokens max_attention_window sink_token_length
        free_gpu_memory_fraction host_cache_size onboard_blocks cross_kv_cache_fraction
        secondary_offload_min_priority event_buffer_max_size attention_dp_events_gather_period_ms
        enable_partial_reuse copy_on_partial_reuse use_uvm max_gpu_total_bytes dtype
        mamba_ssm_cache_dtype tokens_per_block use_kv_cache_manager_v2 max_util_for_resume
        avg_seq_len block_reuse_config disk_cache_size disk_prefetch_num_reqs
        enable_kv_pool_rebalance enable_swa_scratch_reuse fp8_context_mla_kv_len_cap
        iteration_stats_interval kv_cache_event_hash_algo kv_events_config
        kv_pool_rebalance_check_interval kv_pool_rebalance_cooldown_secs
        kv_pool_rebalance_min_sampled_kv_caches kv_pool_rebalance_moving_average_decay
        kv_pool_rebalance_ratio_threshold kv_pool_rebalance_target_ratio_update_interval
        mamba_ssm_philox_rounds
        mamba_ssm_stochastic_rounding mamba_state_config pool_ratio
        """
    ),
    "cuda_graph_config": _names(
        "batch_sizes max_batch_size enable_padding mode max_num_token max_seq_len num_tokens seq_lens"
    ),
}
"""Sections whose fields are all known."""

NESTED_EARLIER: dict[str, tuple[Version, str]] = {
    "cuda_graph_config.padding_enabled": ((1, 0), "cuda_graph_config.enable_padding"),
    "cuda_graph_config.max_batch_sizes": ((0, 0), "cuda_graph_config.max_batch_size"),
    "kv_cache_config.free_gpu_mem_fraction": ((0, 0), "kv_cache_config.free_gpu_memory_fraction"),
    "kv_cache_config.kv_cache_free_gpu_mem_fraction": (
        (0, 0),
        "kv_cache_config.free_gpu_memory_fraction",
    ),
    "kv_cache_config.kv_cache_dtype": ((0, 0), "kv_cache_config.dtype"),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "attn_backend": ("TRTLLM", "FLASHINFER", "VANILLA", "FLASHINFER_STAR_ATTENTION"),
    "guided_decoding_backend": ("xgrammar", "llguidance"),
    "tokenizer_mode": ("auto", "slow"),
    "allreduce_strategy": (
        "AUTO",
        "NCCL",
        "UB",
        "MINLATENCY",
        "ONESHOT",
        "TWOSHOT",
        "LOWPRECISION",
        "MNNVL",
        "NCCL_SYMMETRIC",
    ),
    "scheduler_config.capacity_scheduler_policy": (
        "MAX_UTILIZATION",
        "GUARANTEED_NO_EVICT",
        "STATIC_BATCH",
    ),
    "moe_config.backend": (
        "AUTO",
        "CUTLASS",
        "CUTEDSL",
        "WIDEEP",
        "TRTLLM",
        "DEEPGEMM",
        "DENSEGEMM",
        "VANILLA",
        "TRITON",
        "MARLIN",
        "MEGAMOE_DEEPGEMM",
        "MEGAMOE_CUTEDSL",
    ),
    "kv_cache_config.dtype": (
        "auto",
        "float16",
        "bfloat16",
        "float32",
        "fp8",
        "fp8_ds_mla",
        "nvfp4",
    ),
}

KV_DTYPES_UNTIL = (1, 3)
KV_DTYPES = ("auto", "fp8", "nvfp4")
"""Up to 1.2 the PyTorch backend refuses other values of kv_cache_config.dtype ("Overriding KV cache
quantization with an invalid type", model_loader.py; seen with bf16 and, on 1.2.1, with int8). The
newest takes those of CHOICES."""

IGNORED: dict[str, str] = {"attn_backend": "TRTLLM"}
"""Fields that are plain strings, also in the newest (its manifest lists values for telemetry alone) ->
what is taken for a value that nothing knows (_torch/attention_backend/utils.py,
get_attention_backend)."""

NUMBERS = _names(
    """
    max_batch_size max_num_tokens max_seq_len max_input_len max_beam_width tensor_parallel_size
    pipeline_parallel_size context_parallel_size moe_expert_parallel_size moe_tensor_parallel_size
    gpus_per_node stream_interval num_postprocess_workers
    kv_cache_config.free_gpu_memory_fraction kv_cache_config.max_tokens
    kv_cache_config.tokens_per_block kv_cache_config.host_cache_size cuda_graph_config.max_batch_size
    """
)
"""Fields that take a number; pydantic reads "8" as one too."""

KNOWN_WRONG: dict[str, str] = {
    "engine_dir": "model: LLM(model=...) takes the engine folder",
    "max_output_len": "SamplingParams(max_tokens=...) of each request",
    "max_model_len": "max_seq_len",
    "gpu_memory_utilization": "kv_cache_config.free_gpu_memory_fraction",
    "max_num_seqs": "max_batch_size",
    "max_num_batched_tokens": "max_num_tokens",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "ep_size": "moe_expert_parallel_size",
    "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_free_gpu_mem_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "enable_block_reuse": "kv_cache_config.enable_block_reuse",
    "quantization": "quant_config, or a quantised checkpoint",
    "enforce_eager": "cuda_graph_config: null",
    "enable_kv_cache_reuse": "kv_cache_config.enable_block_reuse",
}
"""Words of the command line, of vLLM and of Triton -> what LLM(...) calls it."""

GENERATE = frozenset(
    [
        "inputs",
        "sampling_params",
        "use_tqdm",
        "lora_request",
        "prompt_adapter_request",
        "kv_cache_retention_config",
        "disaggregated_params",
        "scheduling_params",
        "streaming",
        "queries",
        "cache_salt",
        "postproc_params",
        "priority",
        "trace_headers",
    ]
)
"""Keywords of LLM.generate and generate_async, 0.14 to the newest."""

GENERATE_WRONG: dict[str, str] = {
    "prompt": "inputs",
    "prompts": "inputs",
    "max_new_tokens": "SamplingParams(max_tokens=...)",
    "max_tokens": "SamplingParams(max_tokens=...)",
    "temperature": "SamplingParams(temperature=...)",
    "top_p": "SamplingParams(top_p=...)",
    "top_k": "SamplingParams(top_k=...)",
}

NEVER = _names(
    """
    TRTLLMEngine TrtLLMEngine TRTEngine TRTLLM TensorRTLLM TensorRTLLMEngine TensorRTEngine
    TrtLlmEngine LLMEngine AsyncLLMEngine EngineArgs AsyncEngineArgs PoolingType
    InferenceEngine LLMRuntime
    """
)
"""Names that `from tensorrt_llm import` never had (__init__.py of 0.9 to 1.2 and of a checkout of late
2026): of vLLM, or made up. AsyncLLM, which vLLM has too, came with Ray as orchestrator."""
