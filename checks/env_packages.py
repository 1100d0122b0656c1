"""Distributions that do not belong together, and a Python that the engine is not for."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Literal

from infer_doctor.catalog.packages import NVIDIA_SAME_PLACE, PYNVML_SINCE_ALIAS, TRTLLM_PYTHONS
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.engine_parts import EngineParts
from infer_doctor.facts.environment import Distribution, Distributions, Interpreter
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.fixes.environment import other_python
from infer_doctor.fixes.packages import keep_cuda, older_pynvml, only_nvidia_ml
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.requirements import fits_python, release_of, satisfied_by


@check("env-pynvml-deprecated", severity="warning", category="environment", since="0.1")
def pynvml_deprecated(
    engine: EngineFact,
    distributions: Distributions,
    interpreter: Interpreter,
    parts: EngineParts,
) -> Iterator[Finding]:
    """The deprecated distribution pynvml stands beside nvidia-ml-py, or breaks the engine.

    ## Why it matters
    Both bring the module `pynvml`. Before 12 the deprecated one is a package, which Python prefers
    to nvidia-ml-py's single file: it knows NVML up to driver 525 (no nvmlDeviceGetGpuFabricInfoV, for
    which FlashInfer asks). vLLM before 0.7.3 fails with it (issue 12847). Since 12 it is an empty
    wrapper: TensorRT-LLM up to 0.16 reads a `__version__` that is no longer there and cannot be
    imported (issue 2524), and 13 prints a FutureWarning in every process.

    ## How it decides
    Files of the wheels: 8.0 to 11.5.3 have pynvml/__init__.py, 12.0.0 and 13.0.1 only pynvml_utils;
    13 adds the .pth that warns. Before 12 beside nvidia-ml-py in one folder or before it on the
    path: a warning, info for a vLLM with a copy of its own (third_party/pynvml.py). From 12 on: an
    error when TensorRT-LLM declares pynvml in a way that 11.5.0 meets too (pynvml>=11.5.0 in 0.12
    to 0.16; 1.0 says ==12.0.0), else info for 13, and nothing for 12 or when the engine declares it.

    ## Fix safety
    Unsafe: pip changes the environment.
    """
    old = distributions.by_name.get("pynvml")
    if old is None:
        return
    new = distributions.by_name.get("nvidia-ml-py")
    version = release_of(old.version)
    declared = [
        line for own in engine.distributions for line in own.requires if re.match(r"pynvml\b", line)
    ]
    before = [line for line in declared if satisfied_by(line, "11.5.0")]
    if version >= (12,) and before and engine.name == "tensorrt-llm":
        own = engine.distributions[0]
        yield Finding(
            about="pynvml",
            message=f"pynvml {old.version} has no __version__; {own.written_name} {own.version} "
            f"was made for 11.5 ({before[0]}) and reads it",
            severity="error",
            confidence="likely",
            evidence=(
                Evidence(source=own.metadata, excerpt=f"Requires-Dist: {before[0]}"),
                Evidence(source=old.metadata, excerpt=f"Version: {old.version}"),
            ),
            fixes=(older_pynvml(interpreter, distributions),),
        )
        return
    if declared:
        return  # removing it would break what the engine declares
    both = (Evidence(source=old.metadata, excerpt=f"Version: {old.version}"),)
    if version >= (PYNVML_SINCE_ALIAS,):
        yield Finding(
            about="pynvml",
            message=f"pynvml {old.version} is only a name for nvidia-ml-py: it prints a "
            "FutureWarning in every process that imports pynvml",
            severity="info",
            evidence=both,
            fixes=(only_nvidia_ml(old, new, interpreter, distributions),),
        )
        return
    if version >= (12,) or new is None or _before(new, old, interpreter):
        return
    yield Finding(
        about="pynvml",
        message=f"`import pynvml` gives the package of pynvml {old.version}, which knows NVML up "
        f"to driver 525, not nvidia-ml-py {new.version}",
        severity="info" if parts.own_nvml else "warning",
        confidence="certain" if parts.own_nvml else "likely",
        evidence=(*both, Evidence(source=new.metadata, excerpt=f"Version: {new.version}")),
        fixes=(only_nvidia_ml(old, new, interpreter, distributions),),
    )


def _before(first: Distribution, second: Distribution, interpreter: Interpreter) -> bool:
    """Whether the folder of the first stands before that of the second on the path."""
    folders = interpreter.folders
    places = [posixpath.dirname(row.metadata) for row in (first, second)]
    if not all(place in folders for place in places):
        return False
    return folders.index(places[0]) < folders.index(places[1])


@check("env-cuda-wheels-mixed", severity="warning", category="kernel_lib_version", since="0.1")
def cuda_wheels_mixed(
    distributions: Distributions, torch: TorchBuild, interpreter: Interpreter
) -> Iterator[Finding]:
    """Wheels of two CUDA majors have written the same library files.

    ## Why it matters
    The wheel that was installed last has overwritten the other's files. When that is the one for
    the other CUDA, cuDNN looks for a cuBLAS that torch does not bring (CUDNN_STATUS_
    SUBLIBRARY_LOADING_FAILED); and uninstalling either wheel deletes the files of both.

    ## How it decides
    cuDNN, NCCL, cuSPARSELt and NVSHMEM lie in nvidia/cudnn/lib and so on, whatever the CUDA, and
    their sonames are the same (read in the wheels -cu12 and -cu13). Told when one of them is there
    for torch's CUDA major and for another. cuBLAS, the runtime, NVRTC and the others have folders
    and sonames of each major, so that two of them side by side are no finding; what a process loads
    of them is judged by cuda-library-majors-mixed.

    ## Fix safety
    Unsafe: all are removed, then the wheels for torch's CUDA are installed again.
    """
    if torch.kind != "cuda" or torch.cuda is None:
        raise NotApplicable(f"torch {torch.version} is not built for CUDA")
    major = torch.cuda.partition(".")[0]
    pairs = []
    for stem in NVIDIA_SAME_PLACE:
        wanted = distributions.by_name.get(f"{stem}-cu{major}")
        others = [
            row
            for name, row in distributions.by_name.items()
            if re.fullmatch(rf"{stem}-cu\d+", name) and row is not wanted
        ]
        if wanted is not None and others:
            pairs.append((wanted, others))
    if not pairs:
        return
    stray = [row for _, others in pairs for row in others]
    keep = [wanted for wanted, _ in pairs]
    written = ", ".join(f"{row.written_name} {row.version}" for row in stray)
    kept = ", ".join(f"{row.written_name} {row.version}" for row in keep)
    yield Finding(
        about="nvidia wheels",
        message=f"torch {torch.version} is for CUDA {torch.cuda}; {written} "
        f"{'has' if len(stray) == 1 else 'have'} the same files as {kept}",
        confidence="likely",
        evidence=(
            Evidence(source=torch.source, excerpt=f"cuda = {torch.cuda!r}"),
            *(
                Evidence(source=row.metadata, excerpt=f"Version: {row.version}")
                for row in (*stray, *keep)
            ),
        ),
        fixes=(keep_cuda(stray, keep, interpreter, distributions),),
    )


@check("env-python-unsupported", severity="error", category="environment", since="0.1")
def python_unsupported(
    engine: EngineFact, interpreter: Interpreter, parts: EngineParts | None
) -> Iterator[Finding]:
    """The engine is not made for this version of Python.

    ## Why it matters
    Compiled modules for another Python are not even seen: "No module named
    'tensorrt_llm.bindings'". Without them, syntax or packages that the version lacks end the start.

    ## How it decides
    The tags of the engine's own compiled modules (bindings.cpython-310-x86_64-linux-gnu.so is for
    3.10 alone; abi3 for all): an error, certain. Requires-Python of its metadata, read by
    `packaging`: an error, likely; pip refuses it, so it was forced or copied. TensorRT-LLM declares
    little (>=3.7, later >=3.10) and was released for 3.10 and 3.12 (its classifiers and
    documentation: catalog/packages.py): outside of these a warning.

    ## Fix safety
    Manual: another Python is another environment.
    """
    found = interpreter.full_version or interpreter.version
    own = engine.distributions[0] if engine.distributions else None
    spoken = f"{own.written_name} {own.version}" if own else engine.name
    if parts is not None and parts.pythons and interpreter.version not in parts.pythons:
        made = ", ".join(parts.pythons)
        yield _wrong_python(
            engine,
            interpreter,
            message=f"the compiled modules of {spoken} are for Python {made}; this is Python {found}",
            confidence="certain",
            evidence=Evidence(source=engine.package, excerpt=", ".join(parts.libraries[:3])),
            wanted=made,
        )
        return
    for row in engine.distributions:
        if row.requires_python and not fits_python(row.requires_python, interpreter):
            yield _wrong_python(
                engine,
                interpreter,
                message=f"{row.written_name} {row.version} declares Python {row.requires_python}; "
                f"this is Python {found}",
                confidence="likely",
                evidence=Evidence(
                    source=row.metadata, excerpt=f"Requires-Python: {row.requires_python}"
                ),
                wanted=row.requires_python,
            )
            return
    if engine.name == "tensorrt-llm" and not (parts and parts.pythons):
        known = TRTLLM_PYTHONS
        if interpreter.version not in known:
            yield _wrong_python(
                engine,
                interpreter,
                message=f"{spoken} is released for Python {' and '.join(known)}; this is Python {found}",
                confidence="possible",
                evidence=Evidence(source=engine.package, excerpt="no compiled module tells it"),
                wanted=" or ".join(known),
            )


def _wrong_python(
    engine: EngineFact,
    interpreter: Interpreter,
    *,
    message: str,
    confidence: Literal["certain", "likely", "possible"],
    evidence: Evidence,
    wanted: str,
) -> Finding:
    found = interpreter.full_version or interpreter.version
    return Finding(
        about="python",
        message=message,
        severity="warning" if confidence == "possible" else "error",
        confidence=confidence,
        evidence=(evidence, Evidence(source=interpreter.executable, excerpt=found)),
        fixes=(other_python(engine.name, wanted),),
    )
