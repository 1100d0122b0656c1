"""Names and versions of NVIDIA's libraries."""

from __future__ import annotations

import re

import pytest

from infer_doctor.catalog.libraries import (
    NAMES,
    STEMS,
    digits_of,
    family_of,
    libraries_of,
    library_of,
    older,
    version_of_mark,
)


@pytest.mark.parametrize(
    ("name", "library", "digits"),
    [
        ("libcudart.so.13.0.96", "cudart", "13.0.96"),
        ("libcublasLt.so.13", "cublasLt", "13"),
        ("libcudnn_engines_runtime_compiled.so.9", "cudnn_engines_runtime_compiled", "9"),
        ("libnvrtc-builtins.so.13.0", "nvrtc-builtins", "13.0"),
        ("libcudart-d0da41ae.so.11.0", "cudart", "11.0"),
        ("libcuda.so", "cuda", ""),
        ("libnvidia-ml.so.580.159.04", "nvidia-ml", "580.159.04"),
        ("libcudadebugger.so.1", None, "1"),
        ("libcups.so.2", None, "2"),
        ("libnvrtc.alt.so.13", None, ""),
    ],
)
def test_names(name: str, library: str | None, digits: str) -> None:
    assert library_of(name) == library
    assert digits_of(name) == digits


def test_the_pattern_of_the_scan_finds_every_library() -> None:
    for stem in STEMS:
        assert re.fullmatch(NAMES, f"lib{stem}.so.1"), stem
        assert re.fullmatch(NAMES, f"lib{stem}-0123abcd.so.1.2"), stem
    for name in ("libcurl.so.4", "libnvme.so.1", "libcups.so.2", "libc.so.6", "libcudart.a"):
        assert not re.fullmatch(NAMES, name), name


@pytest.mark.parametrize(
    ("distribution", "libraries"),
    [
        ("nvidia-nccl-cu12", ("nccl",)),
        ("nvidia-cublas", ("cublas", "cublasLt")),
        ("nvidia-cublas-cu12", ("cublas", "cublasLt")),
        ("tensorrt-cu13-libs", ("nvinfer", "nvinfer_plugin")),
        ("nvidia-ml-py", ()),
        ("nvidia-cudnn-frontend", ()),
        ("torch", ()),
    ],
)
def test_distributions(distribution: str, libraries: tuple[str, ...]) -> None:
    assert libraries_of(distribution) == libraries


def test_families() -> None:
    assert family_of("cudnn_ops") == family_of("cudnn") == "nvidia-cudnn"
    assert family_of("cuda") == "driver"


@pytest.mark.parametrize(
    ("mark", "version"),
    [
        (0x091300, "9.19.0"),
        (0x090E00, "9.14.0"),
        (0, None),
        (1 << 30, None),
        (["NCCL version 2.28.9"], "2.28.9"),
        (["__nvJitLinkCreate_12_0", "__nvJitLinkCreate_12_10", "__nvJitLinkCreate_12_9"], "12.10"),
        ([], None),
        (None, None),
    ],
)
def test_marks(mark: object, version: str | None) -> None:
    assert version_of_mark(mark) == version


@pytest.mark.parametrize(
    ("version", "bound", "parts", "result"),
    [
        ("9.14.0", "9.19.0.56", None, True),
        ("9.19.0", "9.19.0.56", None, False),  # as far as both are written out
        ("13.0", "13.0.88", None, False),
        ("12.9.41", "13.0.88", 2, True),
        ("13.0.48", "13.0.88", 2, False),
        ("2.9", "2.28.9", None, True),
        ("", "1.0", None, False),
        ("unknown", "1.0", None, False),
    ],
)
def test_older(version: str, bound: str, parts: int | None, result: bool) -> None:
    assert older(version, bound, parts) is result
