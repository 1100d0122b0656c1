"""The distributions of FlashInfer among each other."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.machine import Environ
from infer_doctor.fixes.packages import match_flashinfer
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

MAIN = "flashinfer-python"

JIT_CACHE = "flashinfer-jit-cache"

PARTS = (JIT_CACHE, "flashinfer-cubin")

BYPASS = "FLASHINFER_DISABLE_VERSION_CHECK"


@check("env-flashinfer-mixed", severity="error", category="kernel_lib_version", since="0.1")
def flashinfer_mixed(
    distributions: Distributions, environ: Environ, interpreter: Interpreter
) -> Iterator[Finding]:
    """FlashInfer's compiled kernels are of another version than FlashInfer.

    ## Why it matters
    `import flashinfer` ends with "flashinfer-jit-cache version (...) does not match flashinfer
    version (...)", and with it vLLM's sampler and its attention backend.

    ## How it decides
    flashinfer-cubin must have the version of flashinfer-python, that of flashinfer-jit-cache must
    begin with it (a mark such as +cu130 follows), by flashinfer/jit/env.py of 0.6.14, unless
    FLASHINFER_DISABLE_VERSION_CHECK is set.

    ## Fix safety
    Unsafe: pip changes the environment. A safe way for one start is the variable.
    """
    main = distributions.by_name.get(MAIN)
    parts = [row for name in PARTS if (row := distributions.by_name.get(name))]
    if main is None or not parts:
        raise NotApplicable("there are no compiled kernels of FlashInfer to compare")
    if environ.variables.get(BYPASS):
        raise NotApplicable(f"{BYPASS} is set")
    for part in parts:
        same = part.version == main.version
        if same or (part.name == JIT_CACHE and part.version.startswith(main.version)):
            continue
        yield Finding(
            about=part.name,
            message=f"{part.written_name} is {part.version}, {main.written_name} is {main.version}: "
            "FlashInfer refuses to be imported",
            evidence=(
                Evidence(source=main.metadata, excerpt=f"Version: {main.version}"),
                Evidence(source=part.metadata, excerpt=f"Version: {part.version}"),
            ),
            fixes=match_flashinfer(part, main, interpreter, distributions),
        )
