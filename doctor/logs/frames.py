"""Which function in a traceback proves which stage of a start."""

from __future__ import annotations

TRAINING = "training"
"""No stage of an engine: the traceback is one of a program that trains."""

FRAMES: tuple[tuple[str, frozenset[str]], ...] = (
    (
        TRAINING,
        frozenset(
            {
                "training_step",
                "_inner_training_loop",
                "inner_training_loop",
                "backward",
                "_engine_run_backward",
                "optimizer_step",
            }
        ),
    ),
    ("pinned", frozenset({"pin_memory", "allocate_cpu_cache"})),
    (
        "serving!",
        frozenset({"_get_prompt_logprobs_dict", "compute_logprobs", "gather_logprobs"}),
    ),
    (
        "graphs",
        frozenset(
            {"capture_model", "capture_graph", "capture", "_capture_cudagraphs", "capture_end"}
        ),
    ),
    (
        "warmup",
        frozenset({"_dummy_sampler_run", "_dummy_pooler_run", "kernel_warmup", "warming_up_model"}),
    ),
    (
        "weights",
        frozenset(
            {
                "load_model",
                "load_weights",
                "get_model",
                "initialize_model",
                "_initialize_model",
                "download_model",
                "_prepare_weights",
                "safetensors_weights_iterator",
                "pt_weights_iterator",
                "process_weights_after_loading",
                "create_weights",
            }
        ),
    ),
    (
        "kv",
        frozenset(
            {
                "initialize_kv_cache",
                "initialize_cache",
                "_allocate_kv_cache",
                "get_kv_cache_configs",
                "_allocate_kv_cache_tensors",
                "_init_cache_engine",
                "initialize_from_config",
            }
        ),
    ),
    (
        "profile",
        frozenset(
            {
                "profile_run",
                "determine_available_memory",
                "determine_num_available_blocks",
                "profile_num_available_blocks",
            }
        ),
    ),
    ("compile", frozenset({"compile_or_warm_up_model", "_compile_fx", "compile_fx"})),
    ("workers", frozenset({"init_device", "init_worker_distributed_environment"})),
    ("config", frozenset({"create_engine_config", "__post_init__", "from_engine_args"})),
    ("serving", frozenset({"execute_model", "_process_engine_step", "run_busy_loop"})),
)
"""Stage -> functions of vLLM 0.2 to 0.33 whose frame in a traceback proves it; the first rule that
fits counts, for a profile runs the model and a capture runs a profile's code."""
