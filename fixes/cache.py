"""Fixes for the folders of models and compiled kernels."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from infer_doctor.facts.storage import KERNELS, MODELS, Place, Store
from infer_doctor.model import Action, Fix

VARIABLES = {
    MODELS: ("HF_HOME", "hf"),
    **dict(
        zip(
            KERNELS,
            (
                ("VLLM_CACHE_ROOT", "vllm"),
                ("TRITON_CACHE_DIR", "triton"),
                ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
                ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            ),
            strict=True,
        )
    ),
}
"""Role -> the environment variable that moves it, and a name for its new folder."""


def make_room(store: Store) -> Fix:
    """Free space, or move what fills the file system."""
    there = [place.path for place in store.places if place.there]
    return Fix(
        id="make-room",
        title=f"Make room on {store.mount or store.places[0].path}, or move the caches to another disk",
        safety="manual",
        restarts=False,
        actions=tuple(
            Action(kind="command", text=f"du -xsh {shlex.quote(path)}") for path in there[:3]
        ),
    )


def _exports(places: Sequence[Place], base: str) -> tuple[Action, ...]:
    rows = [VARIABLES[place.role] for place in places if place.role in VARIABLES]
    return tuple(Action(kind="command", text=f"export {name}={base}/{end}") for name, end in rows)


def move_to_local_disk(places: Sequence[Place], *, prefetched: bool) -> tuple[Fix, ...]:
    """Keep the files on a disk of this machine; on what vLLM calls a network disk it reads ahead."""
    named = [place for place in places if place.role not in VARIABLES]
    fixes = [
        Fix(
            id="use-local-disk",
            title=f"Copy {named[0].path} to a local disk and start from there"
            if named
            else f"Move the {places[0].role} to a local disk (here called /local)",
            safety="manual",
            restarts=True,
            actions=_exports(places, "/local"),
        )
    ]
    if not prefetched and any(place.role not in KERNELS for place in places):
        fixes.append(
            Fix(
                id="prefetch-weights",
                title="Or start vLLM with --safetensors-load-strategy prefetch",
                safety="manual",
                restarts=True,
                why="vLLM reads ahead by itself only on nfs, nfs4 and lustre; the model has to fit "
                "into the host's memory",
            )
        )
    return tuple(fixes)


def move_caches(places: Sequence[Place]) -> Fix:
    """Give the caches folders that the engine's user may write."""
    return Fix(
        id="writable-caches",
        title=f"Start with folders that can be written for the {', the '.join(p.role for p in places)}",
        safety="manual",
        restarts=True,
        why="in Kubernetes: mount an emptyDir or a volume at /cache",
        actions=_exports(places, "/cache"),
    )
