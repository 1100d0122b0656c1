"""Which GPUs run which machine code, and which code PyTorch's own builds have.

Sources, read 2026-11-30:
- torch 2.13.0, torch/cuda/__init__.py: DEVICE_REQUIREMENT (line 299) and PYTORCH_RELEASES_CODE_CC
  (line 326)
- https://docs.nvidia.com/cuda/ada-compatibility-guide: "supported to run on any GPU with the same
  major revision and same or higher minor revision of compute capability"; PTX on any newer one
- https://developer.nvidia.com/blog/nvidia-blackwell-and-nvidia-cuda-12-9-introduce-family-specific-architecture-features
  for the suffixes a (this capability only) and f (this family only)
"""

from __future__ import annotations

import re

Capability = tuple[int, int]

EMBEDDED = {(5, 3), (6, 2), (7, 2), (8, 7), (10, 1)}
"""Tegra: machine code for them and for the other GPUs of their major is not interchangeable."""

THOR = {(10, 1), (11, 0)}
"""One GPU with two numbers: CUDA 13 calls 11.0 what CUDA 12 called 10.1."""

BUILDS: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {
        "12.6": (50, 60, 70, 75, 80, 86, 90),
        "12.9": (75, 80, 86, 90, 100, 120),
        "13.0": (75, 80, 86, 90, 100, 120),
        "13.2": (75, 80, 86, 90, 100, 120),
    },
    "aarch64": {
        "12.6": (80, 90),
        "12.9": (80, 90, 100, 120),
        "13.0": (80, 90, 100, 110, 120),
        "13.2": (80, 90, 100, 110, 120),
    },
}
"""CUDA of a build -> its machine code, of torch 2.13; none of them has PTX in this table."""

ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def runs(arch: str, gpu: Capability) -> bool:
    """Whether code for `arch` (sm_86, sm_90a, compute_90) runs on a GPU of this capability."""
    found = ARCH.fullmatch(arch)
    if found is None:
        return False
    kind, suffix = found[1], found[4]
    code = (int(found[2]), int(found[3]))
    if suffix == "a":
        return code == gpu
    if {code, gpu} <= THOR:
        return True
    if kind == "compute":
        return code <= gpu and (suffix != "f" or code[0] == gpu[0])
    if code in EMBEDDED or gpu in EMBEDDED:
        return code == gpu
    return code[0] == gpu[0] and code[1] <= gpu[1]


def builds_for(gpu: Capability, machine: str) -> list[str]:
    """The CUDA versions of PyTorch's own builds that have code for this GPU."""
    builds = BUILDS.get(machine, {})
    return [cuda for cuda, codes in builds.items() if any(runs(f"sm_{c}", gpu) for c in codes)]
