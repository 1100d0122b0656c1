"""The folders that models and compiled kernels are kept in: room, speed, permission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infer_doctor.catalog.filesystems import PREFETCHED, network_label
from infer_doctor.facts.engine import EngineFact
from infer_doctor.facts.storage import KERNELS, MODELS, NAMED_MODEL, Place, Store, Stores
from infer_doctor.fixes.cache import make_room, move_caches, move_to_local_disk
from infer_doctor.launch.model import Launch
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check
from infer_doctor.units import MIB, gib

WEIGHT_FILE = 5_000_000_000
"""One weight file: `max_shard_size` of transformers' save_pretrained is 5 GB by default (4.x
modeling_utils.py), so that is the usual size of a file in a model repository."""

FIRST_START = 1_830_767
"""What vLLM 0.32 wrote below HOME (torch.compile's cache and its own) when it first started a model
of two layers; measured with `du -ab` on the CPU build, 2026-11. Less than that stops any start."""


@check("cache-disk-low", severity="warning", category="disk_full", since="0.1")
def disk_low(stores: Stores) -> Iterator[Finding]:
    """A file system that an engine writes to is full or nearly full.

    ## Why it matters
    "No space left on device" comes in the middle of a download, or from a compiler step of the
    first start that does not say which disk it means.

    ## How it decides
    statvfs, as `df` and huggingface_hub ask. An error when less than 1.8 MB or no inode is free:
    that is what vLLM 0.32 wrote for a model of two layers. A warning when the model cache has
    less than 5 GB free, the usual size of one weight file (transformers' `max_shard_size`), and a
    download is possible: not with HF_HUB_OFFLINE=1, nor for a launch that names a local folder.
    One finding for each file system: the folders that lie on it are named together. File systems
    that are mounted read-only are cache-not-writable's.

    ## Fix safety
    Manual: what may be deleted is for its owner to say.
    """
    for store in stores.stores:
        roles = {place.role for place in store.places} - {NAMED_MODEL}
        if stores.offline:
            roles.discard(MODELS)
        if store.read_only or not store.total or not roles:
            continue
        no_inodes = bool(store.inodes) and store.inodes_free == 0
        full = store.free < FIRST_START or no_inodes
        if not full and not (MODELS in roles and store.free < WEIGHT_FILE):
            continue
        yield Finding(
            about=store.about,
            message=_disk_message(store, full=full, no_inodes=no_inodes),
            severity="error" if full else None,
            confidence="certain" if full else "possible",
            evidence=_evidence(store),
            fixes=(make_room(store),),
        )


def _disk_message(store: Store, *, full: bool, no_inodes: bool) -> str:
    holds = f"it holds {_names(store.places)}"
    if no_inodes:
        return f"{_mount(store)} has 0 of {store.inodes:,} inodes free, one for each file; {holds}"
    room = f"{_mount(store)} has {gib(store.free)} of {gib(store.total)} free; {holds}"
    if full:
        return f"{room}; the smallest start writes {FIRST_START / MIB:.1f} MiB"
    return f"{room}; one weight file takes {gib(WEIGHT_FILE)}"


@check("cache-network-filesystem", severity="warning", category="cold_start", since="0.1")
def network_filesystem(stores: Stores) -> Iterator[Finding]:
    """Models or compiled kernels are kept on a network file system.

    ## Why it matters
    Weights are read page by page through a memory map, one round trip each: minutes instead of
    seconds until the server is ready. Compilers rename and lock many small files there, and
    several nodes that share one folder can meet "Stale file handle".

    ## How it decides
    The type of the mount with the longest path above the folder (/proc/self/mountinfo), against a
    list of network file systems and of FUSE programs that fetch over the network
    (catalog/filesystems.py); vLLM itself treats nfs, nfs4 and lustre apart when it loads
    (model_loader/weight_utils.py). Shares of a virtual machine's host (9p, virtiofs) are possible
    findings, except as root: there the sandbox chose them. The model that a launch names by path
    is looked at too. What only holds temporary files is left out.

    ## Fix safety
    Manual: a copy of the model takes time and room.
    """
    for store in stores.stores:
        places = tuple(p for p in store.places if p.role in (NAMED_MODEL, MODELS, *KERNELS))
        label = network_label(store.type or "", store.mount or "")
        if label is None or not places:
            continue
        yield Finding(
            about=", ".join(place.role for place in places),
            message=f"{store.mount} is {label}; it holds {_names(places)}",
            confidence="possible" if "shared by the host" in label else "certain",
            evidence=(
                Evidence(source="/proc/self/mountinfo", excerpt=f"{store.mount} {store.type}"),
                *(Evidence(source=place.source, excerpt=place.path) for place in places[:3]),
            ),
            fixes=move_to_local_disk(places, prefetched=store.type in PREFETCHED),
        )


@check("cache-not-writable", severity="warning", category="environment", since="0.1")
def not_writable(
    stores: Stores, engine: EngineFact | None, launch: Launch | None
) -> Iterator[Finding]:
    """A folder that an engine keeps its files in cannot be written.

    ## Why it matters
    Containers that run with an arbitrary user id (OpenShift) have HOME=/ and may not write there:
    the engine stops with "PermissionError: '/.triton'" or "'/.cache'" after minutes of loading.

    ## How it decides
    access(2) of the folder, or of its nearest existing parent when it is still to be made, for the
    user that the doctor runs as; run it as the engine's user. An error for the caches of compiled
    kernels (vLLM, Triton, FlashInfer, Inductor) when the launch starts an engine or, without a
    launch, a GPU engine is installed: Triton makes its folder before the first kernel
    (triton/runtime/cache.py) and vLLM fails with it (llm-d issue 1430, vLLM 0.19.1). For the model
    cache a warning when it does not exist, so that no model can be in it; only a note when it does,
    since a cache that is mounted read-only on purpose works as long as the model is complete.
    Nothing is said about the model cache when no download is possible.

    ## Fix safety
    Manual: the start of the container has to change.
    """
    gpu_engine = engine is not None and engine.build == "cuda"
    starts = gpu_engine if launch is None else launch.engine is not None
    for store in stores.stores:
        closed = [place for place in store.places if not place.writable]
        kernels = tuple(place for place in closed if place.role in KERNELS)
        models = tuple(p for p in closed if p.role == MODELS and not stores.offline)
        if not kernels and not models:
            continue
        fatal = bool(kernels) and starts
        only_note = not kernels and all(place.there for place in models)
        places = (*models, *kernels)
        who = f"user id {stores.uid}"
        yield Finding(
            about=", ".join(place.role for place in places),
            message=f"{_names(places)} cannot be written"
            + (f": {_mount(store)} is mounted read-only" if store.read_only else f" by {who}"),
            severity="error" if fatal else "info" if only_note else None,
            confidence="likely" if fatal else "possible",
            evidence=tuple(
                Evidence(
                    source=place.path,
                    excerpt=f"from {place.source}; "
                    f"{'exists' if place.there else 'does not exist'}, no write permission",
                )
                for place in places
            ),
            fixes=(move_caches(places),),
        )


def _names(places: Sequence[Place]) -> str:
    """the model cache (/root/.cache/huggingface/hub) and the vLLM cache."""
    words = [f"the {place.role}" for place in places]
    words[0] += f" ({places[0].path})"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _mount(store: Store) -> str:
    return f"{store.mount or 'an unknown mount'} ({store.type or 'unknown type'})"


def _evidence(store: Store) -> tuple[Evidence, ...]:
    inodes = f", {store.inodes_free} of {store.inodes} inodes" if store.inodes else ""
    return (
        Evidence(
            source=f"statvfs {store.mount or store.places[0].path}",
            excerpt=f"{store.free} of {store.total} bytes free{inodes}",
        ),
        *(Evidence(source=place.source, excerpt=place.path) for place in store.places[:3]),
    )
