"""Options of trtllm-build and trtllm-serve by release.

Read from tensorrt_llm/commands/build.py, commands/serve.py and plugin/plugin.py: 0.10 (035b99e0),
0.14 (8681b3a4), 0.17.0.dev (2024-12-17, before 0.17.0 and so 0.16 for trtllm-serve), 0.19 (serve.py
with `disaggregated`), 1.0 (65f1d153), 1.2 (00209af1), 1.3.0rc, and the file of the stable options of
the newest (trtllm_serve_cli.yaml, 029e223d); what 0.12 to 0.16 took away out of the release notes.
Read 2026-11-30; only the parser of 0.14 was executed. What lies between two of these is taken as
known by either.
"""

from __future__ import annotations

from infer_doctor.catalog.trtllm_releases import Version


def _names(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


_BUILD = _names(
    """
    checkpoint_dir model_config build_config model_cls_file model_cls_name output_dir max_batch_size
    max_input_len max_seq_len max_decoder_seq_len max_beam_width max_num_tokens opt_num_tokens
    max_encoder_input_len max_prompt_embedding_table_size max_multimodal_len kv_cache_type
    paged_kv_cache input_timing_cache output_timing_cache profiling_verbosity strip_plan
    weight_sparsity weight_streaming fast_build workers log_level enable_debug_output
    visualize_network dry_run logits_dtype gather_context_logits gather_generation_logits
    gather_all_token_logits lora_dir lora_ckpt_source lora_target_modules max_lora_rank
    speculative_decoding_mode max_draft_len help
    bert_attention_plugin gpt_attention_plugin gemm_plugin gemm_swiglu_plugin
    fp8_rowwise_gemm_plugin lora_plugin moe_plugin mamba_conv1d_plugin nccl_plugin
    low_latency_gemm_plugin context_fmha bert_context_fmha_fp32_acc remove_input_padding
    tokens_per_block use_paged_context_fmha use_fp8_context_fmha multiple_profiles paged_state
    streamingllm reduce_fusion use_fused_mlp
    """
)
_AUTO = _names("auto_parallel gpus_per_node cluster_key")
_LATER = _names(
    "monitor_memory low_latency_gemm_swiglu_plugin user_buffer pp_reduce_scatter norm_quant_fusion"
)

_OLD = _names(
    """
    max_output_len multi_block_mode use_custom_all_reduce context_fmha_fp32_acc strongly_typed
    attention_qk_half_accumulation use_context_fmha_for_generation builder_opt enable_xqa
    lookup_plugin builder_force_num_profiles tp_size pp_size weight_only_precision
    enable_fp8 max_output_tokens use_fused_mlp
    """
)

_GONE_WITH_12 = _names(
    "max_output_len use_custom_all_reduce multi_block_mode context_fmha_fp32_acc tp_size pp_size"
)

BUILD: dict[Version, frozenset[str]] = {
    (0, 11): _BUILD | _AUTO | _OLD,
    (0, 12): _BUILD | _AUTO | _OLD - _GONE_WITH_12,
    (0, 13): _BUILD | _AUTO | _OLD - _GONE_WITH_12,
    (0, 14): _BUILD | _AUTO | _names("builder_force_num_profiles lookup_plugin enable_xqa"),
    (0, 15): _BUILD | _AUTO | _LATER | _names("lookup_plugin enable_xqa gemm_allreduce_plugin"),
    (0, 16): _BUILD | _AUTO | _LATER | _names("lookup_plugin gemm_allreduce_plugin"),
    (0, 17): _BUILD | _AUTO | _LATER | _names("gemm_allreduce_plugin"),
    (1, 0): _BUILD
    | _LATER
    | _names("gemm_allreduce_plugin fuse_fp4_quant dora_plugin use_fp8_context_fmha"),
}

BUILD_BEFORE = (0, 12)
"""Rows below count only for a version that is known to be so old."""

BUILD_FLAGS = _names(
    """
    strip_plan weight_sparsity weight_streaming fast_build enable_debug_output dry_run
    gather_context_logits gather_generation_logits gather_all_token_logits monitor_memory help
    strongly_typed enable_fp8
    """
)
"""Without a value."""

BUILD_FLAGS_BEFORE: dict[str, Version] = {
    "--use_fused_mlp": (0, 13),
    "--visualize_network": (1, 0),
}
"""Without a value before that release (store_true in build.py of 0.9 to 0.12); later enable or disable, and
a folder (since 0.18 at the latest)."""

BUILD_MANY = _names("lora_dir lora_target_modules")

BUILD_WHOLE = _names(
    """
    max_batch_size max_input_len max_seq_len max_decoder_seq_len max_beam_width max_num_tokens
    opt_num_tokens max_encoder_input_len max_prompt_embedding_table_size max_multimodal_len
    workers max_lora_rank max_draft_len tokens_per_block auto_parallel gpus_per_node
    """
)

_DTYPES = ("auto", "float16", "float32", "bfloat16", "int32", "disable")

BUILD_CHOICES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        _names(
            "bert_attention_plugin gpt_attention_plugin lora_plugin moe_plugin "
            "mamba_conv1d_plugin nccl_plugin fp8_rowwise_gemm_plugin lookup_plugin"
        ),
        _DTYPES,
    ),
    "--gemm_plugin": (*_DTYPES[:-1], "fp8", "nvfp4", "disable"),
    "--gemm_swiglu_plugin": ("fp8", "disable"),
    "--low_latency_gemm_plugin": ("fp8", "disable"),
    "--low_latency_gemm_swiglu_plugin": ("fp8", "disable"),
    **dict.fromkeys(
        _names(
            "context_fmha bert_context_fmha_fp32_acc remove_input_padding use_paged_context_fmha "
            "use_fp8_context_fmha multiple_profiles paged_state streamingllm reduce_fusion "
            "use_fused_mlp enable_xqa user_buffer pp_reduce_scatter norm_quant_fusion"
        ),
        ("enable", "disable"),
    ),
    "--logits_dtype": ("float16", "float32"),
    "--profiling_verbosity": ("layer_names_only", "detailed", "none"),
    "--lora_ckpt_source": ("hf", "nemo"),
}
"""nvfp4 for --gemm_plugin came after 0.17; auto, int32 and fp8 before 0.14."""

