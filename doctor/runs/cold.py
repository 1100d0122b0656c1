"""Cold and warm starts of one launch: with caches of their own, never the user's."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from infer_doctor.facts.run import ColdWarm, Timed
from infer_doctor.runs.starting import Seen
from infer_doctor.runs.words import Change

CACHES = {
    "VLLM_CACHE_ROOT": "vllm",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "CUDA_CACHE_PATH": "cuda",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TLLM_LLMAPI_BUILD_CACHE_ROOT": "trtllm",
}
"""Variable -> folder, of every cache that an engine fills while it starts (vllm/envs.py; torch,
triton, CUDA and flashinfer documentation, 2026-11)."""

CACHE_FOLDER = "caches"
WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt")
EAGER = (("enforce-eager", None),)
GRAPHS = (("enforce-eager", ""),)


def run(
    start: Callable[[Change, str], Seen],
    folder: str | None,
    model: str,
    limit_s: float | None,
    *,
    eager_only: bool,
) -> tuple[list[Seen], ColdWarm]:
    """Cold, then warm; and the same in eager mode, unless the launch is eager already.

    Weights are dropped from the page cache before each cold start, as far as this user may.
    """
    seen: list[Seen] = []
    rows: list[Timed] = []
    try:
        _starts(start, folder, model, seen, rows, eager_only=eager_only)
    finally:
        if folder is not None:  # gigabytes with a large model, and nothing of it is looked at again
            shutil.rmtree(Path(folder, CACHE_FOLDER), ignore_errors=True)
    return seen, ColdWarm(rows=tuple(rows), limit_s=limit_s)


def _starts(
    start: Callable[[Change, str], Seen],
    folder: str | None,
    model: str,
    seen: list[Seen],
    rows: list[Timed],
    *,
    eager_only: bool,
) -> None:
    for eager in (True,) if eager_only else (False, True):
        variables = _caches(folder, "eager" if eager else "graphs")
        for filled in (False, True):
            if not filled:
                forget(model)
            change = Change(
                label=("warm" if filled else "cold") + (", eager" if eager else ""),
                options=EAGER if eager else GRAPHS,
                variables=variables,
            )
            one = start(change, "caches filled by the start before" if filled else "caches empty")
            seen.append(one)
            rows.append(timed(one, filled=filled, eager=eager))
            if not one.start.ready:
                return


def timed(seen: Seen, *, filled: bool, eager: bool) -> Timed:
    """One row of the result: the whole is measured by us, the phases are the log's."""
    phases: Mapping[str, float] = {}
    if seen.cold is not None:
        found: dict[str, float] = {}
        for phase in seen.cold.phases:
            found[phase.name] = found.get(phase.name, 0.0) + phase.seconds
        phases = found
    return Timed(
        label=seen.start.label,
        caches="filled" if filled else "empty",
        eager=eager,
        seconds=seen.start.seconds if seen.start.ready else None,
        phases=phases,
        log=seen.start.log,
    )


def _caches(folder: str | None, name: str) -> tuple[tuple[str, str], ...]:
    """Variables that name fresh folders; none where a kept run is replayed."""
    if folder is None:
        return ()
    root = Path(folder, CACHE_FOLDER, name)
    root.mkdir(parents=True, exist_ok=True)
    return tuple((variable, str(root / word)) for variable, word in CACHES.items())


def forget(model: str) -> None:
    """Drop the pages of a folder's weights from the kernel's cache (posix_fadvise)."""
    folder = Path(model)
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.suffix in WEIGHTS:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)
