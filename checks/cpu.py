"""The processor under an engine that computes on it."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.vllm_cpu import ARM, X86, library_for
from infer_doctor.facts.cpu import CPU_INFO, CpuFeatures
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.facts.machine import Identity
from infer_doctor.fixes.host import other_cpu
from infer_doctor.host import Unavailable
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check


@check("host-cpu-instructions", severity="error", category="arch_no_kernel", since="0.1")
def cpu_instructions(
    engine: EngineFact, cpu: CpuFeatures, parts: EngineParts, identity: Identity
) -> Iterator[Finding]:
    """The processor lacks instructions that this CPU build of vLLM is compiled with.

    ## Why it matters
    The worker dies with "Illegal instruction" (SIGILL), without a word of vLLM. Virtual machines
    whose CPU model is the hypervisor's default often hide AVX2 of the real processor.

    ## How it decides
    vLLM picks one of three libraries (vllm/platforms/cpu.py, import_kernels, 0.32): _C with
    avx512_bf16, _C_AVX512 with avx512f, else _C_AVX2. Its cmake/cpu_extension.cmake compiles them
    with -mavx2 -mf16c, and with -mavx512f -mavx512vl -mavx512bw -mavx512dq. On aarch64 the one
    library is compiled for armv8.2-a with dotprod and fp16 (asimddp, asimdhp). Compared with the
    first processor in /proc/cpuinfo. A build with a single _C for x86 does not tell what it was
    compiled with, and is not judged.

    ## Fix safety
    Manual: another machine, another CPU model of the virtual machine, or a build of one's own.
    """
    if identity.machine == "x86_64":
        library = library_for(cpu.features)
        if "_C_AVX2.abi3.so" not in parts.libraries:
            raise Unavailable(f"what {engine.package}/_C was compiled with cannot be told")
        needed = X86[library]
    elif identity.machine == "aarch64":
        library, needed = "_C", ARM
    else:
        raise Unavailable(f"what vLLM needs on {identity.machine} is not in the catalogue")
    missing = [name for name in needed if name not in cpu.features]
    if not missing:
        return
    yield Finding(
        about="cpu",
        message=f"{cpu.model} has no {', '.join(missing)}; {library}, which vLLM loads on it, is "
        f"compiled with {', '.join(needed)}",
        confidence="likely",
        evidence=(
            Evidence(source=CPU_INFO, excerpt=f"{cpu.model}: no {', '.join(missing)}"),
            Evidence(source=engine.package, excerpt=", ".join(parts.libraries)),
        ),
        fixes=(other_cpu(missing),),
    )
