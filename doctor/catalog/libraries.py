"""NVIDIA's shared libraries: their names, which distribution brings which, where a version stands.

Sources, read 2026-11-30: the wheels of torch 2.11.0+cu130 (CUDA 13.0), nvidia-cudnn-cu13 9.14.0.64 and
9.19.0.56, nvidia-cuda-nvrtc-cu12 12.8.93, nvidia-nvjitlink-cu12 12.4.127; the packages of Debian and
Ubuntu by NVIDIA name files with all digits (libcudnn_ops.so.9.14.0), the wheels with the soname only.
"""

from __future__ import annotations

import re

from infer_doctor.versions import release

CUDNN_PARTS = (
    "cudnn_graph",
    "cudnn_ops",
    "cudnn_cnn",
    "cudnn_adv",
    "cudnn_heuristic",
    "cudnn_engines_precompiled",
    "cudnn_engines_runtime_compiled",
)
"""The libraries that libcudnn.so.9 opens at run time, in this order
(https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/overview.html)."""

OLD_CUDNN_PARTS = (
    "cudnn_ops_infer",
    "cudnn_ops_train",
    "cudnn_cnn_infer",
    "cudnn_cnn_train",
    "cudnn_adv_infer",
    "cudnn_adv_train",
)
"""Those of cuDNN 8."""

DISTRIBUTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("nvidia-cuda-runtime", ("cudart",)),
    ("nvidia-cublas", ("cublas", "cublasLt")),
    ("nvidia-cudnn", ("cudnn", *CUDNN_PARTS, *OLD_CUDNN_PARTS)),
    ("nvidia-cuda-nvrtc", ("nvrtc", "nvrtc-builtins")),
    ("nvidia-nccl", ("nccl",)),
    ("nvidia-nvjitlink", ("nvJitLink",)),
    ("nvidia-cusparselt", ("cusparseLt",)),
    ("nvidia-cusparse", ("cusparse",)),
    ("nvidia-cusolver", ("cusolver",)),
    ("nvidia-cufft", ("cufft",)),
    ("nvidia-curand", ("curand",)),
    ("nvidia-cufile", ("cufile",)),
    ("nvidia-cuda-cupti", ("cupti",)),
    ("nvidia-nvshmem", ("nvshmem_host",)),
    ("nvidia-nvtx", ("nvToolsExt",)),
    ("tensorrt", ("nvinfer", "nvinfer_plugin")),
)
"""Distribution without the mark of its CUDA (-cu12, -cu13-libs) -> its libraries."""

DRIVER = ("cuda", "nvidia-ml")
"""Libraries of the driver; no wheel brings them."""

STEMS = frozenset((*(stem for _, stems in DISTRIBUTIONS for stem in stems), *DRIVER))

NAMES = (
    r"lib(?:cu(?:da|dart|blas|dnn|sparse|solver|fft|rand|pti|file)|nccl"
    r"|nv(?:rtc|JitLink|shmem_host|ToolsExt|idia-ml|infer))[\w-]*\.so[.\d]*"
)
"""A pattern that every file name of these libraries matches, and few others."""

FILE_NAME = re.compile(r"lib([\w-]+?)(?:-[0-9a-f]{8})?\.so((?:\.\d+)*)")
"""Stem and the digits after .so; old wheels of torch put 8 hex digits into names."""

NAMED_BY_CUDA = ("cudart", "cublas", "cublasLt", "nvrtc", "nvrtc-builtins", "nvJitLink", "cupti")
"""Libraries whose soname begins with the major of their CUDA; cuFFT, cuSPARSE and others count on
their own (libcufft.so.12 belongs to CUDA 13)."""

MARKS = {
    "cudnn_graph": ("value", "cudnn_graph_version"),
    "cudnn_ops": ("value", "cudnn_ops_infer_version"),
    "cudnn_adv": ("value", "cudnn_adv_infer_version"),
    "nccl": ("texts", r"NCCL version \d+(?:\.\d+)+"),
    "nvJitLink": ("names", r"__nvJitLinkCreate_\d+_\d+"),
}
"""Library -> kind of mark and what to look for (hands/libraries.py). The value 0x091300 is cuDNN 9.19.0:
read in 9.14.0 and 9.19.0. nvJitLink exports a function for each version it understands."""

BUILTINS = ("texts", r"libnvrtc-builtins\.so\.\d+\.\d+")
"""The one name that libnvrtc opens, among its constants."""


def library_of(name: str) -> str | None:
    """ "cublasLt" for libcublasLt.so.13; None for a file that is none of these libraries."""
    found = FILE_NAME.fullmatch(name)
    return found[1] if found and found[1] in STEMS else None


def digits_of(name: str) -> str:
    """ "13.0.96" for libcudart.so.13.0.96, "" for libcudart.so."""
    found = FILE_NAME.fullmatch(name)
    return found[2][1:] if found else ""


def family_of(library: str) -> str:
    """The distribution that brings a library, without the mark of its CUDA; "driver" for the driver's."""
    return next((name for name, stems in DISTRIBUTIONS if library in stems), "driver")


def libraries_of(distribution: str) -> tuple[str, ...]:
    """The libraries of a distribution, by its normalised name."""
    plain = re.sub(r"(?:-cu\d+)?(?:-libs)?$", "", distribution)
    return next((stems for name, stems in DISTRIBUTIONS if name == plain), ())


def version_of_mark(mark: object) -> str | None:
    """The version that a mark stands for: ["NCCL version 2.28.9"] -> "2.28.9", 0x091300 -> "9.19.0"."""
    if isinstance(mark, int):
        return f"{mark >> 16}.{mark >> 8 & 255}.{mark & 255}" if 0 < mark < 1 << 24 else None
    found = [re.findall(r"\d+", text) for text in mark] if isinstance(mark, list) else []
    newest = max((tuple(map(int, digits)) for digits in found if digits), default=None)
    return ".".join(map(str, newest)) if newest else None


def older(version: str, bound: str, parts: int | None = None) -> bool:
    """Whether a version is below a bound, as far as both are written out, or in the first parts."""
    left, right = release(version), release(bound)
    length = min(len(left), len(right), parts or len(left))
    return left[:length] < right[:length]
