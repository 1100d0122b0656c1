"""The memory budget: what is free, what the KV cache gets, and the values that pass the engine's check."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from infer_doctor.fixes.log import cure
from infer_doctor.logs.answers import Answer, number
from infer_doctor.logs.story import Hit, Start
from infer_doctor.model import Fix

DEFAULT_UTILISATION = ((0, 21), 0.90, 0.92)
"""vLLM before and from 0.21 (commit 96a85c5750, 2026-04-21)."""

HIGHEST_UTILISATION = 0.97
"""Above it the CUDA context (0.5 to 1 GiB) and NCCL no longer fit beside the budget of an 80 GB GPU."""

ROUNDED = 0.005
"""Half of the last digit that vLLM prints of a size in GiB."""

BLOCK = 16
"""Tokens of a KV cache block (vLLM's default on CUDA)."""


def utilisation(start: Start) -> float:
    """The share that this start asked for: given, else the version's default."""
    given = start.number_of("gpu_memory_utilization") or start.number_of("util")
    if given and 0 < given <= 1:
        return given
    parts = re.findall(r"\d+", start.version or "")
    limit, old, new = DEFAULT_UTILISATION
    if not parts and start.old:
        return old
    return old if len(parts) >= 2 and (int(parts[0]), int(parts[1])) < limit else new


def down(share: float, digits: int = 2) -> float:
    """Rounded down, free of binary dust."""
    scale = float(10**digits)
    return math.floor(share * scale + 1e-9) / scale


def up(share: float, digits: int = 2) -> float:
    """Rounded up."""
    scale = float(10**digits)
    return math.ceil(share * scale - 1e-9) / scale


def free_memory(hit: Hit, start: Start) -> Answer:
    """requested = ceil(total x share) has to be at most what is free (v1/worker/utils.py)."""
    free, total, want = (number(hit, name) for name in ("free", "total", "want"))
    if free is None or total is None or want is None or not 0 <= free < total:
        return Answer()
    share = down((free - ROUNDED) / total)
    while share > 0 and share * total > free - ROUNDED:
        share = down(share - 0.01)
    held = total - free
    device = (hit.match.groupdict().get("device") or "the GPU").strip()
    fixes: list[Fix] = []
    near = free >= 0.5 * want
    end = cure(
        "free-the-gpu",
        f"Free {want - free:.1f} GiB on {device}: find who holds {held:.1f} GiB and end it if it is "
        "a dead engine",
        "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv",
        text="or choose an idle GPU with CUDA_VISIBLE_DEVICES",
    )
    if share >= 0.05:
        lower = cure(
            "lower-memory-utilization",
            f"Start with --gpu-memory-utilization {share:g}",
            why=None
            if near
            else f"only if the model fits into {share * total:.1f} GiB: the others keep {held:.1f}",
        )
        fixes = [lower, end] if near else [end, lower]
    else:
        fixes = [end]
    return Answer(
        message=f"{device} has {free:g} of {total:g} GiB free; the launch asks for {want:g} GiB "
        f"({hit.match['util']} of it): other processes hold {held:.1f} GiB",
        fixes=tuple(fixes),
        values={"free": f"{free}", "total": f"{total}", "want": f"{want}"},
    )


def cpu_memory(hit: Hit, start: Start) -> Answer:
    """The same rule on the CPU engine."""
    free, total = number(hit, "free"), number(hit, "total")
    if free is None or total is None or not 0 <= free < total:
        return Answer()
    share = down((free - ROUNDED) / total)
    return Answer(
        fixes=(
            cure(
                "lower-memory-utilization",
                f"Start with --gpu-memory-utilization {share:g}",
                why="on the CPU engine it is the share of main memory",
            ),
        )
    )


def kv_one_request(hit: Hit, start: Start) -> Answer:
    """The longest context whose KV cache fits, by the engine's estimate or in proportion."""
    length, need, have, fits = (number(hit, n) for n in ("length", "need", "have", "fits"))
    if length is None or need is None or have is None or not need or have > need:
        return Answer()
    if fits is None:
        tokens = int(length * max(have - ROUNDED, 0) / (need + ROUNDED))
        fits = float(tokens // BLOCK * BLOCK)
    if fits < 1:
        return kv_no_blocks(hit, start)
    fixes = [
        cure(
            "lower-max-model-len",
            f"Start with --max-model-len {fits:.0f}",
            why="keeps everything else as it is",
        )
    ]
    if share := _more(start, need - have):
        fixes.append(
            cure(
                "raise-memory-utilization",
                f"Or start with --gpu-memory-utilization {share:g}",
                why=f"room for one request of {length:,.0f} tokens, if that much is free on the GPU",
            )
        )
    if start.values.get("kv_cache_dtype", "auto") == "auto" and 2 * have > need:
        fixes.append(
            cure(
                "kv-cache-half",
                "Or start with --kv-cache-dtype fp8",
                why=f"one byte instead of two for each value: about {2 * fits:,.0f} tokens; compare "
                "the answers, and prefer a checkpoint with KV scales",
            )
        )
    return Answer(
        message=f"the context of {length:,.0f} tokens needs {need:g} GiB of KV cache; {have:g} GiB "
        f"are there, enough for {fits:,.0f} tokens",
        fixes=tuple(fixes),
    )


def _more(start: Start, missing: float) -> float | None:
    """A share that gives `missing` GiB more, by the smallest GPU that these numbers allow."""
    total = start.number_of("total")
    weights, available = start.number_of("weights"), start.number_of("available")
    share = utilisation(start)
    if total is None:
        if weights is None or available is None:
            return None
        total = (
            weights + available
        ) / share  # activations would make it larger, so the share smaller
    wanted = up(share + (missing + 2 * ROUNDED) / total)
    return wanted if wanted <= HIGHEST_UTILISATION else None


def kv_tokens(hit: Hit, start: Start) -> Answer:
    """V0: the length must be at most blocks x block size, which the message gives."""
    length, fits = number(hit, "length"), number(hit, "fits")
    if length is None or not fits:
        return Answer()
    return Answer(
        message=f"the context of {length:,.0f} tokens is longer than the KV cache, which holds "
        f"{fits:,.0f} tokens",
        fixes=(
            cure(
                "lower-max-model-len",
                f"Start with --max-model-len {fits:.0f}",
                why="keeps everything else as it is",
            ),
            cure(
                "more-gpus-for-cache",
                "Or use more GPUs (--tensor-parallel-size), which leaves "
                "more of each for the KV cache",
            ),
        ),
    )


def kv_no_blocks(hit: Hit, start: Start) -> Answer:
    """Weights and activations against the budget; what more share or more GPUs would really give."""
    weights, available = start.number_of("weights"), start.number_of("available")
    total = start.number_of("total")
    share = utilisation(start)
    raise_it = cure(
        "raise-memory-utilization",
        f"Raise --gpu-memory-utilization (now {share:g})",
        why="gives the KV cache what is above the weights",
    )
    if weights is None or available is None:
        lower = cure(
            "lower-profile-peak",
            "Lower --max-num-batched-tokens and --max-num-seqs",
            why="the profiled peak shrinks with both",
        )
        return Answer(fixes=(raise_it, lower) if share < 0.9 else (lower, raise_it))
    whole = total or (weights + available) / share
    least = "" if total else "at least "
    most = (HIGHEST_UTILISATION + 0.02 - share) * whole + available
    short = (
        f"weights take {weights:g} GiB, and {-available:g} GiB are missing even before the KV cache"
    )
    if available > 0:
        short = f"weights take {weights:g} GiB and leave {available:g} GiB for the KV cache"
    tensor = int(start.number_of("tensor_parallel_size") or 1)
    half = cure(
        "more-gpus",
        f"Use --tensor-parallel-size {tensor * 2}",
        why=f"about {weights / 2:.0f} GiB of weights on each GPU",
    )
    smaller = cure(
        "quantise",
        "Or serve a quantised checkpoint (FP8: about "
        f"{weights / 2 * 1.03:.0f} GiB here; compare the answers)",
    )
    if share < 0.9 and weights < 0.9 * (weights + available) / share * HIGHEST_UTILISATION:
        wanted = min(up(share + (abs(min(available, 0)) + 1) / whole), 0.95)
        better = cure(
            "raise-memory-utilization",
            f"Start with --gpu-memory-utilization {wanted:g} or more (now {share:g})",
            why=f"covers the missing {max(-available, 0):.1f} GiB and 1 GiB of KV cache",
        )
        return Answer(message=short, fixes=(better, half), category="oom_kv_cache")
    note = (
        f"The log says: raise gpu_memory_utilization. It is {share:g}; 0.99 would give the KV cache "
        f"{least}{most:.1f} GiB"
        if most > 0
        else f"The log says: raise gpu_memory_utilization. It is {share:g}; even 0.99 would not do"
    )
    return Answer(
        message=f"{short} (budget {share:g} of the GPU)",
        fixes=(half, smaller),
        category="oom_load",
        wrong=f"{note}, with nothing left for CUDA's own context" if most > 0 else note,
        support=("weights", "available"),
    )


FUNCTIONS: dict[str, Callable[[Hit, Start], Answer]] = {
    "free_memory": free_memory,
    "cpu_memory": cpu_memory,
    "kv_one_request": kv_one_request,
    "kv_tokens": kv_tokens,
    "kv_no_blocks": kv_no_blocks,
}
