"""What cuInit says: CUresult, its name and meaning.

Sources, read 2026-11-30:
- cuda.h, https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html (names and meanings)
- a machine with two H200, driver 580.159.04 (tests/captures/h200-x2/cuinit.txt): which set-up gives
  which code
"""

from __future__ import annotations

from typing import NamedTuple

from infer_doctor.model import Category


class CudaError(NamedTuple):
    """One code of cuInit."""

    name: str
    words: str
    category: Category = "cuda_error"


OUT_OF_MEMORY = 2
STUB = 34
NO_DEVICE = 100
INVALID_DEVICE = 101
OPERATING_SYSTEM = 304
SYSTEM_NOT_READY = 802
DRIVER_MISMATCH = 803
COMPAT_REFUSED = 804
MPS = range(805, 811)
UNKNOWN = 999

CUDA_ERRORS: dict[int, CudaError] = {
    1: CudaError("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    2: CudaError("CUDA_ERROR_OUT_OF_MEMORY", "no memory or address space for CUDA itself"),
    3: CudaError("CUDA_ERROR_NOT_INITIALIZED", "initialisation failed"),
    4: CudaError("CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"),
    34: CudaError("CUDA_ERROR_STUB_LIBRARY", "a stub libcuda.so.1 was loaded", "driver_cuda"),
    35: CudaError("cudaErrorInsufficientDriver", "the driver is too old", "driver_cuda"),
    36: CudaError("CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the driver is too old", "driver_cuda"),
    46: CudaError("CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is busy or refuses processes"),
    100: CudaError("CUDA_ERROR_NO_DEVICE", "no GPU that CUDA can use", "device_ids"),
    101: CudaError("CUDA_ERROR_INVALID_DEVICE", "a GPU that does not exist", "device_ids"),
    102: CudaError("CUDA_ERROR_DEVICE_NOT_LICENSED", "the vGPU has no licence", "gpu_health"),
    214: CudaError("CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error", "gpu_health"),
    220: CudaError("CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error", "gpu_health"),
    222: CudaError(
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "PTX of a toolkit that is newer than the driver",
        "driver_cuda",
    ),
    304: CudaError("CUDA_ERROR_OPERATING_SYSTEM", "a call to the operating system failed"),
    800: CudaError("CUDA_ERROR_NOT_PERMITTED", "not permitted"),
    801: CudaError("CUDA_ERROR_NOT_SUPPORTED", "not supported on this system"),
    802: CudaError("CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized", "fabric_manager"),
    803: CudaError(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "libcuda and the kernel module do not fit together",
        "driver_cuda",
    ),
    804: CudaError(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "forward compatibility was attempted on hardware that does not support it",
        "driver_cuda",
    ),
    805: CudaError("CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS daemon or server"),
    806: CudaError("CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed"),
    807: CudaError("CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server takes no clients yet"),
    808: CudaError("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has all its clients"),
    809: CudaError("CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "MPS has no connection left"),
    810: CudaError("CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client"),
    999: CudaError("CUDA_ERROR_UNKNOWN", "unknown error"),
}


def cuda_error(code: int) -> CudaError:
    """Name and meaning; a code that is not known keeps its number."""
    return CUDA_ERRORS.get(code) or CudaError(f"CUresult {code}", "not in the catalogue")


HMM_FAILED = "request_free_mem_region() err -34"
"""The kernel's message when CUDA cannot start on kernels with KASLR and heterogeneous memory: the
workaround is `options nvidia_uvm uvm_disable_hmm=1` (CUDA 13.2 release notes, known issues)."""

API_MISMATCH = "NVRM: API mismatch"
"""The kernel module's message about a client of another version (nvidia/nv.c)."""
