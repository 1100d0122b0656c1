"""What vLLM itself says about options that meet: refusals and settings that lose.

Each rule was found in the sources of the releases named: `since` is the first that has it, `until`
the last (None: it is still there in 0.33.0). The line numbers are those of 0.33.0, or of `until`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeGuard

from infer_doctor.frozen import frozen

Values = Mapping[str, Any]
"""Options that are given, by the engine's name; what is not known is left out."""


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


def _below(small: str, large: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        low, high = values.get(small), values.get(large)
        if not _number(low) or not _number(high) or low >= high:
            return None
        return f"{_flag(small)} {low:,} is below {_flag(large)} {high:,}"

    return test


def _together(first: str, second: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        if not values.get(first) or not values.get(second):
            return None
        return f"{_flag(first)} and {_flag(second)} are both given"

    return test


def _alone(name: str, needed: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        if not values.get(name) or values.get(needed):
            return None
        return f"{_flag(name)} is given without {_flag(needed)}"

    return test


def _nested_twice(name: str, holder: str, key: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        inner = values.get(holder)
        if values.get(name) is None or not isinstance(inner, dict) or inner.get(key) is None:
            return None
        return f"{_flag(name)} and the key {key} of {_flag(holder)} are both given"

    return test


def _batch_below_length(values: Values) -> str | None:
    if values.get("enable_chunked_prefill") is not False:
        return None
    return _below("max_num_batched_tokens", "max_model_len")(values)


def _speculative_without_method(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or inner.get("num_speculative_tokens") is None:
        return None
    if inner.get("model") or inner.get("method"):
        return None
    if values.get("spec_model") or values.get("spec_method"):
        return None
    return "--speculative-config has num_speculative_tokens, but neither model nor method"


COUNTED = ("ngram", "draft_model", "eagle", "eagle3")
"""Methods whose draft has no n_predict of its own in its config.json."""


def _speculative_without_count(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or inner.get("method") not in COUNTED:
        return None
    elsewhere = any(values.get(name) is not None for name in ("spec_tokens", "spec_method"))
    if inner.get("num_speculative_tokens") is not None or elsewhere:
        return None
    return f"--speculative-config has the method {inner['method']}, but no num_speculative_tokens"


def _speculative_parallel(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or "tensor_parallel_size" not in inner:
        return None
    return "--speculative-config has tensor_parallel_size"


def _lookup_window(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict):
        return None
    low, high = inner.get("prompt_lookup_min"), inner.get("prompt_lookup_max")
    if not _number(low) or not _number(high) or low <= high:
        return None
    return f"prompt_lookup_min {low} is above prompt_lookup_max {high}"


def _connector_without_role(values: Values) -> str | None:
    inner = values.get("kv_transfer_config")
    if not isinstance(inner, dict) or not inner.get("kv_connector") or inner.get("kv_role"):
        return None
    return "--kv-transfer-config has kv_connector without kv_role"


ROLES = ("kv_producer", "kv_consumer", "kv_both")


def _role_unknown(values: Values) -> str | None:
    inner = values.get("kv_transfer_config")
    role = inner.get("kv_role") if isinstance(inner, dict) else None
    if not isinstance(role, str) or role in ROLES:
        return None
    return f"--kv-transfer-config has kv_role {role}"


DRAFTED = ("eagle", "eagle3", "medusa", "mlp_speculator", "draft_model")
"""Methods whose draft is a model of its own; the others have it in the target or need none."""


def _speculative_without_model(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or inner.get("num_speculative_tokens") is None:
        return None
    if inner.get("method") not in DRAFTED or inner.get("model") or values.get("spec_model"):
        return None
    return f"--speculative-config has the method {inner['method']}, but no model"


def _external_without_rank(values: Values) -> str | None:
    nodes, replicas = values.get("nnodes"), values.get("data_parallel_size")
    if not values.get("data_parallel_external_lb") or not _number(replicas) or replicas < 2:
        return None
    if values.get("data_parallel_rank") is not None or (_number(nodes) and nodes > 1):
        return None
    return "--data-parallel-external-lb is given without --data-parallel-rank"


def _nodes_without_address(values: Values) -> str | None:
    nodes = values.get("nnodes")
    if not _number(nodes) or nodes < 2 or values.get("master_addr"):
        return None
    if values.get("distributed_executor_backend") not in (None, "mp"):
        return None
    return f"--nnodes {nodes} is given without --master-addr"


def _host_is_url(values: Values) -> str | None:
    host = values.get("host")
    if not isinstance(host, str) or "://" not in host:
        return None
    return f"--host {host} is a URL"


def _headless_servers(values: Values) -> str | None:
    count = values.get("api_server_count")
    if not values.get("headless") or not _number(count) or count < 1:
        return None
    return f"--headless and --api-server-count {count} are both given"


def _nodes_executor(values: Values) -> str | None:
    nodes, backend = values.get("nnodes"), values.get("distributed_executor_backend")
    if not _number(nodes) or nodes < 2 or backend in (None, "mp", "uni", "external_launcher"):
        return None
    return f"--nnodes {nodes} and --distributed-executor-backend {backend} are both given"


def _share_above_one(values: Values) -> str | None:
    share = values.get("gpu_memory_utilization")
    if not _number(share) or share <= 1:
        return None
    return f"--gpu-memory-utilization {share:g} is more than the whole memory (1.0)"


def _eager_levels(values: Values) -> str | None:
    if not values.get("enforce_eager"):
        return None
    names = ("cudagraph_capture_sizes", "max_cudagraph_capture_size", "cuda_graph_sizes")
    given = [name for name in names if values.get(name)]
    return f"--enforce-eager and {_flag(given[0])} are both given" if given else None


def _steps(other: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        steps = values.get("num_scheduler_steps")
        if not _number(steps) or steps < 2 or not values.get(other):
            return None
        return f"--num-scheduler-steps {steps} and {_flag(other)} are both given"

    return test


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


RULES: tuple[Rule, ...] = (
    Rule(
        name="batch-below-sequences",
        options=("max_num_batched_tokens", "max_num_seqs"),
        test=_below("max_num_batched_tokens", "max_num_seqs"),
        effect='refuses to start: "max_num_batched_tokens must be greater than or equal to '
        'max_num_seqs"',
        source="config/scheduler.py, verify_max_model_len; config.py before 0.11",
    ),
    Rule(
        name="active-above-sequences",
        options=("max_num_active_seqs", "max_num_seqs"),
        test=_below("max_num_seqs", "max_num_active_seqs"),
        effect='refuses to start: "max_num_active_seqs cannot be greater than max_num_seqs"',
        source="config/scheduler.py:338",
    ),
    Rule(
        name="batch-below-length",
        options=("max_num_batched_tokens", "max_model_len", "enable_chunked_prefill"),
        test=_batch_below_length,
        effect="refuses to start: without chunked prefill a prompt must fit into one batch",
        source="config/scheduler.py, verify_max_model_len; config.py before 0.11",
    ),
    Rule(
        name="tools-without-parser",
        options=("enable_auto_tool_choice",),
        test=_alone("enable_auto_tool_choice", "tool_call_parser"),
        effect='refuses to start: "--enable-auto-tool-choice requires --tool-call-parser"',
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="outputs-without-requests",
        options=("enable_log_outputs",),
        test=_alone("enable_log_outputs", "enable_log_requests"),
        effect='refuses to start: "--enable-log-outputs requires --enable-log-requests"',
        since="0.10.2",
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="metrics-without-stats",
        options=("disable_log_stats", "enable_per_request_metrics"),
        test=_together("disable_log_stats", "enable_per_request_metrics"),
        effect="refuses to start: metrics of a request need the statistics",
        since="0.25.0",
        source="entrypoints/common/cli_args.py, validate_parsed_serve_args",
    ),
    Rule(
        name="capture-sizes-twice",
        options=("cudagraph_capture_sizes", "compilation_config"),
        test=_nested_twice(
            "cudagraph_capture_sizes", "compilation_config", "cudagraph_capture_sizes"
        ),
        effect="refuses to start: they exclude each other",
        since="0.11.1",
        source="engine/arg_utils.py:2838",
    ),
    Rule(
        name="capture-maximum-twice",
        options=("max_cudagraph_capture_size", "compilation_config"),
        test=_nested_twice(
            "max_cudagraph_capture_size", "compilation_config", "max_cudagraph_capture_size"
        ),
        effect="refuses to start: they exclude each other",
        since="0.11.1",
        source="engine/arg_utils.py:2845",
    ),
    Rule(
        name="attention-backend-twice",
        options=("attention_backend", "attention_config"),
        test=_nested_twice("attention_backend", "attention_config", "backend"),
        effect="refuses to start: they exclude each other",
        since="0.14.0",
        source="engine/arg_utils.py:2732",
    ),
    *(
        Rule(
            name=f"speculative-{key}-twice",
            options=(short, "speculative_config"),
            test=_nested_twice(short, "speculative_config", key),
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
        test=_speculative_without_method,
        effect="refuses to start: nothing can guess the tokens",
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="speculative-without-count",
        options=("speculative_config",),
        test=_speculative_without_count,
        effect='refuses to start: "num_speculative_tokens must be provided with speculative model"',
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="speculative-parallel-size",
        options=("speculative_config",),
        test=_speculative_parallel,
        effect="refuses to start: the key is draft_tensor_parallel_size",
        since="0.15.0",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="lookup-window-empty",
        options=("speculative_config",),
        test=_lookup_window,
        effect="refuses to start: the smallest n-gram must not be longer than the longest",
        since="0.8.3",
        source="config/speculative.py",
        cure="none",
    ),
    Rule(
        name="balancing-without-experts",
        options=("enable_eplb",),
        test=_alone("enable_eplb", "enable_expert_parallel"),
        effect='refuses to start: "enable_expert_parallel must be True to use EPLB"',
        since="0.10.0",
        source="config/parallel.py",
    ),
    Rule(
        name="local-replicas-above-all",
        options=("data_parallel_size", "data_parallel_size_local"),
        test=_below("data_parallel_size", "data_parallel_size_local"),
        effect="refuses to start: there cannot be more replicas on this node than in all",
        since="0.9.0",
        source="config/parallel.py",
        cure="none",
    ),
    Rule(
        name="headless-with-servers",
        options=("api_server_count", "headless"),
        test=_headless_servers,
        effect="refuses to start: a headless node runs no API server",
        since="0.9.1",
        source="entrypoints/cli/serve.py",
    ),
    Rule(
        name="nodes-with-executor",
        options=("distributed_executor_backend", "nnodes"),
        test=_nodes_executor,
        effect="refuses to start: several nodes without a cluster need the executor mp",
        since="0.11.1",
        source="config/parallel.py",
    ),
    Rule(
        name="cpu-loras-below-loras",
        options=("max_cpu_loras", "max_loras"),
        test=_below("max_cpu_loras", "max_loras"),
        effect="refuses to start: adapters on the GPU are kept in host memory too",
        source="config/lora.py:122",
    ),
    Rule(
        name="adapters-without-lora",
        options=("lora_modules",),
        test=_alone("lora_modules", "enable_lora"),
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
        test=_connector_without_role,
        effect="refuses to start: kv_role is kv_producer, kv_consumer or kv_both",
        since="0.8.0",
        source="config/kv_transfer.py",
        cure="none",
    ),
    Rule(
        name="connector-role-unknown",
        options=("kv_transfer_config",),
        test=_role_unknown,
        effect="refuses to start: kv_role is kv_producer, kv_consumer or kv_both",
        since="0.6.5",
        source="config/kv_transfer.py:114 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="speculative-without-model",
        options=("speculative_config",),
        test=_speculative_without_model,
        effect='refuses to start: "num_speculative_tokens was provided but without speculative model"',
        since="0.9.0",
        source="config/speculative.py:1188 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="external-balancing-without-rank",
        options=("data_parallel_external_lb", "data_parallel_size"),
        test=_external_without_rank,
        effect="refuses to start: each replica behind an external balancer is told its rank",
        since="0.32.0",
        source="engine/arg_utils.py:2427 of 0.32.0",
        cure="none",
    ),
    Rule(
        name="nodes-without-address",
        options=("nnodes",),
        test=_nodes_without_address,
        effect="takes 127.0.0.1: the nodes never find each other unless all are this machine",
        severity="warning",
        source="config/parallel.py:313 of 0.32.0 (master_addr)",
        cure="none",
    ),
    Rule(
        name="host-is-url",
        options=("host",),
        test=_host_is_url,
        effect="cannot listen on it and stops: an address or a name is wanted",
        source="entrypoints/openai/api_server.py, create_server_socket (bind)",
        cure="none",
    ),
    Rule(
        name="memory-share-above-one",
        options=("gpu_memory_utilization",),
        test=_share_above_one,
        effect='refuses to start: "GPU memory utilization must be less than 1.0"',
        until="0.11.0",
        source="config/cache.py, _verify_args; a bound of the field from 0.11.1 on",
        cure="none",
    ),
    Rule(
        name="steps-with-speculation",
        options=("num_scheduler_steps", "speculative_model"),
        test=_steps("speculative_model"),
        effect="refuses to start: multi-step scheduling and speculation exclude each other",
        until="0.8.2",
        source="engine/arg_utils.py, create_engine_config",
    ),
    Rule(
        name="speculation-with-chunks",
        options=("enable_chunked_prefill", "speculative_model"),
        test=_together("enable_chunked_prefill", "speculative_model"),
        effect='refuses to start: "Speculative decoding and chunked prefill are currently mutually '
        'exclusive"',
        until="0.6.3.post1",
        source="config.py, maybe_create_spec_config",
    ),
    Rule(
        name="lora-with-chunks",
        options=("enable_chunked_prefill", "enable_lora"),
        test=_together("enable_chunked_prefill", "enable_lora"),
        effect='refuses to start: "LoRA is not supported with chunked prefill yet"',
        until="0.6.4.post1",
        source="config.py, verify_with_scheduler_config",
    ),
    Rule(
        name="memory-share-unused",
        options=("gpu_memory_utilization", "kv_cache_memory_bytes"),
        test=_together("gpu_memory_utilization", "kv_cache_memory_bytes"),
        effect="ignores --gpu-memory-utilization for the KV cache",
        severity="info",
        since="0.10.2",
        source="config/cache.py, kv_cache_memory_bytes",
    ),
    Rule(
        name="graphs-unused",
        options=("cudagraph_capture_sizes", "max_cudagraph_capture_size", "enforce_eager"),
        test=_eager_levels,
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
        test=lambda values: (
            f"--swap-space {values['swap_space']:g} is given"
            if _number(values.get("swap_space")) and values["swap_space"] > 0
            else None
        ),
        effect="never swaps (the V1 engine recomputes) and only checks that the host has the memory",
        severity="warning",
        since="0.11.0",
        until="0.17.1",
        source="config/cache.py, verify_with_parallel_config",
    ),
)
