"""Checks of what only a run can tell; all need `--deep`."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.facts.deep import CudaRun, Imports
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check

LARGEST_DEVIATION = 2.0**-9
"""Relative error of a 64 x 64 product: TF32 keeps 10 bits of mantissa, so 2^-11 an input, and sums of
64 terms of one sign do not grow it (https://docs.nvidia.com/cuda/cublas/); 4 times that is no rounding."""


@check("env-import-failed", severity="error", category="abi_symbol", since="0.1")
def import_failed(imports: Imports) -> Iterator[Finding]:
    """A module that the engine needs cannot be imported.

    ## Why it matters
    The engine imports it at its start and dies there, often several wrappers above the cause.

    ## How it decides
    torch, torchvision, torchaudio and the engine itself are imported in a child of the engine's
    own interpreter; what was raised is the finding. Needs `--deep`: it runs code of the engine.

    ## Fix safety
    No fix of its own: the checks of torch and the environment name the cause.
    """
    for module, error in imports.errors.items():
        if error is not None:
            first = error.strip().splitlines()[0]
            yield Finding(
                about=module,
                message=f"import {module} fails: {first}",
                category="missing_lib" if "cannot open shared object" in error else None,
                evidence=(Evidence(source=imports.source, excerpt=error),),
            )


@check("cuda-context-failed", severity="error", category="cuda_error", since="0.1")
def context_failed(cuda: CudaRun) -> Iterator[Finding]:
    """CUDA does not start, or a GPU refuses work.

    ## Why it matters
    The engine meets the same error when it creates its first tensor.

    ## How it decides
    torch.cuda.init() in a child of the engine's interpreter, then a product of two small matrices
    on each GPU. What was raised is the finding. Needs `--deep`.

    ## Fix safety
    No fix of its own: the code in the message says which one; the checks of the driver explain it.
    """
    if cuda.error is not None:
        yield Finding(
            about="cuda",
            message=f"CUDA does not start: {cuda.error.strip().splitlines()[0]}",
            evidence=(Evidence(source=cuda.source, excerpt=cuda.error),),
        )
    for device in cuda.devices:
        if device.error is not None:
            yield Finding(
                about=f"cuda:{device.index}",
                message=f"cuda:{device.index} refuses work: {device.error.strip().splitlines()[0]}",
                evidence=(Evidence(source=cuda.source, excerpt=device.error),),
            )


@check("cuda-result-wrong", severity="error", category="gpu_health", since="0.1")
def result_wrong(cuda: CudaRun) -> Iterator[Finding]:
    """A GPU computes wrong results.

    ## Why it matters
    The engine runs and answers nonsense; nothing else reports it.

    ## How it decides
    The product of two 64 x 64 matrices on the GPU against the same in double precision on the CPU;
    the largest deviation, relative to the largest value, must stay below 2^-9, four times what
    TF32 rounding explains. Needs `--deep`.

    ## Fix safety
    Manual: the GPU needs a diagnosis.
    """
    for device in cuda.devices:
        deviation = device.deviation
        if deviation is None or deviation < LARGEST_DEVIATION:
            continue
        yield Finding(
            about=f"cuda:{device.index}",
            message=f"cuda:{device.index} is off by {deviation:.1e} in a 64 x 64 product; "
            f"rounding explains {LARGEST_DEVIATION:.1e}",
            evidence=(Evidence(source=cuda.source, excerpt=f"deviation {deviation!r}"),),
        )
