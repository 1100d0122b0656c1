"""What the statistics of a serving log show: queues, a full cache, an engine that stands still."""

from __future__ import annotations

from collections.abc import Iterator

from infer_doctor.engine import NotApplicable
from infer_doctor.facts.log import Sample, Serving
from infer_doctor.fixes.log import cure
from infer_doctor.model import Evidence, Finding
from infer_doctor.registry import check


def _require_samples(serving: Serving) -> None:
    if not serving.samples:
        raise NotApplicable("the log holds no line of the engine's statistics")


def _evidence(serving: Serving, row: Sample) -> Evidence:
    return Evidence(
        source=serving.source,
        line=row.line,
        excerpt=f"Running: {row.running} reqs, Waiting: {row.waiting} reqs, KV cache {row.kv:g} %, "
        f"generation {row.generation:g} tokens/s",
    )


FULL_PERCENT = 95
"""Of the KV cache: from here on the next request does not fit beside those that run, so that more
sequences would only be preempted; ours."""


@check("log-queue-grows", severity="warning", category="queueing", since="0.2")
def queue_grows(serving: Serving) -> Iterator[Finding]:
    """The queue grew to the end of the log.

    ## Why it matters
    More requests come than the engine completes: every client waits longer than the one before, until
    its time-out, and retries make it worse.

    ## How it decides
    The last statistics lines: the number of waiting requests never fell over at least six of them
    (a minute, by vLLM's interval of 10 s) and rose by at least six.

    ## Fix safety
    Manual: replicas, limits and clients are outside of the log.
    """
    _require_samples(serving)
    first, last = serving.queue_from, serving.queue_to
    if first is None or last is None:
        return
    full = last.kv >= FULL_PERCENT
    yield Finding(
        about="queue",
        message=f"the queue grew from {first.waiting} to {last.waiting} waiting requests; "
        f"{last.running} run, the KV cache is {last.kv:g} % full",
        evidence=(_evidence(serving, first), _evidence(serving, last)),
        fixes=(
            cure(
                "more-cache" if full else "more-sequences",
                "Give the KV cache more room, or add replicas"
                if full
                else "Raise --max-num-seqs or add replicas: the KV cache is not what limits",
                why="the cache is full, so more sequences would only be preempted"
                if full
                else None,
            ),
        ),
    )


@check("log-kv-full", severity="warning", category="queueing", since="0.2")
def kv_full(serving: Serving) -> Iterator[Finding]:
    """The KV cache was full while requests waited.

    ## Why it matters
    Running requests are then preempted and computed again: throughput falls just when load is
    highest, and single answers take many times as long.

    ## How it decides
    Statistics lines with a KV cache usage of 99 % or more and waiting requests; "is preempted by"
    lines are counted where the version prints them.

    ## Fix safety
    Manual: the launch has to be changed.
    """
    row = serving.kv_full
    if row is None and serving.preemptions == 0:
        _require_samples(serving)
        return
    count = serving.kv_full_samples
    words = [
        f"in {count} of {serving.samples} statistics lines the KV cache is full while requests wait"
    ]
    if row is None:
        words = []
    if serving.preemptions:
        words.append(f"{serving.preemptions:,} preemptions")
    if not words or row is None:
        return  # log-warned names the line of a preemption
    yield Finding(
        about="kv cache",
        message="; ".join(words),
        evidence=(_evidence(serving, row),),
        fixes=(
            cure(
                "fewer-sequences",
                f"Lower --max-num-seqs below {max(1, row.running)}, or give the KV cache more room "
                "(--gpu-memory-utilization, more GPUs, --kv-cache-dtype fp8)",
            ),
        ),
    )


@check("log-engine-stalled", severity="error", category="engine_stalled", since="0.2")
def engine_stalled(serving: Serving) -> Iterator[Finding]:
    """The engine stood still: requests ran and no token was made.

    ## Why it matters
    The server answers /health and nothing else; clients run into their time-outs, and no line says
    ERROR.

    ## How it decides
    Statistics lines over at least 60 s with running requests, and neither prompt nor generated
    tokens. An error when the log ends so, a warning when it went on.

    ## Fix safety
    Manual: the rank that hangs has to be found.
    """
    _require_samples(serving)
    row = serving.stalled
    if row is None:
        return
    seconds = serving.stalled_s or 0
    yield Finding(
        about="engine",
        message=f"{row.running} requests ran for {seconds:.0f} s without a single token",
        severity="error" if serving.stalled_at_end else "warning",
        confidence="likely",
        evidence=(_evidence(serving, row),),
        fixes=(
            cure(
                "find-the-hang",
                "Find the rank that hangs before restarting",
                "nvidia-smi",
                "py-spy dump --pid PID_OF_A_WORKER",
                why="100 % use at low power is a spinning kernel: try --disable-custom-all-reduce and "
                "NCCL_P2P_DISABLE=1",
            ),
        ),
    )
