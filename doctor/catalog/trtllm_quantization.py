"""Quantisation methods of TensorRT-LLM: since when, which GPUs, what needs calibration.

Sources, read 2026-11-30: tensorrt_llm/quantization/mode.py of 0.14 and 1.1, the table of
docs/source/features/quantization.md (PyTorch backend, 09d4c79b), the support matrix of 0.14, the
release notes of 0.15 to 1.0.
"""

from __future__ import annotations

Capability = tuple[int, int]

SINCE: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        (
            "W8A16",
            "W4A16",
            "W4A16_AWQ",
            "W4A8_AWQ",
            "W4A16_GPTQ",
            "W8A8_SQ_PER_CHANNEL",
            "W8A8_SQ_PER_TENSOR_PLUGIN",
            "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN",
            "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN",
            "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN",
            "FP8",
            "FP8_PER_CHANNEL_PER_TOKEN",
            "INT8",
            "MIXED_PRECISION",
            "NO_QUANT",
        ),
        (0, 0),
    ),
    "W8A16_GPTQ": (0, 15),
    "W4A8_QSERVE_PER_GROUP": (0, 15),
    "W4A8_QSERVE_PER_CHANNEL": (0, 15),
    "FP8_BLOCK_SCALES": (0, 18),
    "NVFP4": (0, 17),
    "W4A8_NVFP4_FP8": (1, 0),
    "W4A8_MXFP4_FP8": (0, 21),
    "W4A8_MXFP4_MXFP8": (1, 0),
    "W4A16_MXFP4": (1, 0),
    "NVFP4_AWQ": (1, 2),
}
"""Methods -> the first release that surely has them; those of 0.14 count as always there."""

LEAST: dict[str, Capability] = {
    "FP8": (8, 9),
    "FP8_PER_CHANNEL_PER_TOKEN": (8, 9),
    "FP8_BLOCK_SCALES": (8, 9),
    "W4A8_AWQ": (8, 9),
    "W4A8_QSERVE_PER_GROUP": (8, 0),
    "W4A8_QSERVE_PER_CHANNEL": (8, 0),
    "NVFP4": (10, 0),
    "NVFP4_AWQ": (10, 0),
    "W4A8_NVFP4_FP8": (10, 0),
    "W4A8_MXFP4_FP8": (10, 0),
    "W4A8_MXFP4_MXFP8": (10, 0),
    "W4A16_AWQ": (7, 5),
    "W4A16_GPTQ": (7, 5),
    "W8A16_GPTQ": (7, 5),
    "W8A8_SQ_PER_CHANNEL": (7, 5),
    "W8A8_SQ_PER_TENSOR_PLUGIN": (7, 5),
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": (7, 5),
    "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN": (7, 5),
    "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN": (7, 5),
}
"""The least compute capability. sm 8.9 got kernels for FP8 block scales in 0.21. SmoothQuant runs on
Turing (int8_gemm_template.h: Sm75 from 7.5, Sm80 from 8.0 to 9.0)."""

LEAST_KV: dict[str, Capability] = {"FP8": (8, 9), "NVFP4": (10, 0)}
"""FP8 on sm 8.0 and 8.6 is marked as supported, but no hardware converts it: a warning there."""

LEAST_DTYPE: dict[str, Capability] = {"bfloat16": (8, 0)}
"""`Pre SM 80 GPUs do not support bfloat16` (llm_utils.py:372 of 0.14)."""

NOT_CALIBRATED = ("W8A16", "W4A16", "FP8_PER_CHANNEL_PER_TOKEN")
"""No calibration data are needed (modeling_utils.py:129 of 0.14)."""


KV_BYTES: dict[str, float] = {"FP8": 1.0, "INT8": 1.0, "NVFP4": 0.5625}
"""Bytes of a number in the KV cache; NVFP4 with a scale of 8 bits for 16 numbers."""
