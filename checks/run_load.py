"""What a load ramp of the doctor's own showed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from infer_doctor.facts.run import Ramp, Step
from infer_doctor.fixes.run import cure
from infer_doctor.model import Category, Confidence, Evidence, Finding, Fix
from infer_doctor.registry import check
from infer_doctor.units import plural

CATEGORY: dict[str, Category] = {
    "queueing": "queueing",
    "preemption": "oom_kv_cache",
    "stalled": "engine_stalled",
    "blocked-loop": "request_timeout",
    "slow": "request_timeout",
    "failed": "request_timeout",
}

MARGIN = 1.5
"""What a client should wait of the worst answer that was measured."""


OWN_SHARE = 0.3
"""Of the client's limit, by which the doctor itself was late: the engine takes its CPU. Of the mean
first token: what passes outside the engine is worth a word (ours)."""


def _seconds(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _why(ramp: Ramp, step: Step) -> str:
    if ramp.cause == "failed":
        return step.said or "what they were told was not kept"
    if ramp.cause == "queueing":
        most = ramp.max_num_seqs or int(step.running_most or 0)
        mean = step.ttft_mean or step.ttft_median
        runs = f"; at most {most} run at once" if 0 < most < step.concurrency else ""
        outside = (mean or 0.0) - (step.server_first or mean or 0.0)
        if mean is not None and outside > OWN_SHARE * mean:
            runs += f"; {_seconds(outside)} pass outside the engine: its front end or the client is short of CPU"
        return (
            f"they wait in the engine's queue, {_seconds(step.queue_mean)} of the "
            f"{_seconds(mean)} to the first token on average{runs}"
        )
    if ramp.cause == "preemption":
        return (
            f"the KV cache was full and {plural(int(step.preemptions or 0), 'request')} preempted"
        )
    if ramp.cause == "stalled":
        count = plural(int(step.running_most or step.concurrency), "request")
        return f"the engine made no step while {count} waited for it"
    if ramp.cause == "blocked-loop":
        return f"the server's event loop was blocked: /health took {_seconds(step.loop_lag)}"
    if step.running_most is None:
        return "why is not told: the server shows no metrics"
    slow = "the engine is that slow with so many at once"
    if step.concurrency == 1:
        slow = "the engine is that slow with one alone"
    told = []
    if step.queue_mean:
        told.append(f"{_seconds(step.queue_mean)} in the queue on average")
    if step.preemptions == 0:
        told.append("nothing was preempted")
    if _is_own(ramp, step):
        told.append(
            f"this machine let the doctor itself wait {_seconds(step.own_lag)}, which is part of it"
        )
    return f"{slow}: {', '.join(told)}" if told else slow


def _is_own(ramp: Ramp, step: Step) -> bool:
    """Whether the doctor waited for a CPU a large part of what the client would."""
    limit = ramp.limit_s if ramp.first_token_s is None else ramp.first_token_s
    return (step.own_lag or 0.0) >= OWN_SHARE * limit


def _fixes(ramp: Ramp, step: Step) -> tuple[Fix, ...]:
    found: list[Fix] = []
    safe = ramp.safe
    if ramp.died:
        return (
            cure(
                "diagnose-stall", "Read the server's log: infer-doctor diagnose LOG", restarts=False
            ),
        )
    if safe is not None:
        found.append(
            cure(
                "limit-concurrency",
                f"Send at most {plural(safe, 'request')} at once to one server"
                + (f", or use {-(-step.concurrency // safe)} replicas for {step.concurrency}"),
                why=f"no answer was late with {safe}",
                restarts=False,
            )
        )
    sequences = ramp.max_num_seqs
    if ramp.cause == "queueing" and sequences is not None and sequences < step.concurrency:
        found.append(
            cure(
                "more-sequences",
                f"Or start with --max-num-seqs {step.concurrency}",
                why=f"{sequences} run at once now; more share the engine's steps and the KV cache",
            )
        )
    if ramp.cause == "preemption":
        found.append(
            cure("more-cache", "Or give more KV cache: infer-doctor plan shows what buys how much")
        )
    if ramp.cause in ("stalled", "failed"):
        found.append(
            cure(
                "diagnose-stall", "Read the server's log: infer-doctor diagnose LOG", restarts=False
            )
        )
        return tuple(found)
    worst = step.total_worst
    if worst is not None and not step.unended:
        found.append(
            cure(
                "longer-limit",
                f"Or let clients wait {max(worst * MARGIN, 1):.0f} s, and retry only after that",
                why=f"the slowest answer took {_seconds(worst)}",
                restarts=False,
            )
        )
    return tuple(_first(found))


def _first(found: list[Fix]) -> list[Fix]:
    """The first one stands alone."""
    if found and found[0].title.startswith("Or "):
        title = found[0].title.removeprefix("Or ")
        found[0] = dataclasses.replace(found[0], title=title[0].upper() + title[1:])
    return found


@check("run-load-late", severity="error", category="request_timeout", since="0.3")
def load_late(ramp: Ramp) -> Iterator[Finding]:
    """Answers pass the client's limit at a concurrency that was measured.

    ## Why it matters
    A client that gives up and asks again adds load to a server that has too much of it.

    ## How it decides
    Streams of --tokens tokens were sent, 1, 2, 4, ... at once, two for each, until an answer was later
    than the limit (--limit, 30 s without one; --first-token). One step between the last good and the
    first bad one narrows it. Requests that failed and were not late are told with their error. Else
    the cause follows from the server's own numbers during that step: no iteration for 2 s and more
    while requests were open is a stalled engine; preemptions are counted; a queue took 30 % of the mean
    time to the first token, by its own sum and count; /health more than 1 s later than the doctor's own
    event loop is a blocked one.

    ## Fix safety
    Manual: the launch, the replicas or the clients have to be changed.
    """
    step = ramp.broken
    if step is None:
        return
    limit = f"{ramp.limit_s:g} s"
    given_up = ""
    if step.unended:
        given_up = f", {step.unended} of them not within {_seconds(step.total_worst)}"
    if ramp.first_token_s is not None:
        limit = f"{ramp.first_token_s:g} s for the first token, {limit} for the answer"
    bad = step.late + step.failed
    words = f"{bad} of {plural(step.requests, 'answer')} came late or not at all{given_up}"
    if step.failed and not step.late:
        words = f"{step.failed} of {plural(step.requests, 'request')} failed"
    doubt = step.running_most is None or (ramp.cause == "slow" and _is_own(ramp, step))
    confidence: Confidence = "likely" if doubt else "certain"
    yield Finding(
        about="load",
        message=f"with {step.concurrency} at once {words} (limit {limit}): {_why(ramp, step)}"
        + (f"; {step.failed} failed: {step.said}" if step.failed and step.late else "")
        + (f"; the engine {ramp.died}" if ramp.died else ""),
        category=CATEGORY[ramp.cause],
        confidence=confidence,
        evidence=tuple(
            Evidence(
                source=ramp.url,
                excerpt=f"{row.concurrency} at once: first token {_seconds(row.ttft_median)} "
                f"(worst {_seconds(row.ttft_worst)}), answer {_seconds(row.total_median)} "
                f"(worst {_seconds(row.total_worst)}), {row.late} late"
                + (f", {row.failed} failed" if row.failed else ""),
            )
            for row in ramp.steps
        ),
        fixes=_fixes(ramp, step),
    )
