"""What each attention backend of vLLM 0.32 takes on NVIDIA GPUs.

Read from v1/attention/backends/*.py of 0.32.0 (supports_compute_capability, supported_dtypes,
supported_kv_cache_dtypes, get_supported_head_sizes, is_mla).
"""

from __future__ import annotations

from collections.abc import Callable

from infer_doctor.frozen import frozen

Capability = tuple[int, int]

BASE = ("auto", "float16", "bfloat16")
FP8 = ("fp8", "fp8_e4m3")


@frozen
class Backend:
    """What a backend takes; None is everything."""

    gpus: str
    """In words."""
    takes: Callable[[Capability], bool]
    mla: bool = False
    dtypes: tuple[str, ...] = ("float16", "bfloat16")
    caches: tuple[str, ...] | None = BASE
    heads: tuple[int, ...] | None = None


def _from(least: Capability) -> Callable[[Capability], bool]:
    return lambda capability: capability >= least


def _majors(*majors: int) -> Callable[[Capability], bool]:
    return lambda capability: capability[0] in majors


BACKENDS: dict[str, Backend] = {
    "FLASH_ATTN": Backend(gpus="8.0 and up", takes=_from((8, 0)), caches=(*BASE, *FP8)),
    "FLASHINFER": Backend(
        gpus="8.0 to 12.1",
        takes=lambda capability: (8, 0) <= capability <= (12, 1),
        caches=(*BASE, *FP8, "fp8_e5m2", "nvfp4", "nvfp4_4over6"),
        heads=(64, 128, 256, 512),
    ),
    "TRITON_ATTN": Backend(
        gpus="all",
        takes=lambda capability: True,
        dtypes=("float16", "bfloat16", "float32"),
        caches=(
            *BASE,
            *FP8,
            "fp8_e5m2",
            "int4_per_token_head",
            "int8_per_token_head",
            "fp8_per_token_head",
        ),
    ),
    "FLEX_ATTENTION": Backend(
        gpus="all",
        takes=lambda capability: True,
        dtypes=("float16", "bfloat16", "float32"),
    ),
    "CUTLASS_MLA": Backend(gpus="10.x", takes=_majors(10), mla=True, caches=(*BASE, *FP8)),
    "FLASH_ATTN_MLA": Backend(gpus="9.x", takes=_majors(9), mla=True),
    "FLASHINFER_MLA": Backend(gpus="10.x", takes=_majors(10), mla=True, caches=(*BASE, *FP8)),
    "FLASHMLA": Backend(gpus="9.x and 10.x", takes=_majors(9, 10), mla=True, caches=(*BASE, *FP8)),
    "TRITON_MLA": Backend(
        gpus="all", takes=lambda capability: True, mla=True, caches=(*BASE, *FP8)
    ),
}

FLASH_HEAD = 256
"""The largest head of FLASH_ATTN without FlashAttention 4 (512 with it, on 10.x)."""

FLASH_4 = 10
"""The major capability with FlashAttention 4."""

FLASH_FP8: tuple[int, ...] = (9, 10)
"""Major capabilities with a FlashAttention that reads an fp8 cache (3 on 9.0, 4 on 10.x)."""

E4M3_IN_TRITON: Capability = (8, 9)
"""Below it Triton has no e4m3: "type fp8e4nv not supported in this architecture"
(vllm-project/vllm issues 26431 and 17581)."""
