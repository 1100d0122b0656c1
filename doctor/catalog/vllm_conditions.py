"""The conditions of the rules in `vllm_rules`: each says in words what is wrong, or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from infer_doctor.catalog.vllm import LORA_RANKS

Values = Mapping[str, Any]
"""Options that are given, by the engine's name; what is not known is left out."""


def below(small: str, large: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        low, high = values.get(small), values.get(large)
        if not _number(low) or not _number(high) or low >= high:
            return None
        return f"{_flag(small)} {low:,} is below {_flag(large)} {high:,}"

    return test


def together(first: str, second: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        if not values.get(first) or not values.get(second):
            return None
        return f"{_flag(first)} and {_flag(second)} are both given"

    return test


def alone(name: str, needed: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        if not values.get(name) or values.get(needed):
            return None
        return f"{_flag(name)} is given without {_flag(needed)}"

    return test


def nested_twice(name: str, holder: str, key: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        inner = values.get(holder)
        if values.get(name) is None or not isinstance(inner, dict) or inner.get(key) is None:
            return None
        return f"{_flag(name)} and the key {key} of {_flag(holder)} are both given"

    return test


def batch_below_length(values: Values) -> str | None:
    if values.get("enable_chunked_prefill") is not False:
        return None
    return below("max_num_batched_tokens", "max_model_len")(values)


def speculative_without_method(values: Values) -> str | None:
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


def speculative_without_count(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or inner.get("method") not in COUNTED:
        return None
    elsewhere = any(values.get(name) is not None for name in ("spec_tokens", "spec_method"))
    if inner.get("num_speculative_tokens") is not None or elsewhere:
        return None
    return f"--speculative-config has the method {inner['method']}, but no num_speculative_tokens"


def speculative_parallel(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or "tensor_parallel_size" not in inner:
        return None
    return "--speculative-config has tensor_parallel_size"


def lookup_window(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict):
        return None
    low, high = inner.get("prompt_lookup_min"), inner.get("prompt_lookup_max")
    if not _number(low) or not _number(high) or low <= high:
        return None
    return f"prompt_lookup_min {low} is above prompt_lookup_max {high}"


def connector_without_role(values: Values) -> str | None:
    inner = values.get("kv_transfer_config")
    if not isinstance(inner, dict) or not inner.get("kv_connector") or inner.get("kv_role"):
        return None
    return "--kv-transfer-config has kv_connector without kv_role"


ROLES = ("kv_producer", "kv_consumer", "kv_both")


def role_unknown(values: Values) -> str | None:
    inner = values.get("kv_transfer_config")
    role = inner.get("kv_role") if isinstance(inner, dict) else None
    if not isinstance(role, str) or role in ROLES:
        return None
    return f"--kv-transfer-config has kv_role {role}"


DRAFTED = ("eagle", "eagle3", "medusa", "mlp_speculator", "draft_model")
"""Methods whose draft is a model of its own; the others have it in the target or need none."""


def speculative_without_model(values: Values) -> str | None:
    inner = values.get("speculative_config")
    if not isinstance(inner, dict) or inner.get("num_speculative_tokens") is None:
        return None
    if inner.get("method") not in DRAFTED or inner.get("model") or values.get("spec_model"):
        return None
    return f"--speculative-config has the method {inner['method']}, but no model"


def external_without_rank(values: Values) -> str | None:
    nodes, replicas = values.get("nnodes"), values.get("data_parallel_size")
    if not values.get("data_parallel_external_lb") or not _number(replicas) or replicas < 2:
        return None
    if values.get("data_parallel_rank") is not None or (_number(nodes) and nodes > 1):
        return None
    return "--data-parallel-external-lb is given without --data-parallel-rank"


def nodes_without_address(values: Values) -> str | None:
    nodes = values.get("nnodes")
    if not _number(nodes) or nodes < 2 or values.get("master_addr"):
        return None
    if values.get("distributed_executor_backend") not in (None, "mp"):
        return None
    return f"--nnodes {nodes} is given without --master-addr"


def host_is_url(values: Values) -> str | None:
    host = values.get("host")
    if not isinstance(host, str) or "://" not in host:
        return None
    return f"--host {host} is a URL"


def headless_servers(values: Values) -> str | None:
    count = values.get("api_server_count")
    if not values.get("headless") or not _number(count) or count < 1:
        return None
    return f"--headless and --api-server-count {count} are both given"


def nodes_executor(values: Values) -> str | None:
    nodes, backend = values.get("nnodes"), values.get("distributed_executor_backend")
    if not _number(nodes) or nodes < 2 or backend in (None, "mp", "uni", "external_launcher"):
        return None
    return f"--nnodes {nodes} and --distributed-executor-backend {backend} are both given"


def share_above_one(values: Values) -> str | None:
    share = values.get("gpu_memory_utilization")
    if not _number(share) or share <= 1:
        return None
    return f"--gpu-memory-utilization {share:g} is more than the whole memory (1.0)"


def rank_unknown(values: Values) -> str | None:
    rank = values.get("max_lora_rank")
    if not values.get("enable_lora") or not _number(rank) or rank in LORA_RANKS:
        return None
    return f"--max-lora-rank {rank:g} is none of {', '.join(map(str, LORA_RANKS))}"


def overrides_text(values: Values) -> str | None:
    value = values.get("hf_overrides")
    if not isinstance(value, str):
        return None
    quoted = ": the quotes around it are part of it" if value[:1] in ("'", '"') else ""
    return f"--hf-overrides {value[:60]} is no JSON object{quoted}"


def eager_levels(values: Values) -> str | None:
    if not values.get("enforce_eager"):
        return None
    names = ("cudagraph_capture_sizes", "max_cudagraph_capture_size", "cuda_graph_sizes")
    given = [name for name in names if values.get(name)]
    return f"--enforce-eager and {_flag(given[0])} are both given" if given else None


def steps(other: str) -> Callable[[Values], str | None]:
    def test(values: Values) -> str | None:
        steps = values.get("num_scheduler_steps")
        if not _number(steps) or steps < 2 or not values.get(other):
            return None
        return f"--num-scheduler-steps {steps} and {_flag(other)} are both given"

    return test


def swap_space_given(values: Values) -> str | None:
    size = values.get("swap_space")
    return f"--swap-space {size:g} is given" if _number(size) and size > 0 else None


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
