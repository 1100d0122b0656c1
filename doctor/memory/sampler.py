"""What the sampler of a version holds for each logit of the profile run.

The profile samples with top-p and top-k at once (gpu_model_runner.py: _dummy_sampler_run), so the
way of the version to do both decides; its peak is what the engine takes out of the budget.
"""

from __future__ import annotations

from collections.abc import Mapping

V1 = 14
"""16-bit logits, float32 logits, probabilities and noise (v1/sample/sampler.py;
ops/topk_topp_sampler.py: forward_native with the Triton kernel, or FlashInfer's)."""

V2 = 2
"""The V2 runner keeps 16-bit logits only (v1/worker/gpu/sample/sampler.py)."""

SORTED = 38
"""PyTorch's way sorts all logits: on top come the sorted ones, their 64-bit places and the buffers of
the sort. Out of published starts: 38.3 (issue 27508: gpt-oss-120b, 0.11.0, 1,024 sequences), 35
(23278: 0.10.1), 38.1 (13061: the rank with the logits against the one without, 0.7.2), 37.1 (pull
request 10511: Llama 3 8B, 0.6.5), 37.3 (32558: measured alone)."""

TRITON_SINCE = (0, 17)
"""Pull request 33538 of February 2026 sorts no more; whether 0.16 has it was not read."""
TRITON_DOUBTFUL = (0, 16)

FLASHINFER = ((0, 9), (0, 11, 1))
"""Where FlashInfer's sampler was taken as soon as FlashInfer was installed (26859 ended it)."""


PROFILED_SINCE = (0, 8)
"""V1 that was chosen before it was the default profiled without the sampler, it seems: 22,096 tokens
of Llama 3.1 70B w8a8 on an H100 with 0.7.1 (pull request 12569), 13,776 with it and 23,392 without."""


def sampler_bytes(
    version: tuple[int, ...], runner: int, environment: Mapping[str, str]
) -> tuple[int, int]:
    """Bytes a logit, and how many of them may be wrong."""
    if runner == 2:
        return V2, 0
    if version >= TRITON_SINCE:
        return V1, 0
    if version < PROFILED_SINCE and environment.get("VLLM_USE_V1") == "1":
        return V1, SORTED - V1
    wanted = environment.get("VLLM_USE_FLASHINFER_SAMPLER")
    if version >= FLASHINFER[0] and wanted == "1":
        return V1, 0
    maybe = FLASHINFER[0] <= version < FLASHINFER[1] and wanted != "0"
    return SORTED, SORTED - V1 if maybe or version >= TRITON_DOUBTFUL else 0
