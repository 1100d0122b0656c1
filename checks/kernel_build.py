"""What compiles CUDA kernels when the engine starts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.gpu import GpuCapabilities
from infer_doctor.facts.kernel_build import SAMPLER, CudaCompiler, FlashInfer
from infer_doctor.facts.machine import Environ
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.toolchain import (
    add_to_path,
    install_ninja,
    native_sampler,
    precompiled_kernels,
)
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check

LEAST, MOST = (8, 0), (12, 1)
"""Compute capabilities for which vLLM takes FlashInfer (v1/attention/backends/flashinfer.py:
supports_compute_capability, 0.26 and 0.32)."""


@check("toolchain-nvcc-missing", severity="error", category="missing_lib", since="0.1")
def nvcc_missing(
    engine: EngineFact,
    flashinfer: FlashInfer,
    compiler: CudaCompiler,
    capabilities: GpuCapabilities,
    environ: Environ,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
    torch: TorchBuild | None,
) -> Iterator[Finding]:
    """No nvcc or ninja where the engine compiles FlashInfer's kernels at its start.

    ## Why it matters
    vLLM samples a dummy batch while it measures memory, and FlashInfer compiles its sampler for
    that: "Could not find nvcc", "nvcc: not found" or "No such file or directory: 'ninja'", then
    "Engine core initialization failed" (vLLM issue 49497). It does not fall back.

    ## How it decides
    FlashInfer is installed, neither flashinfer-jit-cache nor a sampler that an earlier start left in
    ~/.cache/flashinfer is there, and a GPU has compute capability 8.0 to 12.1. The installed vLLM has
    VLLM_USE_FLASHINFER_SAMPLER on by default and does not ask for nvcc before it samples (read in
    its envs.py and topk_topp_sampler.py; so in 0.26 and 0.32), or the variable is set to 1. nvcc is
    looked for as FlashInfer does (jit/cpp_ext.py): CUDA_HOME or CUDA_PATH, else PATH, else
    /usr/local/cuda; ninja on PATH. A ninja that only lies beside the interpreter is a warning: with
    the environment activated it is found. For TensorRT-LLM a warning: it depends on the model.
    Not judged: DeepGEMM, which compiles for FP8 models only.

    ## Fix safety
    Safe: the variable changes the next start only. Installing packages is unsafe.
    """
    if flashinfer.prebuilt or flashinfer.compiled:
        return
    if not any(LEAST <= row <= MOST for row in capabilities.capabilities.values()):
        raise NotApplicable("vLLM does not use FlashInfer on these GPUs")
    chosen = environ.variables.get(SAMPLER, "").strip()
    if engine.name == "vllm" and not (chosen == "1" or (flashinfer.sampler and chosen != "0")):
        return
    weight: tuple[Severity, Confidence] = (
        ("error", "likely") if engine.name == "vllm" else ("warning", "possible")
    )
    least = (
        *((native_sampler(),) if engine.name == "vllm" else ()),
        precompiled_kernels(flashinfer.version, torch, interpreter, distributions),
    )
    who = f"FlashInfer {flashinfer.version} compiles its sampler when the engine starts"
    without = Evidence(
        source=f"flashinfer-python {flashinfer.version}",
        excerpt="no flashinfer_jit_cache, no compiled sampler in its cache",
    )
    if compiler.nvcc is None:
        yield Finding(
            about="nvcc",
            message=f"{who} and finds no nvcc ({compiler.wanted})",
            severity=weight[0],
            confidence=weight[1],
            evidence=(Evidence(source=compiler.wanted, excerpt="no bin/nvcc"), without),
            fixes=least,
        )
    if compiler.ninja is None:
        beside = compiler.ninja_beside
        yield Finding(
            about="ninja",
            message=f"{who} and finds no ninja on PATH"
            + (f"; one lies in {posixpath.dirname(beside)}" if beside else ""),
            severity="warning" if beside else weight[0],
            confidence="possible" if beside else weight[1],
            evidence=(Evidence(source="PATH", excerpt="no ninja"), without),
            fixes=(
                add_to_path(posixpath.dirname(beside), environ)
                if beside
                else install_ninja(interpreter, distributions),
                *least,
            ),
        )
