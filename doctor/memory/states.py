"""Layers with a state of fixed size, out of config.json."""

from __future__ import annotations

from infer_doctor.memory.architecture import Config, State, positive

SSM_KERNEL = 4


def delta_net(config: Config) -> State:
    """Gated delta net of Qwen3-Next (transformers, modeling_qwen3_next.py)."""
    hidden = positive(config, "hidden_size")
    keys = positive(config, "linear_num_key_heads")
    values = positive(config, "linear_num_value_heads")
    key_dim = positive(config, "linear_key_head_dim") * keys
    value_size = positive(config, "linear_value_head_dim")
    value_dim = value_size * values
    kernel = positive(config, "linear_conv_kernel_dim", default=SSM_KERNEL)
    channels = 2 * key_dim + value_dim
    projections = hidden * (2 * key_dim + 2 * value_dim + 2 * values) + value_dim * hidden
    return State(
        kind="gdn",
        channels=channels,
        kernel=kernel,
        shape=(values, value_size, positive(config, "linear_key_head_dim")),
        full_precision=str(config.get("mamba_ssm_dtype", "")) == "float32",
        parameters=projections + channels * kernel + 2 * values + value_size,
    )


def mamba(config: Config, prefix: str) -> State:
    """Mamba 1, alone or in Jamba (transformers, modeling_mamba.py)."""
    hidden = positive(config, "hidden_size")
    state = positive(config, f"{prefix}d_state", "state_size", default=16)
    kernel = positive(config, f"{prefix}d_conv", "conv_kernel", default=SSM_KERNEL)
    inner = positive(config, "intermediate_size", default=2 * hidden)
    if prefix:
        inner = hidden * positive(config, "mamba_expand", default=2)
    rank = config.get(f"{prefix}dt_rank", config.get("time_step_rank"))
    if not isinstance(rank, int) or isinstance(rank, bool):
        rank = -(-hidden // 16)
    parameters = (
        hidden * 2 * inner
        + inner * kernel
        + inner
        + inner * (rank + 2 * state)
        + rank * inner
        + inner
        + inner * state
        + inner
        + inner * hidden
        + ((rank + 2 * state) if prefix else 0)
    )
    return State(
        kind="mamba", channels=inner, kernel=kernel, shape=(inner, state), parameters=parameters
    )


def mamba2(config: Config) -> State:
    """Mamba 2 (transformers, modeling_mamba2.py)."""
    hidden = positive(config, "hidden_size")
    heads = positive(config, "mamba_num_heads", "num_heads")
    inner = hidden * positive(config, "expand", default=2)
    if config.get("mamba_head_dim") is not None:
        inner = heads * positive(config, "mamba_head_dim")
    state = positive(config, "ssm_state_size", "state_size", default=128)
    groups = positive(config, "n_groups", default=8)
    kernel = positive(config, "conv_kernel", default=SSM_KERNEL)
    channels = inner + 2 * groups * state
    parameters = (
        hidden * (2 * inner + 2 * groups * state + heads)
        + channels * (kernel + 1)
        + 3 * heads
        + inner
        + inner * hidden
    )
    return State(
        kind="mamba2",
        channels=channels,
        kernel=kernel,
        shape=(heads, inner // heads, state),
        full_precision=config.get("mamba_ssm_cache_dtype") == "float32",
        parameters=parameters,
    )
