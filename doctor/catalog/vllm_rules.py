"""What vLLM itself says about options that meet: refusals and settings that lose.

Each rule was found in the sources of the releases named: `since` is the first that has it, `until`
the last (None: it is still there in 0.33.0). The line numbers are those of 0.33.0, or of `until`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from infer_doctor.catalog.vllm_conditions import (
    Values,
    alone,
    batch_below_length,
    below,
    connector_without_role,
    eager_levels,
    external_without_rank,
    headless_servers,
    host_is_url,
    lookup_window,
    nested_twice,
    nodes_executor,
    nodes_without_address,
    overrides_text,
    rank_unknown,
    role_unknown,
    share_above_one,
    speculative_parallel,
    speculative_without_count,
    speculative_without_method,
    speculative_without_model,
    steps,
    swap_space_given,
    together,
)
from infer_doctor.frozen import frozen


@frozen
class Rule:
    """One rule; `test` says in words what is wrong, or None."""

    name: str
    options: tuple[str, ...]
    """Whose lines are the evidence; a fix takes out the first one."""
    test: Callable[[Values], str | None]
    effect: str
    """What the engine does then."""
    severity: Literal["error", "warning", "info"] = "error"
    since: str = "0.6.0"
    until: str | None = None
    source: str
    cure: Literal["drop", "none"] = "drop"


RULES: tuple[Rule, ...] = (
    Rule(
        name="batch-below-sequences",
        options=("max_num_batched_tokens", "max_num_seqs"),
        test=below("max_num_batched_tokens", "max_num_seqs"),
        effect='refuses to start: "max_num_batched_tokens must be greater than or equal to '
        'max_num_seqs"',
        source="config/scheduler.py, verify_max_model_len; config.py before 0.11",
    ),
    Rule(
        name="active-above-sequences",
        options=("max_num_active_seqs", "max_num_seqs"),
        test=below("max_num_seqs", "max_num_active_seqs"),
        effect='refuses to start: "max_num_active_seqs cannot be greater than max_num_seqs"',
        source="config/scheduler.py:338",
    ),
    Rule(
        name="batch-below-length",
        options=("max_num_batched_tokens", "max_model_len", "enable_chunked_prefill"),
        test=batch_below_length,
        effect="refuses to start: without chunked prefill a prompt must fit into one batch",
        source="config/scheduler.py, verify_max_model_len; config.py before 0.11",
    ),
    Rule(
        name="tools-without-parser",
        options=("enable_auto_tool_choice",),
        test=alone("enable_auto_tool_choice", "tool_call_parser"),
        effect='refuses to start: "--enable-auto-tool-choice requires --tool-call-parser"',
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="lora-rank",
        options=("max_lora_rank",),
        test=rank_unknown,
        effect="refuses to start: kernels are there for these ranks alone",
        until="0.11.0",
        source="config.py and config/lora.py, possible_max_ranks; a choice of the option since",
    ),
    Rule(
        name="overrides-text",
        options=("hf_overrides",),
        test=overrides_text,
        effect="refuses to start: hf_overrides must be a dictionary",
        since="0.9.0",
        source="engine/arg_utils.py, union_dict_and_str: what is not in braces stays a text",
        cure="none",
    ),
    Rule(
        name="outputs-without-requests",
        options=("enable_log_outputs",),
        test=alone("enable_log_outputs", "enable_log_requests"),
        effect='refuses to start: "--enable-log-outputs requires --enable-log-requests"',
        since="0.10.2",
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="metrics-without-stats",
        options=("disable_log_stats", "enable_per_request_metrics"),
        test=together("disable_log_stats", "enable_per_request_metrics"),
        effect="refuses to start: metrics of a request need the statistics",
        since="0.25.0",
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="capture-sizes-twice",
        options=("cudagraph_capture_sizes", "compilation_config"),
        test=nested_twice(
            "cudagraph_capture_sizes", "compilation_config", "cudagraph_capture_sizes"
        ),
        effect="refuses to start: they exclude each other",
        since="0.11.1",
        source="engine/arg_utils.py:2838",
    ),
    Rule(
        name="capture-maximum-twice",
        options=("max_cudagraph_capture_size", "compilation_config"),
        test=nested_twice(
            "max_cudagraph_capture_size", "compilation_config", "max_cudagraph_capture_size"
        ),
        effect="refuses to start: they exclude each other",
        since="0.11.1",
        source="engine/arg_utils.py:2845",
    ),
    Rule(
        name="attention-backend-twice",
        options=("attention_backend", "attention_config"),
        test=nested_twice("attention_backend", "attention_config", "backend"),
        effect="refuses to start: they exclude each other",
        since="0.14.0",
        source="engine/arg_utils.py:2732",
    ),
    *(
        Rule(
            name=f"speculative-{key}-twice",
            options=(short, "speculative_config"),
            test=nested_twice(short, "speculative_config", key),
            effect="refuses to start: they exclude each other",
            source="engine/arg_utils.py:2119",
        )
        for short, key in (
            ("spec_method", "method"),
            ("spec_model", "model"),
            ("spec_tokens", "num_speculative_tokens"),
        )
    ),
    Rule(
        name="speculative-without-method",
        options=("speculative_config",),
        test=speculative_without_method,
        effect="refuses to start: nothing can guess the tokens",
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="speculative-without-count",
        options=("speculative_config",),
        test=speculative_without_count,
        effect='refuses to start: "num_speculative_tokens must be provided with speculative model"',
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="speculative-parallel-size",
        options=("speculative_config",),
        test=speculative_parallel,
        effect="refuses to start: the key is draft_tensor_parallel_size",
        since="0.15.0",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="lookup-window-empty",
        options=("speculative_config",),
        test=lookup_window,
        effect="refuses to start: the smallest n-gram must not be longer than the longest",
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="balancing-without-experts",
        options=("enable_eplb",),
        test=alone("enable_eplb", "enable_expert_parallel"),
        effect='refuses to start: "enable_expert_parallel must be True to use EPLB"',
        since="0.10.0",
        source="config/parallel.py",
    ),
    Rule(
        name="local-replicas-above-all",
        options=("data_parallel_size", "data_parallel_size_local"),
        test=below("data_parallel_size", "data_parallel_size_local"),
        effect="refuses to start: there cannot be more replicas on this node than in all",
        since="0.9.0",
        source="config/parallel.py",
        cure="none",
    ),
    Rule(
        name="headless-with-servers",
        options=("api_server_count", "headless"),
        test=headless_servers,
        effect="refuses to start: a headless node runs no API server",
        since="0.9.1",
        source="entrypoints/cli/serve.py",
    ),
    Rule(
        name="nodes-with-executor",
        options=("distributed_executor_backend", "nnodes"),
        test=nodes_executor,
        effect="refuses to start: several nodes without a cluster need the executor mp",
        since="0.11.1",
        source="config/parallel.py",
    ),
    Rule(
        name="cpu-loras-below-loras",
        options=("max_cpu_loras", "max_loras"),
        test=below("max_cpu_loras", "max_loras"),
        effect="refuses to start: adapters on the GPU are kept in host memory too",
        source="config/lora.py:122",
    ),
    Rule(
        name="adapters-without-lora",
        options=("lora_modules",),
        test=alone("lora_modules", "enable_lora"),
        effect="cannot load the adapters: LoRA is not enabled",
        source="v1/engine/input_processor.py, lora_request",
        cure="none",
    ),
    Rule(
        name="mamba-block-without-caching",
        options=("mamba_block_size",),
        test=lambda values: (
            "--mamba-block-size and --no-enable-prefix-caching are both given"
            if values.get("mamba_block_size") and values.get("enable_prefix_caching") is False
            else None
        ),
        effect='refuses to start: "--mamba-block-size can only be set with '
        '--enable-prefix-caching"',
        since="0.11.1",
        source="config/vllm.py",
    ),
    Rule(
        name="connector-without-role",
        options=("kv_transfer_config",),
        test=connector_without_role,
        effect="refuses to start: kv_role is kv_producer, kv_consumer or kv_both",
        since="0.8.0",
        source="config/kv_transfer.py",
        cure="none",
    ),
    Rule(
        name="connector-role-unknown",
        options=("kv_transfer_config",),
        test=role_unknown,
        effect="refuses to start: kv_role is kv_producer, kv_consumer or kv_both",
        since="0.6.5",
        source="config/kv_transfer.py:114 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="speculative-without-model",
        options=("speculative_config",),
        test=speculative_without_model,
        effect='refuses to start: "num_speculative_tokens was provided but without speculative model"',
        since="0.9.0",
        source="config/speculative.py:1188 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="external-balancing-without-rank",
        options=("data_parallel_external_lb", "data_parallel_size"),
        test=external_without_rank,
        effect="refuses to start: each replica behind an external balancer is told its rank",
        since="0.32.0",
        source="engine/arg_utils.py:2427 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="nodes-without-address",
        options=("nnodes",),
        test=nodes_without_address,
        effect="takes 127.0.0.1: the nodes never find each other unless all are this machine",
        severity="warning",
        source="config/parallel.py:313 of 0.32.0 (master_addr)",
        cure="none",
    ),
    Rule(
        name="host-is-url",
        options=("host",),
        test=host_is_url,
        effect="cannot listen on it and stops: an address or a name is wanted",
        source="entrypoints/openai/api_server.py, create_server_socket (bind)",
        cure="none",
    ),
    Rule(
        name="memory-share-above-one",
        options=("gpu_memory_utilization",),
        test=share_above_one,
        effect='refuses to start: "GPU memory utilization must be less than 1.0"',
        until="0.11.0",
        source="config/cache.py, _verify_args; a bound of the field from 0.11.1 on",
        cure="none",
    ),
    Rule(
        name="steps-with-speculation",
        options=("num_scheduler_steps", "speculative_model"),
        test=steps("speculative_model"),
        effect="refuses to start: multi-step scheduling and speculation exclude each other",
        until="0.8.2",
        source="engine/arg_utils.py, create_engine_config",
    ),
    Rule(
        name="speculation-with-chunks",
        options=("enable_chunked_prefill", "speculative_model"),
        test=together("enable_chunked_prefill", "speculative_model"),
        effect='refuses to start: "Speculative decoding and chunked prefill are currently mutually '
        'exclusive"',
        until="0.6.3.post1",
        source="config.py, maybe_create_spec_config",
    ),
    Rule(
        name="lora-with-chunks",
        options=("enable_chunked_prefill", "enable_lora"),
        test=together("enable_chunked_prefill", "enable_lora"),
        effect='refuses to start: "LoRA is not supported with chunked prefill yet"',
        until="0.6.4.post1",
        source="config.py, verify_with_scheduler_config",
    ),
    Rule(
        name="memory-share-unused",
        options=("gpu_memory_utilization", "kv_cache_memory_bytes"),
        test=together("gpu_memory_utilization", "kv_cache_memory_bytes"),
        effect="ignores --gpu-memory-utilization for the KV cache",
        severity="info",
        since="0.10.2",
        source="config/cache.py, kv_cache_memory_bytes",
    ),
    Rule(
        name="graphs-unused",
        options=("cudagraph_capture_sizes", "max_cudagraph_capture_size", "enforce_eager"),
        test=eager_levels,
        effect="captures no graphs at all",
        severity="warning",
        since="0.9.0",
        source="config/vllm.py, enforce_eager",
    ),
    Rule(
        name="address-unused",
        options=("host", "port", "uds"),
        test=lambda values: (
            "--uds is given together with --host or --port"
            if values.get("uds") and (values.get("host") or values.get("port"))
            else None
        ),
        effect="listens on the socket alone and ignores host and port",
        severity="info",
        since="0.10.1",
        source="entrypoints/common/cli_args.py, uds",
    ),
    Rule(
        name="swap-unused",
        options=("swap_space",),
        test=swap_space_given,
        effect="never swaps (the V1 engine recomputes) and only checks that the host has the memory",
        severity="warning",
        since="0.11.0",
        until="0.17.1",
        source="config/cache.py, verify_with_parallel_config",
    ),
)
