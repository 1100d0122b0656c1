"""What the libraries of vLLM's CPU build are compiled with.

Sources, read 2026-11-30: vllm/platforms/cpu.py of 0.32 (import_kernels) and cmake/cpu_extension.cmake of
vllm-project/vllm at 020450946f: -mf16c for x86_64 at all, -mavx2, -mavx512f -mavx512vl -mavx512bw
-mavx512dq; -march=armv8.2-a+dotprod+fp16, with +bf16 only where the build machine had it.
"""

from __future__ import annotations

from collections.abc import Collection

WIDE = ("avx512f", "avx512vl", "avx512bw", "avx512dq", "f16c")

X86 = {"_C": WIDE, "_C_AVX512": WIDE, "_C_AVX2": ("avx2", "f16c")}
"""Library -> names of /proc/cpuinfo."""

ARM = ("asimddp", "asimdhp")
"""What the kernel calls dotprod and fp16."""


def library_for(features: Collection[str]) -> str:
    """The library that vLLM picks on x86."""
    if "avx512f" not in features:
        return "_C_AVX2"
    return "_C" if "avx512_bf16" in features else "_C_AVX512"