BUILD_DEFAULTS: dict[str, int] = {
    "max_batch_size": 2048,
    "max_input_len": 1024,
    "max_num_tokens": 8192,
    "max_beam_width": 1,
}

QUANTIZE_FIRST = (
    "the precision is that of the checkpoint, made by quantize.py or convert_checkpoint.py"
)

BUILD_FOREIGN: dict[str, tuple[str | None, str]] = {
    "--model_dir": ("--checkpoint_dir", "it takes a converted checkpoint, no Hugging Face folder"),
    "--model": ("--checkpoint_dir", "it takes a converted checkpoint, no Hugging Face folder"),
    "--model_path": ("--checkpoint_dir", "it takes a converted checkpoint, no Hugging Face folder"),
    "--quantization": (None, QUANTIZE_FIRST),
    "--qformat": (None, QUANTIZE_FIRST),
    "--dtype": (None, QUANTIZE_FIRST),
    "--kv_cache_dtype": (None, QUANTIZE_FIRST),
    "--int8_kv_cache": (None, QUANTIZE_FIRST),
    "--use_weight_only": (None, QUANTIZE_FIRST),
    "--weight_only_precision": (None, QUANTIZE_FIRST),
    "--tp_size": (None, "tensor parallelism is that of the checkpoint (quantize.py --tp_size)"),
    "--pp_size": (None, "pipeline parallelism is that of the checkpoint"),
    "--world_size": (None, "the world size is that of the checkpoint"),
    "--max_output_len": ("--max_seq_len", "input and output together since 0.12"),
    "--max_batch_tokens": ("--max_num_tokens", "that is its name"),
    "--engine_dir": ("--output_dir", "that is its name"),
    "--use_gpt_attention_plugin": ("--gpt_attention_plugin", "since 0.8"),
    "--use_gemm_plugin": ("--gemm_plugin", "since 0.8"),
    "--use_inflight_batching": (None, "always on since 0.8"),
    "--enable_context_fmha": ("--context_fmha enable", "since 0.8"),
    "--context_fmha_fp32_acc": (None, "a setting of the runtime since 0.12"),
    "--multi_block_mode": (None, "a setting of the runtime since 0.12, on by itself since 0.13"),
    "--use_custom_all_reduce": (None, "chosen by itself since 0.12"),
    "--attention_qk_half_accumulation": (None, "gone with 0.11"),
    "--use_context_fmha_for_generation": (None, "gone with 0.12"),
    "--strongly_typed": (None, "on by itself since 0.13"),
    "--builder_opt": (None, "gone since 0.14"),
    "--enable_xqa": (None, "always on since 0.16"),
    "--lookup_plugin": (None, "gone with 0.17"),
    "--builder_force_num_profiles": (None, "the variable BUILDER_FORCE_NUM_PROFILES since 0.15"),
}
"""Words of older releases and of other scripts: what to write instead, and why."""

BUILD_RENAMED = _names(
    "max_batch_tokens engine_dir use_gpt_attention_plugin use_gemm_plugin enable_context_fmha"
)
"""Those whose value stays as it is; the others mean something else."""

_SERVE_OLD = _names(
    "tokenizer host port max_beam_width max_batch_size max_num_tokens max_seq_len tp_size pp_size "
    "kv_cache_free_gpu_memory_fraction trust_remote_code log_level help"
)
_SERVE = _SERVE_OLD | _names(
    """
    backend ep_size cluster_size gpus_per_node num_postprocess_workers extra_llm_api_options
    reasoning_parser metadata_server_config_file server_role
    fail_fast_on_attention_window_too_large enable_chunked_prefill disagg_cluster_uri
    media_io_kwargs
    """
)
_SERVE_LONG = _SERVE | _names(
    """
    tensor_parallel_size pipeline_parallel_size context_parallel_size cp_size
    moe_expert_parallel_size moe_cluster_parallel_size free_gpu_memory_fraction config revision
    tool_parser chat_template otlp_traces_endpoint custom_module_dirs custom_tokenizer
    """
)

