"""What engines put into /dev/shm, and since when vLLM refuses to start without the room.

vLLM's queues between the engine and its ranks are rings of equal chunks plus one byte of flags a
reader and chunk (distributed/device_communicators/shm_broadcast.py, ShmRingBuffer). Read in the
sources of 0.8.5, 0.10.2, 0.11.2, 0.12.0, 0.14.1, 0.18.1, 0.22.1, 0.25.1, 0.26.0, 0.27.0 and 0.32.0
(2026-11); the sizes of 0.32 were also seen in /dev/shm (167,772,180 and 251,658,260 bytes with one
rank) and in its errors on a /dev/shm of 64 and of 200 MiB.
"""

from __future__ import annotations

from infer_doctor.units import GIB, MIB

REFUSES_SINCE = (0, 27)
"""check_shm_free_space: each ring needs its whole size free when it is made (vllm pull request
48879; not in 0.26.0, in 0.27.0). Before, pages came when they were written, and a full /dev/shm
killed the rank with SIGBUS."""

CHUNKS = 10
CHUNK = "VLLM_MQ_MAX_CHUNK_BYTES_MB"
BROADCAST_CHUNK_MIB = 16
"""Default of CHUNK, known since 0.9.1 (envs.py); 10 MiB before."""
BROADCAST_CHUNK_MIB_BEFORE = 10
CHUNK_VARIABLE_SINCE = (0, 9)

RESPONSE_RING = 24 * MIB * CHUNKS
"""One a rank, MessageQueue(1, 1) (v1/executor/multiproc_executor.py:624), whatever the variable says;
between nodes it is GROUP_RING."""

GROUP_RING = 4 * MIB * 6
"""One a tensor-parallel group: 1 << 22 bytes, 6 chunks (distributed/parallel_state.py:565)."""

TENSOR_ARENA = 256 * MIB * 8
"""With --enable-shm-tensor-arena (distributed/device_communicators/shm_tensor_arena.py:54)."""

NVIDIA_RECOMMENDS = 1 * GIB
"""--shm-size=1g: NCCL user guide, "Runtime and MPI issues", shared memory (https://docs.nvidia.com/
deeplearning/nccl/user-guide/docs/troubleshooting/runtime_and_mpi_issues.html)."""

DOCKER_DEFAULT = 64 * MIB
"""Docker's and Kubernetes' /dev/shm. NVIDIA's images say at start that it "may be insufficient"
(their /opt/nvidia/entrypoint.d compares the size with 65536 KiB) and recommend --ipc=host."""


def broadcast_ring(version: tuple[int, ...] | None, variable: str | None) -> int:
    """Bytes of the ring that carries each step's work to all ranks; requests fill it."""
    if version is not None and version < CHUNK_VARIABLE_SINCE:
        return BROADCAST_CHUNK_MIB_BEFORE * MIB * CHUNKS
    if variable is not None and variable.isascii() and variable.isdigit():
        return int(variable) * MIB * CHUNKS
    return BROADCAST_CHUNK_MIB * MIB * CHUNKS
