"""Which driver runs which CUDA.

Sources, read 2026-11-30:
- CUDA Toolkit release notes, tables "Minimum Required Driver Version for CUDA Minor Version
  Compatibility" and "CUDA Toolkit and Corresponding Driver Versions"
  https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/
- CUDA Compatibility, https://docs.nvidia.com/deploy/cuda-compatibility/
"""

from __future__ import annotations

MINIMUM_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""CUDA major -> the oldest Linux driver that runs any toolkit of that major."""

TOOLKIT_DRIVER = {
    (11, 1): "455.23",
    (11, 2): "460.27.03",
    (11, 3): "465.19.01",
    (11, 4): "470.42.01",
    (11, 5): "495.29.05",
    (11, 6): "510.39.01",
    (11, 7): "515.43.04",
    (11, 8): "520.61.05",
    (12, 0): "525.60.13",
    (12, 1): "530.30.02",
    (12, 2): "535.54.03",
    (12, 3): "545.23.06",
    (12, 4): "550.54.14",
    (12, 5): "555.42.02",
    (12, 6): "560.28.03",
    (12, 8): "570.26",
    (12, 9): "575.51.03",
    (13, 0): "580.65.06",
    (13, 1): "590.44.01",
    (13, 2): "595.45.04",
}
"""CUDA (major, minor) -> the Linux driver of its first release: from here on nothing is limited."""


NVML_MISMATCH = 18
"""NVML_ERROR_LIB_RM_VERSION_MISMATCH."""

NVML_NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION."""

NVML_FAULTS = {
    4: "no permission to reach the driver",
    8: "a GPU has no power cable attached",
    9: "the driver says that it is not loaded",
    10: "the driver did not answer in time",
    11: "an interrupt of the GPU is not served",
    14: "the information ROM of a GPU is corrupted",
    15: "a GPU has fallen off the bus",
    16: "a GPU needs a reset",
    17: "the operating system blocks the GPU",
    20: "not enough memory",
    999: "unknown error of the driver",
}
"""nvmlReturn_t codes that speak of the driver or a GPU (nvml.h)."""
