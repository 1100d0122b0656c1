"""TensorRT-LLM by release: TensorRT, CUDA, images, what each era can load.

Sources, read 2026-11-30: requirements and Dockerfiles of the release tags of
triton-inference-server/tensorrtllm_backend (v0.12 to v1.0, r25.06 to r26.07), the release notes of
NVIDIA/TensorRT-LLM, and docs.nvidia.com, "Triton Inference Server, Release Compatibility Matrix"
(container trtllm-python-py3); Triton 25.02 to 25.05 out of other people's files alone. None of
these releases was run for this table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from infer_doctor.frozen import frozen
from infer_doctor.versions import release

Version = tuple[int, ...]

Era = Literal["engine", "engine-first", "pytorch-first", "pytorch-only"]
"""engine: to 0.16; engine-first: 0.17 to 0.21, PyTorch by choice; pytorch-first: 1.0 to 1.2, engines
by choice; pytorch-only: the later ones of 1.3.0rc and 1.4, without engines."""

ENGINES_GONE = (1, 4)
"""The first release that surely has no engine path; it went during 1.3.0rc."""

ENGINES_IN_DOUBT = (1, 3)
"""1.3.0rc15 still had it, a checkout of 2026-08-22 (before rc24) had not."""

SERVE_SINCE = (0, 15)
"""trtllm-serve; 0.14 has only an example."""

CURRENT_FORM_SINCE = (0, 8)
"""config.json with version, pretrained_config and build_config; before: builder_config."""

MAIN_GUARD_SINCE = (0, 16)
"""LLM(...) spawns processes that import the main module again (release notes of 0.16)."""

CLI_WINS_SINCE = (1, 3)
"""From here explicit flags win over the file of extra options; before, the file overwrites them (since
0.20 for all keys, release notes). A serve.py of 1.3.0rc still overwrote: its candidates are undecided."""

PYTORCH_DEFAULT_SINCE = (1, 0)
"""The default of trtllm-serve and LLM(...) changed between the candidates of 1.0 (release notes)."""

REUSE_FITTED_SINCE = (0, 17)
"""KV cache reuse without paged context attention is turned off with a warning (release notes;
trtGptModelInflightBatching.cpp, fixExecutorConfig); before it ended the start."""

RUNTIME_LIMITS = ((0, 20), (1, 3))
"""From the one to before the other trtllm-serve gives LLM(...) its max_batch_size and max_num_tokens, also
the defaults of 2048 and 8192, and llm_args.py refuses what is more than the engine's build_config
(commands/serve.py of 0.20 and 1.1, validate_build_config_with_runtime_params; a log of 1.1.0). serve.py
of 0.19 put them into a build_config that is ignored for engines, that of 1.3.0rc leaves defaults out."""

WINDOW_FITTED_SINCE = (0, 12)
"""A KV cache for less than one sequence shortens the sequence; before it ended the start
(kvCacheManager.cpp, "must be large enough to process at least 1 sequence")."""

CHUNKING_FITTED_SINCE = (0, 16)
"""The same of chunked context (release notes; executorImpl.cpp, fixExecutorConfig)."""


@frozen
class Release:
    """What one minor release was built with. `cuda` is that of its image."""

    version: Version
    tensorrt: str | None
    cuda: str | None
    triton: tuple[str, ...]
    """Tags YY.MM of nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3 that hold it."""
    python: tuple[str, ...] = ()


RELEASES: tuple[Release, ...] = (
    Release(version=(0, 9), tensorrt=None, cuda="12.3.2", triton=("24.05",)),
    Release(version=(0, 10), tensorrt="10.0.1.6", cuda="12.4.0", triton=("24.06",)),
    Release(version=(0, 11), tensorrt="10.1.0", cuda="12.4.1", triton=("24.07",)),
    Release(version=(0, 12), tensorrt="10.3.0.26", cuda="12.5.1", triton=("24.08",)),
    Release(version=(0, 13), tensorrt="10.4.0.26", cuda="12.5.1", triton=("24.09",)),
    Release(version=(0, 14), tensorrt="10.4.0.26", cuda="12.5.1", triton=("24.10",)),
    Release(version=(0, 15), tensorrt="10.6.0.26", cuda="12.6.2", triton=("24.11",)),
    Release(version=(0, 16), tensorrt="10.7.0.23", cuda="12.6.3", triton=("24.12",)),
    Release(version=(0, 17), tensorrt="10.8.0.43", cuda="12.8.0", triton=("25.01", "25.02")),
    Release(version=(0, 18), tensorrt="10.9.0.34", cuda="12.8.1", triton=("25.03", "25.04")),
    Release(version=(0, 19), tensorrt="10.9.0.34", cuda="12.8.1", triton=("25.05",)),
    Release(version=(0, 20), tensorrt="10.10.0.31", cuda="12.9.0", triton=("25.06", "25.07")),
    Release(version=(0, 21), tensorrt="10.11.0.33", cuda="12.9", triton=("25.08",)),
    Release(
        version=(1, 0), tensorrt="10.11.0.33", cuda="12.9.1", triton=("25.09", "25.10", "25.11")
    ),
    Release(version=(1, 1), tensorrt="10.13.3.9", cuda="13.0", triton=("25.12", "26.01", "26.02")),
    Release(
        version=(1, 2),
        tensorrt="10.14.1.48",
        cuda="13.1",
        triton=("26.03", "26.04", "26.05", "26.06", "26.07"),
    ),
)
"""0.9 was released with 9.3 and 10.0.1."""

OF_PATCH: Mapping[Version, str | None] = {(1, 0, 1): None, (1, 0, 2): None, (1, 0, 3): "10.13.3.9"}
"""Where another patch release than X.Y.0 has another TensorRT: 1.0.3.2510 of Triton 25.11."""

TRITON_EXACT = {
    "25.02": "0.17.0.post1",
    "25.04": "0.18.2",
    "25.11": "1.0.3",
    "26.03": "1.2.0rc8",
    "26.04": "1.2.1",
    "26.05": "1.2.1",
    "26.06": "1.2.1",
    "26.07": "1.2.1",
}
"""Tags that hold another patch release than X.Y.0."""

RELEASE_IMAGE = re.compile(r"(?:^|/)tensorrt-llm/(?:release|devel):v?(\d+\.\d+[\w.]*)")
"""nvcr.io/nvidia/tensorrt-llm/release:1.2.1, since 0.20."""

TRITON_IMAGE = re.compile(r"(?:^|/)tritonserver:(\d{2}\.\d{2})-([\w-]+)")

CUDA_IMAGE = re.compile(r"(?:^|/)nvidia/cuda:(\d+\.\d+)[\w.]*-(base|runtime|devel)")
"""nvidia/cuda:12.4.1-runtime-ubuntu22.04: CUDA's libraries and nothing else; no Python."""