_SERVE_19 = _SERVE_OLD | _names(
    "backend ep_size gpus_per_node num_postprocess_workers extra_llm_api_options"
)

SERVE: dict[Version, frozenset[str]] = {
    (0, 16): _SERVE_OLD,
    (0, 19): _SERVE_19,
    (1, 1): _SERVE,
    (1, 2): _SERVE_LONG,
    (1, 4): _SERVE_LONG
    | _names(
        """
        kv_cache_dtype num_serve_frontends num_input_processor_workers num_media_load_workers
        hf_revision served_model_name allow_request_chat_template generation-config
        enable_attention_dp grpc middleware telemetry no-telemetry report_addr video_pruning_rate
        post_processor_hook enable_visual_gen visual_gen_args extra_visual_gen_options agent_percentage agent_types
        """
    ),
}
"""1.2.0rc had the short names alone; `--backend` goes with the engines but is still taken."""

SERVE_FLAGS = _names(
    "trust_remote_code fail_fast_on_attention_window_too_large enable_chunked_prefill "
    "allow_request_chat_template enable_attention_dp grpc telemetry no-telemetry enable_visual_gen "
    "help"
)

SERVE_WHOLE = _names(
    """
    port max_beam_width max_batch_size max_num_tokens max_seq_len tp_size pp_size ep_size cp_size
    cluster_size tensor_parallel_size pipeline_parallel_size context_parallel_size
    moe_expert_parallel_size moe_cluster_parallel_size gpus_per_node num_postprocess_workers
    """
)

SERVE_NAMES: dict[str, str] = {
    "--tp_size": "tensor_parallel_size",
    "--pp_size": "pipeline_parallel_size",
    "--ep_size": "moe_expert_parallel_size",
    "--cp_size": "context_parallel_size",
    "--cluster_size": "moe_cluster_parallel_size",
    "--kv_cache_free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "--free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "--kv_cache_dtype": "kv_cache_config.dtype",
    "--extra_llm_api_options": "config",
}
"""Flag -> field of LlmArgs, where it is not its own name."""

BENCH_NAMES: dict[str, str] = {
    "--tp": "tensor_parallel_size",
    "--pp": "pipeline_parallel_size",
    "--ep": "moe_expert_parallel_size",
    "--kv_cache_free_gpu_mem_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "--max_seq_len": "max_seq_len",
    "--model_path": "model",
    "--engine_dir": "model",
    "--beam_width": "max_beam_width",
    "--extra_llm_api_options": "config",
}

SERVE_FOREIGN: dict[str, str] = {
    "--tensor-parallel-size": "--tp_size",
    "--tensor_parallel_size": "--tp_size",
    "--pipeline_parallel_size": "--pp_size",
    "--tp": "--tp_size",
    "--pp": "--pp_size",
    "--max-model-len": "--max_seq_len",
    "--max_model_len": "--max_seq_len",
    "--max_num_seqs": "--max_batch_size",
    "--max-num-seqs": "--max_batch_size",
    "--max_num_batched_tokens": "--max_num_tokens",
    "--max-num-batched-tokens": "--max_num_tokens",
    "--gpu-memory-utilization": "--kv_cache_free_gpu_memory_fraction",
    "--gpu_memory_utilization": "--kv_cache_free_gpu_memory_fraction",
    "--free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
    "--kv_cache_free_gpu_mem_fraction": "--kv_cache_free_gpu_memory_fraction",
    "--extra-llm-api-options": "--extra_llm_api_options",
    "--extra_options": "--extra_llm_api_options",
    "--config": "--extra_llm_api_options",
    "--max_input_len": "--max_seq_len",
    "--max_output_len": "--max_seq_len",
    "--enable-chunked-prefill": "--enable_chunked_prefill",
    "--engine_dir": "the folder as the first word",
    "--model": "the model as the first word",
}
"""Names of vLLM, of other tools and of later releases -> what 1.0 and 1.1 take."""

BACKENDS = ("pytorch", "tensorrt", "trt", "_autodeploy")

AUTODEPLOY = ("_autodeploy", "autodeploy")
"""trtllm-bench of 0.17 to 0.19 wrote it without the line."""

ONE_BACKEND_UNTIL = (0, 20)
"""Up to here `--backend` is click.Choice(["pytorch"]), and without it engines are loaded."""

TENSORRT_NAMED_SINCE = (1, 1)
"""From here `--backend tensorrt` is taken, with trt as its alias (ChoiceWithAlias); 1.0 knows trt alone
(its click.Choice, and a public script that met it)."""
