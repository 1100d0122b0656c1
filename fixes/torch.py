"""Fixes of torch and of what is built beside it."""

from __future__ import annotations

from collections.abc import Sequence

from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.torch import Companion, TorchBuild
from infer_doctor.fixes.environment import INDEX, install_packages, managed, remove_packages
from infer_doctor.model import Action, Fix


def index_of(torch: TorchBuild) -> str | None:
    """The folder of PyTorch's index with builds like this torch."""
    if torch.kind == "cuda":
        return f"{INDEX}/cu{(torch.cuda or '').replace('.', '')}"
    return f"{INDEX}/cpu" if torch.kind == "cpu" else None


def match_companions(
    rows: Sequence[Companion],
    torch: TorchBuild,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> tuple[Fix, ...]:
    """Remove them, or put in their place what fits this torch: the likelier wish first."""
    names = [row.name for row in rows]
    written = _listed([f"{row.name} {row.version}" for row in rows])
    first = torch.kind == "cpu"  # beside a torch for GPUs they are there for a reason
    remove = remove_packages(interpreter, distributions, *names)
    without = Fix(
        id="uninstall-companions",
        title=f"{'Uninstall' if first else 'Or uninstall'} {written}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "models for images, video or sound may need them",
        actions=(remove,),
    )
    index = index_of(torch)
    if index is None:
        return (without,)
    wanted = f"torch=={_declared(torch, distributions)}"
    add = install_packages(
        interpreter, distributions, wanted, *names, options=("--index-url", index)
    )
    fitting = Fix(
        id="install-fitting-companions",
        title=f"{'Or install' if first else 'Install'} the builds of {_listed(names)} that fit "
        f"torch {torch.version}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or f"only if {index} has them for this torch",
        actions=(remove, add),
    )
    return (without, fitting) if first else (fitting, without)


def _declared(torch: TorchBuild, distributions: Distributions | None) -> str:
    """The version in torch's metadata, which has no local part when it comes from PyPI."""
    known = distributions.by_name.get("torch") if distributions else None
    return known.version if known else torch.version


def _listed(words: Sequence[str]) -> str:
    """a, b and c."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def build_for(torch: TorchBuild, cuda: Sequence[str], capability: str) -> Fix:
    """A build of torch that has code for this GPU."""
    base = torch.version.partition("+")[0]
    if not cuda:
        return Fix(
            id="torch-for-gpu",
            title=f"Use a torch with code for compute capability {capability}, or another GPU",
            safety="manual",
            restarts=True,
            why="no CUDA build of PyTorch's own index in our catalogue has it: build torch with "
            "TORCH_CUDA_ARCH_LIST, or take an older or newer release",
        )
    builds = ", ".join(cuda)
    return Fix(
        id="torch-for-gpu",
        title=f"Install a torch for CUDA {builds}, whose builds have code for {capability}",
        safety="manual",
        restarts=True,
        why="the engine must be built for that torch too: take the engine's wheel for that CUDA",
        actions=(
            Action(
                kind="text",
                text=f"PyTorch's index for it: {INDEX}/cu{cuda[0].replace('.', '')} "
                f"(torch {base} if it is there)",
            ),
        ),
    )


def cuda_torch(
    wanted: str,
    torch: TorchBuild,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Fix:
    """Replace a torch for the CPU by the one the engine was built with."""
    return Fix(
        id="install-cuda-torch",
        title=f"Replace torch {torch.version} by the CUDA build of {wanted}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter)
        or "some gigabytes of CUDA libraries come with it; for a certain CUDA add "
        f"--index-url {INDEX}/cuXYZ",
        actions=(
            remove_packages(interpreter, distributions, "torch"),
            install_packages(interpreter, distributions, wanted),
        ),
    )


def without_extension(
    name: str,
    torch: TorchBuild,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Fix:
    """The engine has kernels of its own; a wheel for this torch has to be looked for."""
    return Fix(
        id=f"uninstall-{name}",
        title=f"Uninstall {name}, or install its wheel for torch {torch.version}",
        safety="unsafe",
        restarts=True,
        why=managed(interpreter) or "a model that needs it says so",
        actions=(remove_packages(interpreter, distributions, name),),
    )
