"""Kernels that are compiled for one torch, beside another."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.environment import Distributions, Interpreter
from infer_doctor.facts.torch import TorchBuild
from infer_doctor.facts.torch_extensions import TorchExtension, TorchExtensions
from infer_doctor.fixes.torch import without_extension
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.requirements import release_of, torch_fits

NEW_ABI_ALONE = (2, 7)
"""From this torch on all its wheels have the new ABI of libstdc++: torch's release notes of 2.6 and 2.7
(https://github.com/pytorch/pytorch/releases)."""


@check("torch-extension-mismatch", severity="warning", category="abi_symbol", since="0.1")
def extension_mismatch(
    extensions: TorchExtensions,
    torch: TorchBuild,
    interpreter: Interpreter | None,
    distributions: Distributions | None,
) -> Iterator[Finding]:
    """flash-attn, xformers or the like is compiled for another torch.

    ## Why it matters
    Its import ends with "undefined symbol" (flash_attn_2_cuda...: _ZN3c10...). transformers and some
    of vLLM's models import it where it is installed; vLLM has told it as "Cannot use FlashAttention
    because the package is not found" (issue 3912).

    ## How it decides
    What the wheel's name says, kept by pip in the version or in direct_url.json
    (+cu12torch2.8cxx11abiTRUE), or a pin torch==X in the metadata (xformers), against torch/version.py:
    another major or minor of torch, another CUDA major, or the old ABI beside torch 2.7 and later.
    A package that was compiled here says nothing, and nothing is said of it. A warning, since models
    for text alone start without it.

    ## Fix safety
    Unsafe: pip changes the environment.
    """
    if not extensions.rows:
        raise NotApplicable("none of them is installed")
    for row in extensions.rows:
        wants = _other(row, torch)
        if wants is not None:
            yield Finding(
                about=row.name,
                message=f"{row.name} {row.version} is compiled for {wants}; torch is {torch.version}",
                confidence="likely",
                evidence=(
                    Evidence(source=row.source, excerpt=f"{row.name} {row.version}"),
                    Evidence(source=torch.source, excerpt=f"torch {torch.version}"),
                ),
                fixes=(without_extension(row.name, torch, interpreter, distributions),),
            )


def _other(row: TorchExtension, torch: TorchBuild) -> str | None:
    """What it wants, if that is not this torch."""
    release = release_of(torch.version)[:2]
    if row.pin is not None and not torch_fits(row.pin, torch.version):
        return row.pin.partition(";")[0].strip()
    if row.torch is not None and release and row.torch != ".".join(map(str, release)):
        return f"torch {row.torch}"
    if row.cuda is not None and torch.cuda and row.cuda != torch.cuda.partition(".")[0]:
        return f"CUDA {row.cuda}"
    if row.abi is False and release >= NEW_ABI_ALONE:
        return "the old ABI of libstdc++ (cxx11abiFALSE)"
    return None