def numbers(version: str | None) -> Version | None:
    """(1, 2, 0) of "1.2.0rc8" or "v1.2.0"; None when it is no version."""
    return release(version, 3) or None


def candidate(version: str | None) -> int | None:
    """8 of "1.3.0rc8"."""
    found = re.search(r"rc(\d+)", version or "")
    return int(found[1]) if found else None


def is_candidate(version: str | None) -> bool:
    """Whether it is of before its release: 1.2.0rc0, 0.17.0.dev2024121700."""
    return re.search(r"\d\.?(?:rc|dev|a|b)\d*", version or "") is not None


def reaches(version: str | None, bound: Version) -> bool | None:
    """Whether a version is that of the bound or a later one; None where only its candidates are, for
    what a release brought came with any of them."""
    wanted = numbers(version)
    if wanted is None:
        return None
    if wanted[: len(bound)] == bound and is_candidate(version):
        return None
    return wanted >= bound


def release_of(version: str | None) -> Release | None:
    """The row of a version; None when it is not in the table."""
    wanted = numbers(version)
    if wanted is None:
        return None
    return next((row for row in RELEASES if row.version == wanted[:2]), None)


def tensorrt_of(version: str | None) -> str | None:
    """The TensorRT of a release; candidates had others before (those of 1.2.0 both 10.13 and 10.14)."""
    row, exact = release_of(version), numbers(version)
    if row is None or exact is None or is_candidate(version):
        return None
    return OF_PATCH.get(exact, row.tensorrt)


def in_triton(tag: str) -> str | None:
    """The TensorRT-LLM of a Triton image YY.MM-trtllm-python-py3."""
    if tag in TRITON_EXACT:
        return TRITON_EXACT[tag]
    row = next((row for row in RELEASES if tag in row.triton), None)
    return ".".join(map(str, (*row.version, 0))) if row else None


def era_of(version: str | None) -> Era | None:
    """By the number alone; None in the doubtful part of 1.3.0rc and for no version."""
    wanted = numbers(version)
    if wanted is None:
        return None
    if wanted < (0, 17):
        return "engine"
    if wanted < (1, 0):
        return "engine-first"
    if wanted < ENGINES_IN_DOUBT:
        return "pytorch-first"
    if wanted >= ENGINES_GONE:
        return "pytorch-only"
    number = candidate(version)
    if number is not None and number <= 15:
        return "pytorch-first"
    return "pytorch-only" if number is None or number >= 24 else None


def same_tensorrt(one: str, other: str) -> bool:
    """Whether a plan of one loads in the other: major, minor and patch are the same.

    Only the parts that both tell are compared; the build number is not.
    """
    parts = [text.split(".")[:3] for text in (one, other)]
    shortest = min(len(part) for part in parts)
    return parts[0][:shortest] == parts[1][:shortest]
